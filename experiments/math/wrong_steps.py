"""Counts what is wrong with the wrong answers of a record of `asdiv:test_expressions`.

python experiments/math/wrong_steps.py FILE.parquet [...]
"""

import re
import sys
from collections import Counter
from pathlib import Path

from asdiv import read_asdiv

from assay.labs.math.sentences import final_answer, worked_out
from assay.runs.records import read_columns

NUMBER = re.compile(r"\d+(?:\.\d+)?")
ROWS = read_asdiv("test_expressions").rows
GOLD = {row.id: row.gold or "" for row in ROWS}


def fault(output: str, gold: str, score: float) -> str:
    """`right`, `no sum`, or whether a wrong sum has the numbers of the gold one, or how many."""
    answer = final_answer(output) or ""
    if score:
        return "right"
    if worked_out(answer) is None:
        return "no sum"
    wanted, given = sorted(NUMBER.findall(gold)), sorted(NUMBER.findall(answer))
    if given == wanted:
        return "its numbers, other operations or order"
    return "other numbers" if len(given) == len(wanted) else "more or fewer numbers"


if __name__ == "__main__":
    for file in sys.argv[1:]:
        columns = read_columns(Path(file), ["item_id", "output", "score"], ())
        rows = zip(*columns.values(), strict=True)
        print(file, dict(Counter(fault(output, GOLD[item], score) for item, output, score in rows)))
