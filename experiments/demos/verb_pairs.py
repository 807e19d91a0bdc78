"""How often the frozen model is right after two demonstrations of `demos/verbs`, by what they share
with the query: `python experiments/demos/verb_pairs.py RECORD.parquet ...`.

"both", "form", "pronoun" and "none" are what a demonstration shares; the one next to the query
stands last, as in the prompt. A pair of demonstrations counts once for a query and an order. The
last line is what a selector would reach that knew all of this: the kind of pair that is right most
often, of those that each query's pool allows. Before them, each record's score on the queries that
the oracle was asked about.
"""

import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from verbs import demonstrations, read_verbs, verb_queries

from assay.labs.demos.demonstrations import POOL
from assay.runs.records import read_columns
from assay.tasks.task import BenchmarkOptions

ROWS, ORACLE_ROWS = 200, 100
"""Test queries of the ladder, and of its oracle."""


def shared(query: str, answer: str, shown: int) -> str:
    """What demonstration `shown` has in common with a query of this id and answer."""
    found = demonstrations().demonstrations[shown]
    form = found.id.rpartition("-")[2] == query.rpartition("-")[2]
    pronoun = found.answer.split()[0] == answer.split()[0]
    return {(1, 1): "both", (1, 0): "form", (0, 1): "pronoun", (0, 0): "none"}[form, pronoun]


def main(files: Iterable[str]) -> None:
    """Print a line for each kind of pair, the most helpful first."""
    answers = {query.id: query.answers[0] for query in verb_queries("test")}
    tried: dict[tuple[str, str], float] = {}
    for file in files:
        columns = read_columns(Path(file), ["item_id", "output", "score"])
        scores = dict(zip(columns["item_id"], columns["score"], strict=True))
        asked = [scores[query.id] for query in verb_queries("test")[:ORACLE_ROWS]]
        print(f"{file}: {sum(asked) / ORACLE_ROWS:.1%} of the first {ORACLE_ROWS}")
        tried |= zip(
            zip(columns["item_id"], columns["output"], strict=True), columns["score"], strict=True
        )
    kinds = defaultdict[tuple[str, str], list[float]](list)
    for (item, output), score in tried.items():
        near, far = (shared(item, answers[item], pick) for pick in json.loads(output))
        kinds[far, near].append(score)
    for (far, near), scores in sorted(kinds.items(), key=lambda k: -sum(k[1]) / len(k[1])):
        print(f"{far}, {near}: {sum(scores) / len(scores):.1%} of {len(scores)}")
    rates = {kind: sum(scores) / len(scores) for kind, scores in kinds.items()}
    best = []
    for row in read_verbs("test", BenchmarkOptions({})).rows[:ROWS]:
        held = [shared(row.id, answers[row.id], number) for number in row.extra[POOL]]
        best.append(max(rates.get(pair, 0.0) for pair in itertools.permutations(held, 2)))
    print(f"the best kind of each of {len(best)} pools: {sum(best) / len(best):.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
