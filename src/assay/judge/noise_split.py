"""Splits the noise of a difference into sampling and items: what a further repeat or item buys.

Of runs that answered every item more than once. Whole designs are planned in `sample_size`.
"""

from collections.abc import Sequence

from assay.judge.sample_size import Design, Variances, variance_of, variances_of
from assay.judge.scores import ItemScores, on_shared_items
from assay.judge.verdict import Noise


def noise_of(control: Sequence[ItemScores], other: Sequence[ItemScores]) -> Noise | None:
    """The noise of the mean difference of S >= 1 seeds of each arm; None where one of the runs has
    a single pass, or nothing varied.

    Raises what `judge.paired.compare` raises.
    """
    shared = on_shared_items(*control, *other)
    control, other = shared[: len(control)], shared[len(control) :]
    repeats = min(run.repeats for run in shared)
    found = variances_of(control, other) if repeats > 1 else None
    if found is None or found.sampling is None:
        return None
    items, seeds = len(shared[0].item_ids), min(len(control), len(other))
    now = Design(items, repeats, seeds)
    error = _error(found, now)
    if error == 0:
        return None
    sampling = found.sampling / (items * repeats * seeds)
    further = items * (repeats + 1) / repeats
    without = Variances(found.items, 0.0, found.luck, found.seeds)
    return Noise(
        sampling_share=sampling / error**2,
        now=error,
        further_repeat=_error(found, Design(items, repeats + 1, seeds)),
        further_items=variance_of(found, now, further) ** 0.5,
        all_repeats=_error(without, now),
    )


def _error(found: Variances, design: Design) -> float:
    return variance_of(found, design) ** 0.5
