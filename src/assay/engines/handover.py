"""Judges whether an engine samples from the weights that were trained.

A fixed probe, sequences that the engine itself sampled, is scored by trainer and engine after every
hand-over. Rounding makes the two differ at equal weights; and a small update moves the log-probs by
less than that. So changes are compared: d, by which the update moved the trainer's log-probs, and
c, by which the engine's moved. Regressed on d, c has slope 1 where the whole update arrived, and
0 where nothing did; rounding that is the engine's own cancels, and its change is the slope's error.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from assay.rl.sampling_proof import NotAsTold

ERRORS = 4.0
"""Standard errors that a slope must lie below 1, beyond the margin, to be a failure."""
KNOWN = 0.2
"""Standard error above which a slope says nothing: the update moved less than rounding did."""
CACHED = 0.85
"""Share that must arrive by way of the cache, of the trainer's change and of the engine's own."""
GROWTH = 2.0
"""Times that the gap at equal weights may grow over a stage."""


@dataclass(frozen=True, slots=True)
class Numerics:
    """What is allowed between a trainer that scores in fp32 and an engine of some precision."""

    first: float
    """The largest mean gap at equal weights."""
    floor: float
    """Gap that is always allowed on top."""
    margin: float
    """What a slope may lack for reasons of rounding."""


FULL = Numerics(first=1e-3, floor=1e-4, margin=0.01)
"""fp32; sequences of SmolLM2 differ by about 1e-5."""
ROUGH = Numerics(first=0.2, floor=0.02, margin=0.1)
"""bf16; they differ by about 0.05 on average."""


KEPT = "all weights, or the adapter"
FALSE_WEIGHTS = "the engine does not sample from the weights that are trained"
STALE_CACHE = "the engine's prefix cache holds keys and values of earlier weights"


class HandOverFailed(NotAsTold):
    """The engine does not sample from the weights that were trained, or not as it is asked to."""


@dataclass(frozen=True)
class Reading:
    """Log-probs of the probe after a hand-over."""

    trainer_S: np.ndarray
    engine_S: np.ndarray
    cached_K: np.ndarray
    """The engine's where it reads what comes before from its prefix cache."""
    places_K: np.ndarray
    """Which of the probe's actions (S) they belong to."""

    @property
    def gap(self) -> float:
        """Mean absolute difference of trainer and engine."""
        return float(np.abs(self.engine_S - self.trainer_S).mean())


@dataclass(frozen=True, slots=True)
class Slope:
    """How much of a change arrived: 1 for all, 0 for nothing."""

    value: float
    error: float
    """One standard error; infinite where nothing changed."""

    @property
    def known(self) -> bool:
        """Whether the change is large enough to tell 0 from 1."""
        return self.error <= KNOWN

    def below(self, whole: float, errors: float = ERRORS) -> bool:
        """Whether surely less arrived than this share."""
        return self.known and self.value + errors * self.error < whole


def slope(trainer: np.ndarray, engine: np.ndarray) -> Slope:
    """The engine's changes regressed on the trainer's, its error by the jackknife."""
    total = float(trainer @ trainer)
    if not total:
        return Slope(1.0, float("inf"))
    products, squares = engine * trainer, trainer**2
    value = float(products.sum()) / total
    # Each token left out once: a single one that changed a lot is no certainty.
    others = total - squares
    if not (others > 0).all():
        return Slope(value, float("inf"))
    without = (products.sum() - products) / others
    return Slope(value, float(np.sqrt(((without - value) ** 2).sum())))


def judge_first(
    now: Reading, numerics: Numerics, bare_S: np.ndarray | None = None
) -> dict[str, float]:
    """Metrics of the first reading, of equal weights. `bare_S` are the trainer's log-probs without
    its adapter, where it has one. Raises HandOverFailed.
    """
    if bare_S is not None:
        arrived = slope(now.trainer_S - bare_S, now.engine_S - bare_S)
        if arrived.below(0.5):
            raise failed(f"{share(arrived)} of what the adapter does", now, now, "its adapter")
    if not now.gap <= numerics.first:
        allowed = f"more than the {numerics.first:g} of rounding"
        raise failed(allowed, now, now, "the weights, or another model")
    return {"engine/gap": now.gap, "engine/gap_first": now.gap}


def judge(now: Reading, before: Reading, first: Reading, numerics: Numerics) -> dict[str, float]:
    """Metrics of a reading after an update. Raises HandOverFailed."""
    changed_S = now.trainer_S - before.trainer_S
    moved_S = now.engine_S - before.engine_S
    arrived = slope(changed_S, moved_S)
    told = share(arrived)
    if changed_S.any() and not moved_S.any():
        raise failed("nothing, to the last bit, of the last update", now, first, KEPT)
    since = slope(now.trainer_S - first.trainer_S, now.engine_S - first.engine_S)
    cached = slope(changed_S[now.places_K], now.cached_K - before.cached_K)
    beside = slope(moved_S[now.places_K], now.cached_K - before.cached_K)
    if arrived.below(1 - numerics.margin):
        what = KEPT if arrived.value < 0.1 else "a part of the weights"
        raise failed(f"{told} of the last update", now, first, what)
    if since.below(1 - numerics.margin):
        raise failed(f"{share(since)} of all updates", now, first, "a part of the weights")
    if beside.below(CACHED) and cached.below(CACHED, errors=ERRORS / 2):  # the two must agree
        what = "keys and values in its prefix cache"
        raise failed(f"{share(cached)} of the last update by way of its cache", now, first, what)
    limit = GROWTH * first.gap + numerics.floor
    if not now.gap <= limit:
        raise failed(f"{told} of the last update", now, first, "a part of the weights")
    return {
        "engine/gap": now.gap,
        "engine/gap_first": first.gap,
        "engine/change": float(np.abs(changed_S).mean()),
        "engine/moved": float(np.abs(moved_S).mean()),
        **named("engine/proof", arrived),
        **named("engine/proof_cache", cached),
        **named("engine/proof_stage", since),
    }


def judge_sampled(
    trainer_S: np.ndarray, engine_S: np.ndarray, now: Reading, first: Reading, numerics: Numerics
) -> dict[str, float]:
    """Metrics of a step's own completions: log-probs that the engine told as it sampled them,
    against the trainer's. Raises HandOverFailed."""
    differences_S = np.abs(engine_S - trainer_S)
    gap, limit = float(differences_S.mean()), GROWTH * max(now.gap, first.gap) + numerics.floor
    limit = max(limit, numerics.first / 2)  # other sequences than the probe's, of another gap
    error = float(differences_S.std(ddof=1)) / len(differences_S) ** 0.5
    if not gap - ERRORS * error <= limit:
        raise HandOverFailed(
            f"{FALSE_WEIGHTS}: {len(engine_S)} sampled tokens have log-probs that differ from the "
            f"trainer's by {gap:.3g} ± {error:.2g} on average, {now.gap:.3g} on the probe"
        )
    return {"engine/gap_sampled": gap}


def named(name: str, arrived: Slope) -> Mapping[str, float]:
    """The metrics of a slope; nothing where nothing changed."""
    if not np.isfinite(arrived.error):
        return {}
    return {name: arrived.value, f"{name}_error": arrived.error}


def share(arrived: Slope) -> str:
    """A slope in words."""
    return f"{arrived.value:.3f} ± {arrived.error:.3f}"


def failed(seen: str, now: Reading, first: Reading, kept: str) -> HandOverFailed:
    """The failure that says what was seen."""
    at_first = "" if now is first else f", {first.gap:.3g} at equal weights"
    return HandOverFailed(
        f"{FALSE_WEIGHTS}: {seen} arrived, and on {len(now.trainer_S)} probe tokens its "
        f"log-probs differ from the trainer's by {now.gap:.3g} on average{at_first}; it seems to "
        f"keep old: {kept}"
    )
