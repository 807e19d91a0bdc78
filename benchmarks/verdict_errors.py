"""How often verdicts err where the truth is known, and how often intervals hold it.

    taskset -c 1 python -m benchmarks.verdict_errors                       2,000 tables a row
    taskset -c 1 python -m benchmarks.verdict_errors --only graded --items 100 --tables 20000

A table is a control and ARMS runs on the same items, whose chances are spread as Beta(0.6, 0.6).
Null tables have one chance for all; in shifted ones every run's chance is nearer to 1 by SHIFT of
what is missing, so that the true difference is SHIFT / 2 (less, where some items are sure). `alone`
is the share of null tables whose first run is called different, `Holm` that of tables in which any
run is; both should be 5 %. `held` is the share of shifted runs' 95 % intervals that hold the true
difference.
"""

import math
from collections.abc import Callable

import numpy as np

from assay.judge.families import holm
from assay.judge.intervals import LEVEL
from assay.judge.paired import figures
from assay.judge.scores import Array, ItemScores
from assay.judge.verdict import ALPHA
from benchmarks.driver import parser_of, say
from benchmarks.results import machine, save_result

SUBJECT = "verdict_errors"
ITEMS = (30, 100, 400)
ARMS = 3
SHIFT = 0.2
EACH = 4
"""Repeats, steps of a graded score, and items of a source."""
Drawn = Callable[[np.random.Generator, Array], ItemScores]


def scored(values: Array, clusters: tuple[str, ...] | None = None) -> ItemScores:
    """Scores of items that are numbered."""
    return ItemScores(tuple(map(str, range(len(values)))), values, clusters)


def once(rng: np.random.Generator, chance_I: Array) -> ItemScores:
    """One answer, right or wrong."""
    return scored((rng.random(chance_I.shape) < chance_I)[:, None].astype(float))


def repeated(rng: np.random.Generator, chance_I: Array) -> ItemScores:
    """EACH answers, right or wrong."""
    return scored((rng.random((len(chance_I), EACH)) < chance_I[:, None]).astype(float))


def graded(rng: np.random.Generator, chance_I: Array) -> ItemScores:
    """One answer of which EACH parts are right or wrong."""
    return scored(rng.binomial(EACH, chance_I)[:, None] / EACH)


def sourced(rng: np.random.Generator, chance_I: Array) -> ItemScores:
    """One answer; EACH items of a source have one chance."""
    sources = np.arange(len(chance_I)) // EACH
    drawn_I = rng.random(len(chance_I)) < chance_I[sources * EACH]
    return scored(drawn_I[:, None].astype(float), tuple(map(str, sources)))


KINDS: dict[str, tuple[Drawn, float]] = {
    "once": (once, 0.0),
    "repeated": (repeated, 0.0),
    "graded": (graded, 0.0),
    "rarely_graded": (graded, 0.9),
    "sourced": (sourced, 0.0),
}
"""What is scored, and the share of items that every run gets right."""


def row(kind: str, items: int, tables: int) -> dict[str, float]:
    """The shares of one kind of scores at one number of items."""
    rng = np.random.default_rng([items, *kind.encode()])
    drawn, sure = KINDS[kind]
    alone = any_of = held = 0
    truth = SHIFT / 2 * (1 - sure)
    for _ in range(tables):
        chance_I = np.where(rng.random(items) < sure, 1.0, rng.beta(0.6, 0.6, items))
        control = drawn(rng, chance_I)
        p_values = [figures(control, drawn(rng, chance_I)).p_value for _ in range(ARMS)]
        alone += p_values[0] < ALPHA
        any_of += min(holm(p_values)) < ALPHA
        shifted = figures(control, drawn(rng, chance_I + SHIFT * (1 - chance_I)))
        interval = shifted.interval_at(LEVEL)
        held += interval.low <= truth <= interval.high
    counts = {"alone": alone, "Holm": any_of, "held": held}
    return {name: count / tables for name, count in counts.items()}


def main() -> None:
    """Simulate every row that is asked for, and say each."""
    parser = parser_of(__doc__)
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--items", type=int)
    asked = parser.parse_args()
    noise = math.sqrt(ALPHA * (1 - ALPHA) / asked.tables)
    say(f"{asked.tables} tables a row: a share of 5 % has a standard error of {noise:.2%}")
    for kind in [asked.only] if asked.only else KINDS:
        for items in [asked.items] if asked.items else ITEMS:
            found = row(kind, items, asked.tables)
            say(f"{kind} {items}: " + ", ".join(f"{n} {v:.1%}" for n, v in found.items()))
            name = f"{kind}-{items}-{asked.tables}"
            save_result(SUBJECT, name, {"machine": machine(), "tables": asked.tables, **found})


if __name__ == "__main__":
    main()
