"""Simulated runs for the tests of the judge."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from assay.judge.families import adjust_family
from assay.judge.paired import compare
from assay.judge.scores import Array, ItemScores
from assay.judge.verdict import Comparison

PAIRS = 2000


def item_ids(count: int) -> tuple[str, ...]:
    """Names for `count` items."""
    return tuple(f"item-{i:04d}" for i in range(count))


def single_pass(successes: Sequence[float] | Array) -> ItemScores:
    """Items scored once."""
    scores = np.asarray(successes, float)
    return ItemScores(item_ids(len(scores)), scores[:, None])


def discordant_pairs(
    rng: np.random.Generator, items: int, discordance: float, difference: float
) -> tuple[Array, Array]:
    """Counts gained and lost of PAIRS simulated pairs of runs on independent 0/1 items."""
    gaining, losing = (discordance + difference) / 2, (discordance - difference) / 2
    counts = rng.multinomial(items, [gaining, losing, 1 - discordance], size=PAIRS)
    return counts[:, 0].astype(float), counts[:, 1].astype(float)


def judge_family(control: ItemScores, others: Mapping[str, ItemScores]) -> dict[str, Comparison]:
    """Every other run against `control`, by name."""
    return adjust_family({name: compare(control, each) for name, each in others.items()})


@contextmanager
def without_plans() -> Iterator[None]:
    """Comparisons of single passes without the least detectable difference and the items needed.

    No verdict reads them (a test holds that), and they are nine tenths of a comparison's time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("assay.judge.paired.minimum_detectable_difference", lambda *_, **__: None)
        patch.setattr("assay.judge.paired.items_needed", lambda *_, **__: None)
        yield
