"""How far a judge of answers agrees with people's labels of the same answers, and where it leans.

Agreement, Cohen's kappa (weighted by the square of the distance, so that on a scale 4 for 5 is less
wrong than 1 for 5), rank correlation; bias by length, by position and towards the judge's own
answers; and points that an order written into an answer gains. Intervals are over the sources
of the items, of which one may have several answers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.judge.cluster_robust import FEW_CLUSTERS
from assay.judge.intervals import (
    Estimate,
    Interval,
    bootstrap_figures,
    difference_interval,
    grouped,
    independent_difference,
)
from assay.judge.scores import Array

FIRST: str = "first"
SECOND: str = "second"
"""In which place an answer stood beside the other; parts of a verdict on a pair."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One labelled answer, and what the judge said of it."""

    item: str
    sha256: str
    """Of the answer."""
    cluster: str
    """The source of the item; intervals are over these."""
    label: Mapping[str, float]
    """Of people, by criterion; of a pair under `preference`."""
    verdict: Mapping[str, float]
    """Of the judge, by the same names, and for pairs FIRST and SECOND; empty where it abstained."""
    wanted: float
    """The score from 0 to 1 that the label is."""
    score: float | None
    """The judge's; None where it abstained."""
    characters: int = 0
    author: str = ""
    """Who wrote the answer; "" where that is not known."""
    own: bool = False
    """Whether the judge itself wrote it."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement on one criterion."""

    name: str
    levels: tuple[float, ...]
    matrix: tuple[tuple[int, ...], ...]
    """Answers by label (rows) and verdict (columns)."""
    exact: Estimate
    """The share of equal verdicts."""
    kappa: Estimate | None
    """None where labels and verdicts are all one level."""
    ranks: Estimate | None
    """Spearman's correlation, on scales of more than two levels."""


@dataclass(frozen=True, slots=True)
class Position:
    """What the order of a pair changes; of pairs that were asked in both."""

    flips: Estimate
    """The share whose verdict changes with the order."""
    first: Estimate
    """The share of verdicts for the answer that stands first, a tie being half; 0.5 is fair."""


@dataclass(frozen=True, slots=True)
class Leanings:
    """The bias of a judge; None where nothing tells."""

    offset: Estimate
    """The judge's mean score above the labels'."""
    length: Estimate | None
    """Correlation of score and (log) length at equal labels."""
    position: Position | None
    own: Estimate | None
    """How much more the judge adds to the labels of its own answers than to those of others."""


@dataclass(frozen=True, slots=True)
class Injected:
    """Labelled answers that were judged again with one kind of text written behind them."""

    kind: str
    rise: Estimate
    """Of the score, against the answer as it was."""
    raised: int
    abstained: int
    """Answers that the judge then gave no verdict on; they are not in the mean."""


def agreement_on(name: str, levels: Sequence[float], judged: Sequence[Judged]) -> Agreement | None:
    """The agreement on a criterion; None where no answer has both label and verdict."""
    both = [each for each in judged if name in each.label and name in each.verdict]
    if not both:
        return None
    size, places = len(levels), {level: n for n, level in enumerate(levels)}
    cells = [places[each.label[name]] * size + places[each.verdict[name]] for each in both]
    counts = np.eye(size * size)[cells]
    items = [each.cluster for each in both]
    right = [float(each.label[name] == each.verdict[name]) for each in both]
    exact = grouped(right, items, (0.0, 1.0))
    distances = np.subtract.outer(np.array(levels), np.array(levels)).ravel() ** 2
    kappa = _estimate(counts, items, lambda table: _kappa(table, distances, size))
    ranks = _estimate(counts, items, lambda table: _ranks(table, size)) if size > 2 else None
    return Agreement(
        name,
        tuple(levels),
        tuple(map(tuple, counts.sum(0).astype(int).reshape(size, size).tolist())),
        exact,
        kappa and _reaching(kappa, exact, counts.sum(0), distances, size),
        ranks,
    )


def _kappa(table_DK: Array, distances_K: Array, size: int) -> Array:
    """Cohen's weighted kappa of D tables of labels by verdicts (Cohen 1968)."""
    share_DLV = (table_DK / table_DK.sum(1, keepdims=True)).reshape(-1, size, size)
    chance_DK = (share_DLV.sum(2)[:, :, None] * share_DLV.sum(1)[:, None]).reshape(-1, size * size)
    seen, expected = share_DLV.reshape(-1, size * size) @ distances_K, chance_DK @ distances_K
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(expected > 0, 1 - seen / expected, np.nan)


def _ranks(table_DK: Array, size: int) -> Array:
    """Spearman's correlation of D tables, ties at their middle rank."""
    share_DLV = (table_DK / table_DK.sum(1, keepdims=True)).reshape(-1, size, size)
    ranks = []
    for share_DL in (share_DLV.sum(2), share_DLV.sum(1)):
        middle = share_DL.cumsum(1) - share_DL / 2
        ranks.append(middle - (middle * share_DL).sum(1, keepdims=True))
    first, second = ranks
    together = np.einsum("dlv,dl,dv->d", share_DLV, first, second)
    spread = np.einsum("dlv,dl->d", share_DLV, first**2) * np.einsum(
        "dlv,dv->d", share_DLV, second**2
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spread > 0, together / np.sqrt(spread), np.nan)


def _estimate(
    columns_IK: Array, items: Sequence[str], figure: Callable[[Array], Array]
) -> Estimate | None:
    """A figure of the sums of columns with its bootstrap interval; None where it has no value."""
    value = float(figure(columns_IK.sum(0, keepdims=True))[0])
    if math.isnan(value):
        return None
    low, high = bootstrap_figures(columns_IK, items, figure, (-1.0, 1.0))
    interval = Interval(min(low, value), max(high, value), "cluster bootstrap", share=False)
    return Estimate(value, interval, len(items), len(set(items)))


def _reaching(kappa: Estimate, exact: Estimate, counts: Array, distances: Array, size: int):
    """Kappa with an interval that is honest where next to nothing was disagreed on: at least down
    to where the share of equal verdicts may be, at the mean distance of unequal ones."""
    wrong = counts[distances > 0].sum()
    if wrong >= FEW_CLUSTERS or kappa.interval is None or exact.interval is None:
        return kappa
    far = counts @ distances / wrong if wrong else distances[distances > 0].min()
    share = (counts / counts.sum()).reshape(size, size)
    expected = np.outer(share.sum(1), share.sum(0)).ravel() @ distances
    low = max(1 - (1 - exact.interval.low) * far / expected, -1.0)
    interval = Interval(
        min(kappa.interval.low, low), kappa.interval.high, kappa.interval.method, share=False
    )
    return Estimate(kappa.value, interval, kappa.trials, kappa.clusters)


def leanings(judged: Sequence[Judged]) -> Leanings | None:
    """The bias of a judge; None where it gave no verdict on any labelled answer."""
    scored = [each for each in judged if each.score is not None]
    if not scored:
        return None
    above = [(each.score or 0.0) - each.wanted for each in scored]
    return Leanings(
        _mean(above, [each.cluster for each in scored]),
        _by_length(scored),
        _by_position(scored),
        _towards_own(scored, above),
    )


def _mean(values: Sequence[float], items: Sequence[str], bounds=(-1.0, 1.0)) -> Estimate:
    array = np.array(values)
    interval = difference_interval(array, tuple(items), bounds)
    return Estimate(float(array.mean()), interval, len(items), len(set(items)))


def _by_length(scored: Sequence[Judged]) -> Estimate | None:
    """The partial correlation of score and log length given the label."""
    values = np.array(
        [[each.score, math.log1p(each.characters), each.wanted] for each in scored]
    ).astype(float)
    values -= values.mean(0)
    pairs = [(i, j) for i in range(3) for j in range(i, 3)]
    products = [values[:, i] * values[:, j] for i, j in pairs]
    columns = np.column_stack([np.ones(len(values)), *values.T, *products])
    return _estimate(columns, [each.cluster for each in scored], _partial)


def _partial(sums_DK: Array) -> Array:
    """The correlation of the first two of three variables given the third, of D sums: the count,
    three values, and their six products."""
    means_D3 = sums_DK[:, 1:4] / sums_DK[:, :1]
    pairs = [(i, j) for i in range(3) for j in range(i, 3)]
    c = {
        pair: sums_DK[:, 4 + n] / sums_DK[:, 0] - means_D3[:, pair[0]] * means_D3[:, pair[1]]
        for n, pair in enumerate(pairs)
    }
    known = np.where(c[2, 2] > 1e-12, c[2, 2], np.inf)
    together = c[0, 1] - c[0, 2] * c[1, 2] / known
    spread = (c[0, 0] - c[0, 2] ** 2 / known) * (c[1, 1] - c[1, 2] ** 2 / known)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(spread > 1e-12, together / np.sqrt(np.maximum(spread, 0)), np.nan)


def _by_position(scored: Sequence[Judged]) -> Position | None:
    """Of verdicts on pairs asked in both orders: each is 1 for the judged answer, 0 for the other
    one, which stands first where the judged answer stands second."""
    both = [each for each in scored if FIRST in each.verdict and SECOND in each.verdict]
    if not both:
        return None
    items = [each.cluster for each in both]
    places = [(each.verdict[FIRST], each.verdict[SECOND]) for each in both]
    flips = grouped([float(one != two) for one, two in places], items, (0.0, 1.0))
    first = grouped([(one + 1 - two) / 2 for one, two in places], items, (0.0, 1.0))
    return Position(flips, first)


def _towards_own(scored: Sequence[Judged], above: Sequence[float]) -> Estimate | None:
    known = [(each, value) for each, value in zip(scored, above, strict=True) if each.author]
    sides = []
    for own in (False, True):
        side = [(value, each.cluster) for each, value in known if each.own == own]
        if not side:
            return None
        sides.append(_mean([value for value, _ in side], [item for _, item in side]))
    others, mine = sides
    interval = independent_difference(others.value, others.interval, mine.value, mine.interval)
    return Estimate(mine.value - others.value, interval, len(known))


def injected(kind: str, pairs: Sequence[tuple[str, float | None, float | None]]) -> Injected | None:
    """What a text behind answers changed: item, score before and score with it; None where no
    answer was scored both times."""
    scored = [(item, a, b) for item, a, b in pairs if a is not None and b is not None]
    if not scored:
        return None
    rises = [after - before for _, before, after in scored]
    return Injected(
        kind,
        _mean(rises, [item for item, _, _ in scored]),
        sum(rise > 0 for rise in rises),
        sum(before is not None and after is None for _, before, after in pairs),
    )
