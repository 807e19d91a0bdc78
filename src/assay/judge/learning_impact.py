"""Scores prompts by how closely their learning curve follows the mean curve (LIM, of LIMR).

Source: arXiv 2502.11886, and `lim_selection.py` of GAIR-NLP/LIMR. A curve is the share of right
answers to a prompt in each epoch. Which answers are right, and which score is enough, is known to
the caller.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.errors import InputError

Curve = tuple[float, ...]
"""Share of right answers by epoch, each from 0 to 1."""
Gapped = Sequence[float | None]
"""The same; None for an epoch in which the prompt was not measured."""


@dataclass(frozen=True, slots=True)
class LearningImpact:
    """The scores of prompts, and the curve that theirs were compared with."""

    scores: Mapping[str, float]
    """By prompt, at most 1: 1 for the mean curve itself, 0 for right answers only."""
    mean: Curve
    incomplete: tuple[str, ...]
    """Prompts without a score: an epoch is missing after gaps were filled."""


def fill_gaps(curve: Gapped) -> tuple[float | None, ...]:
    """The curve with a missing epoch before a measured one taken from that; one pass, first epoch
    first, so that of two missing in a row only the second is filled."""
    following = [*curve[1:], None]
    return tuple(after if one is None else one for one, after in zip(curve, following, strict=True))


def learning_impact(curves: Mapping[str, Gapped]) -> LearningImpact:
    """s_i = 1 - sum_k (r_i^k - rbar^k)^2 / sum_k (1 - rbar^k)^2, with rbar^k the mean over prompts.

    Curves are of one length. Prompts that lack an epoch after `fill_gaps` count nowhere.
    Raises InputError where no prompt has all epochs, and where every answer of every epoch is right
    (0/0).
    """
    filled = {prompt: fill_gaps(curve) for prompt, curve in curves.items()}
    whole = {
        prompt: found
        for prompt, curve in filled.items()
        if len(found := tuple(r for r in curve if r is not None)) == len(curve)
    }
    if not whole:
        fix = "make the epochs longer, or train for more of them"
        raise InputError("no prompt was measured in every epoch", fix=fix)
    mean = tuple(sum(shares) / len(whole) for shares in zip(*whole.values(), strict=True))
    scale = sum((1 - share) ** 2 for share in mean)
    if not scale:
        raise InputError("every answer of every epoch is right", fix="take harder prompts")
    scores = {
        prompt: 1 - sum((r - rbar) ** 2 for r, rbar in zip(curve, mean, strict=True)) / scale
        for prompt, curve in whole.items()
    }
    return LearningImpact(scores, mean, tuple(p for p in curves if p not in whole))
