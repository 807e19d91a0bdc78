"""mean@n, pass@k and maj@k of answers that were sampled several times, each with its interval.

All three are means over items of one value per item, so that items and clusters are what varies:
the interval is that of `intervals.score_interval` (Wilson's, robust to clusters), over seeds that
of `arms.arm_interval`. Answers are not extracted and two runs are not compared here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import comb

import numpy as np

from assay.judge.arms import arm_interval
from assay.judge.intervals import Interval, score_interval
from assay.judge.paired import score_range, with_missing_at
from assay.judge.scores import Array, ItemScores

Answers = Sequence[Sequence[str]]
"""I x R final answers in a canonical form; "" where a completion has none."""
Groups = tuple[tuple[int, float], ...]
"""The answers to one item that differ: how many completions gave each, and its score."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """The sampled answers of one run."""

    scores: ItemScores
    answers: Answers | None = None
    """None where the record does not name final answers."""


@dataclass(frozen=True, slots=True)
class AtK:
    """A mean over items at k completions of each."""

    k: int
    value: float
    interval: Interval
    items: int
    """Items that have a value; one with fewer than k scored completions has none."""
    possible: tuple[float, float]
    """The lowest and the highest value that unscored completions leave possible."""


@dataclass(frozen=True, slots=True)
class SampledScores:
    """What n sampled completions of each item say; k is 1, 2, 4, ... and n."""

    mean: AtK
    """The mean score, k = n."""
    passes: tuple[AtK, ...]
    """Whether one of k completions is right; empty where scores are not 0 or 1."""
    majority: tuple[AtK, ...]
    """Whether the most frequent final answer of k completions is right; empty where the record
    does not name final answers."""
    binary: bool
    """Whether every score is 0 or 1."""
    named: bool
    """Whether the record names final answers."""


def sampled_scores(runs: Sequence[Sampled]) -> SampledScores:
    """The figures of one run, or of several seeds of one arm on the same items.

    Raises InputError and ItemsDifferError of seeds that do not fit together.
    """
    scores = [run.scores for run in runs]
    counts = counts_up_to(min(each.repeats for each in scores))
    binary = all(each.binary for each in scores)
    named = all(run.answers is not None for run in runs)
    return SampledScores(
        _figure(scores, counts[-1], [score_range(each) for each in scores]),
        _each(runs, counts, _passes, _pass_limits) if binary else (),
        _each(runs, counts, _majorities, _majority_limits) if binary and named else (),
        binary,
        named,
    )


def counts_up_to(n: int) -> list[int]:
    """The powers of two up to n, and n itself."""
    powers = [1 << power for power in range(n.bit_length())]
    return sorted({*powers, n})


def pass_at_k(n: int, right: int, k: int) -> float:
    """The chance that k of n completions, drawn without putting back, hold a right one.

    1 - C(n - right, k) / C(n, k): unbiased for the chance that k fresh ones do (Chen et al. 2021,
    arXiv:2107.03374, section 2.1).
    """
    return 1.0 - comb(n - right, k) / comb(n, k)


def majority_at_k(groups: Groups, silent: int) -> Array:
    """The expected score of the most frequent answer of k completions, by k from 1 to n.

    Exact over all subsets of k of the n completions, `silent` of which have no answer and vote for
    nothing. Answers with equally many votes are drawn from with equal chances; a subset without a
    vote scores 0. Returns an array of n.
    """
    found = _winning(tuple(sorted(groups)), silent)
    return found.copy()


@lru_cache(maxsize=100_000)
def _winning(groups: Groups, silent: int) -> Array:
    """The sum over answers of score times chance to win, by k.

    Of the subsets of k in which an answer has t votes and no other has more, those in which j
    others have t as well count 1 / (j + 1) = the integral of y^j over y from 0 to 1. So each other
    answer is a polynomial in x (votes) and y (a tie), and the integral a Gauss-Legendre sum, which
    is exact for the degrees that occur.
    """
    n = sum(count for count, _ in groups) + silent
    totals = np.zeros(n + 1)
    for place, (count, score) in enumerate(groups):
        others = [other for at, (other, _) in enumerate(groups) if at != place]
        for votes in range(1, count + 1 if score else 1):
            ways = _ways(others, silent, votes, n - votes)
            totals[votes:] += score * comb(count, votes) * ways
    subsets = np.array([float(comb(n, k)) for k in range(n + 1)])
    return (totals / subsets)[1:]


def _ways(others: Sequence[int], silent: int, votes: int, most: int) -> Array:
    """The subsets of 0 to `most` further completions that give no other answer more than `votes`
    votes, each divided by one more than the number of answers that tie."""
    rivals = [other for other in others if other >= votes]
    free = silent + sum(other for other in others if other < votes)
    degree = min(len(rivals), most // votes)
    nodes, weights = np.polynomial.legendre.leggauss(degree // 2 + 1)
    ties_Y, weights_Y = (nodes + 1) / 2, weights / 2
    ways_YX = np.tile([float(comb(free, size)) for size in range(most + 1)], (len(ties_Y), 1))
    for rival in rivals:
        grown = ways_YX.copy()
        for given in range(1, min(votes, most) + 1):
            factor = float(comb(rival, given)) * (ties_Y if given == votes else 1.0)
            shifted = ways_YX[:, : most + 1 - given]
            grown[:, given:] += np.reshape(factor, (-1, 1)) * shifted
        ways_YX = grown
    return weights_Y @ ways_YX


def grouped_answers(scores: Sequence[float], answers: Sequence[str]) -> tuple[Groups, int]:
    """The scored completions of one item by their answer, and how many have none.

    An answer's score is the mean of those of its completions: a checker may rule on the same
    answer in two ways where it also looks at the rest of the text.
    """
    found: dict[str, list[float]] = {}
    silent = 0
    for score, answer in zip(scores, answers, strict=True):
        if np.isnan(score):
            continue
        if answer:
            found.setdefault(answer, []).append(score)
        else:
            silent += 1
    return tuple((len(each), sum(each) / len(each)) for each in found.values()), silent


def _passes(run: Sampled, counts: Sequence[int]) -> dict[int, ItemScores]:
    """pass@k of every item, by k; NaN where an item has fewer than k scored completions."""
    scored_I = (~np.isnan(run.scores.scores)).sum(1).tolist()
    right_I = np.nansum(run.scores.scores, 1).astype(int).tolist()
    items = list(zip(scored_I, right_I, strict=True))
    return {
        k: _as_items(run, [pass_at_k(n, right, k) if n >= k else np.nan for n, right in items])
        for k in counts
        if max(scored_I) >= k
    }


def _pass_limits(run: Sampled, value: ItemScores, k: int) -> tuple[float, float]:
    """pass@k with a wrong and with a right answer for every unscored completion."""
    if not run.scores.missing:
        return value.mean, value.mean
    ends = [replace(run, scores=with_missing_at(run.scores, end)) for end in (0.0, 1.0)]
    low, high = (_passes(each, [k])[k].mean for each in ends)
    return low, high


def _majorities(run: Sampled, counts: Sequence[int]) -> dict[int, ItemScores]:
    """maj@k of every item, by k; NaN where an item has fewer than k scored completions."""
    assert run.answers is not None
    curves = [
        majority_at_k(*grouped_answers(scores, answers))
        for scores, answers in zip(run.scores.scores, run.answers, strict=True)
    ]
    return {
        k: _as_items(run, [curve[k - 1] if len(curve) >= k else np.nan for curve in curves])
        for k in counts
        if max(map(len, curves)) >= k
    }


def _majority_limits(run: Sampled, value: ItemScores, k: int) -> tuple[float, float]:
    """maj@k with a wrong and a right majority for every item that has an unscored completion:
    nobody knows what it votes for."""
    unsure_I = np.isnan(run.scores.scores).any(1)
    values_I = value.item_means
    low, high = (float(np.where(unsure_I, end, values_I).mean()) for end in (0.0, 1.0))
    return low, high


def _as_items(run: Sampled, values: Sequence[float]) -> ItemScores:
    """One value for each item; rounding may leave one a hair outside the scale."""
    return replace(run.scores, scores=np.clip(np.array(values), 0.0, 1.0)[:, None])


def _each(
    runs: Sequence[Sampled],
    counts: Sequence[int],
    by_item: Callable[[Sampled, Sequence[int]], Mapping[int, ItemScores]],
    limits: Callable[[Sampled, ItemScores, int], tuple[float, float]],
) -> tuple[AtK, ...]:
    """One figure for every k for which all runs have an item."""
    values = [by_item(run, counts) for run in runs]
    return tuple(
        _figure(
            [each[k] for each in values],
            k,
            [limits(run, each[k], k) for run, each in zip(runs, values, strict=True)],
        )
        for k in counts
        if all(k in each for each in values)
    )


def _figure(values: Sequence[ItemScores], k: int, ranges: Sequence[tuple[float, float]]) -> AtK:
    """The mean of the items' values over the runs, with its interval."""
    interval = arm_interval(values) if len(values) > 1 else score_interval(values[0])
    low, high = (float(np.mean(ends)) for ends in zip(*ranges, strict=True))
    scored_I = ~np.isnan([each.item_means for each in values]).any(0)
    means = [float(each.item_means[scored_I].mean()) for each in values]
    return AtK(k, float(np.mean(means)), interval, int(scored_I.sum()), (low, high))
