"""Chooses the best of many by the harmonic mean of ratios over several dev benchmarks.

Items are resampled within each benchmark, the same ones for all candidates: how far candidates lie
behind the best, and how much too good the best of equally good ones looks, follow from the same
draws. Answers without a score count as failures. `selection` does the same for one benchmark.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special

from assay.judge.averages import compare_harmonic, harmonic_score
from assay.judge.families import holm
from assay.judge.intervals import DRAWS, LEVEL, SEED, Interval
from assay.judge.paired import check_same_items, with_missing_at
from assay.judge.scores import Array, ItemScores, cluster_totals, on_one_scale
from assay.judge.selection import Choice, Standing, corrected_for_looks, expected_maximum
from assay.judge.verdict import ALPHA

Parts = Sequence[ItemScores]
"""The scores of one candidate on each benchmark."""
CHUNK = 500
"""Draws made at once."""
METHOD = "normal limits from 10 000 paired resamplings of items within benchmarks"


def choose_harmonic(
    cells: Mapping[str, Parts],
    baselines: Mapping[str, Parts | None],
    looks: int,
    ratios_to: Sequence[float],
) -> Choice:
    """Compare the best of `cells` on dev with its baseline; None: it has none or is one itself.

    `looks` counts every checkpoint that was looked at. Raises ItemsDifferError when the cells were
    not scored on the same items.
    """
    names = list(cells)
    filled = [_failures(parts) for parts in cells.values()]
    scores_K = np.array([harmonic_score(parts, ratios_to) for parts in filled])
    best = int(scores_K.argmax())
    drawn_BK = resampled(filled, ratios_to)
    standings = _standings(names, scores_K, drawn_BK, best)
    optimism = optimism_of(drawn_BK, looks)
    baseline = baselines.get(names[best])
    if baseline is None:
        return Choice(names[best], False, None, looks, optimism, standings)
    compared = compare_harmonic(baseline, cells[names[best]], ratios_to)
    found = corrected_for_looks(compared, looks)
    return Choice(names[best], found.verdict == "better", found, looks, optimism, standings)


def _failures(parts: Parts) -> list[ItemScores]:
    return [with_missing_at(part, part.bounds[0]) for part in parts]


def resampled(candidates: Sequence[Parts], ratios_to: Sequence[float]) -> Array:
    """Harmonic scores of K candidates in B resamplings of the items (or their clusters): B x K.

    Raises ItemsDifferError.
    """
    inverse_BK = np.zeros((DRAWS, len(candidates)))
    for index, baseline in enumerate(ratios_to):
        parts = on_one_scale(*(parts[index] for parts in candidates))
        with np.errstate(divide="ignore"):
            inverse_BK += baseline / _means(parts, np.random.default_rng([SEED, index]))
    return len(ratios_to) / inverse_BK


def _means(parts: Sequence[ItemScores], generator: np.random.Generator) -> Array:
    """Means of K sets of scores over the same resampled items: B x K."""
    for part in parts[1:]:
        check_same_items(parts[0], part)
    order = [np.argsort(np.array(part.item_ids)) for part in parts]
    means_IK = np.stack([p.item_means[o] for p, o in zip(parts, order, strict=True)], 1)
    first = parts[0].clusters
    clusters = None if first is None else tuple(first[i] for i in order[0])
    totals_CK, sizes_C = cluster_totals(means_IK, clusters)
    count = len(sizes_C)
    found = []
    for _ in range(0, DRAWS, CHUNK):
        drawn = generator.integers(0, count, (CHUNK, count)) + count * np.arange(CHUNK)[:, None]
        times_BC = np.bincount(drawn.ravel(), minlength=CHUNK * count).reshape(CHUNK, count)
        found.append((times_BC @ totals_CK) / (times_BC @ sizes_C)[:, None])
    return np.concatenate(found)


def _standings(
    names: Sequence[str], scores_K: Array, drawn_BK: Array, best: int
) -> dict[str, Standing]:
    """The others against the best: normal tests with the standard errors of the resampled
    differences, Holm over all of them.

    Where few items differ, and all in one direction, percentiles would reject too often.
    """
    others = [k for k in range(len(names)) if k != best]
    change_BK = drawn_BK - drawn_BK[:, [best]]
    behind_K, errors_K = scores_K[best] - scores_K, change_BK.std(0)
    z_K = np.divide(behind_K, errors_K, out=np.zeros_like(behind_K), where=errors_K > 0)
    adjusted = holm([2 * float(special.ndtr(-z_K[k])) for k in others])
    reach_K = special.ndtri((1 + LEVEL) / 2) * errors_K
    found = {}
    for k, p in zip(others, adjusted, strict=True):
        ends = -behind_K[k] - reach_K[k], -behind_K[k] + reach_K[k]
        interval = Interval(float(ends[0]), float(ends[1]), METHOD, LEVEL, share=False)
        found[names[k]] = Standing(-float(behind_K[k]), interval, p, p < ALPHA)
    return found


def optimism_of(drawn_BK: Array, looks: int) -> float:
    """How much better the best of K equally good candidates looks than it is.

    The mean over resamplings of the largest deviation of any candidate from its own average: its
    noise as it is, with what items do to all candidates alike, and no difference between them.
    Where checkpoints were chosen among before, `looks` above K scale it as for normal deviations.
    """
    noise_BK = drawn_BK - drawn_BK.mean(0)
    count = noise_BK.shape[1]
    if count == 1:
        return float(noise_BK.std() * expected_maximum(looks))
    more = expected_maximum(looks) / expected_maximum(count) if looks > count else 1.0
    return float(noise_BK.max(1).mean() * more)
