"""Counts what is wrong with the wrong answers of an ASDiv record: a sum, or the choice of sums.

python -m tests.docs.wrong_steps FILE.parquet [...]
"""

import re
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

from assay.runs.records import read_columns

STEP = re.compile(r"(\d+(?:\.\d+)?) ([-+*/]) (\d+(?:\.\d+)?) = (\d+(?:\.\d+)?)")


def holds(left: str, sign: str, right: str, value: str) -> bool:
    """Whether a written step is true."""
    one, other = Fraction(left), Fraction(right)
    if sign == "/":
        return other != 0 and one / other == Fraction(value)
    return {"+": one + other, "-": one - other, "*": one * other}[sign] == Fraction(value)


def fault(output: str, score: float) -> str:
    """`right`, `a sum is wrong`, `every sum holds` (of a wrong answer), or `no sums`."""
    if score:
        return "right"
    steps = STEP.findall(output)
    if not steps:
        return "no sums"
    return "every sum holds" if all(holds(*step) for step in steps) else "a sum is wrong"


if __name__ == "__main__":
    for file in sys.argv[1:]:
        columns = read_columns(Path(file), ["output", "score"], ())
        pairs = zip(columns["output"], columns["score"], strict=True)
        print(file, dict(Counter(fault(output, score) for output, score in pairs)))
