"""Judges whether an engine has, and samples from, the weights that were trained.

A fixed probe, sequences that the engine itself sampled, is scored by trainer and engine after every
hand-over. Rounding makes the two differ at equal weights; and a small update moves the log-probs by
less than that. So changes are compared: d, by which the update moved the trainer's log-probs, and
c, by which the engine's moved. Regressed on d, c has slope 1 where the whole update arrived, and
0 where nothing did; rounding that is the engine's own cancels, and its change is the slope's error.

Weights that are read back tell it at once, bit for bit: some columns of every matrix, whole
vectors. Those are read first in which the update is to be seen, so that a weight that stayed behind
cannot pass for one that did not change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from assay.errors import listed
from assay.models.weight_files import State
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


@dataclass(frozen=True)
class ProbeReading:
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
    now: ProbeReading, numerics: Numerics, bare_S: np.ndarray | None = None
) -> dict[str, float]:
    """Metrics of the first reading, of equal weights. `bare_S` are the trainer's log-probs without
    its adapter, where it has one. Raises NotAsTold.
    """
    if bare_S is not None:
        arrived = slope(now.trainer_S - bare_S, now.engine_S - bare_S)
        if arrived.below(0.5):
            raise failed(f"{share(arrived)} of what the adapter does", now, now, "its adapter")
    if not now.gap <= numerics.first:
        allowed = f"more than the {numerics.first:g} of rounding"
        raise failed(allowed, now, now, "the weights, or another model")
    return {"engine/gap": now.gap, "engine/gap_first": now.gap}


def judge(
    now: ProbeReading, before: ProbeReading, first: ProbeReading, numerics: Numerics
) -> dict[str, float]:
    """Metrics of a reading after an update. Raises NotAsTold."""
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
    trainer_S: np.ndarray,
    engine_S: np.ndarray,
    now: ProbeReading,
    first: ProbeReading,
    numerics: Numerics,
) -> dict[str, float]:
    """Metrics of a step's own completions: log-probs that the engine told as it sampled them,
    against the trainer's. Raises NotAsTold."""
    differences_S = np.abs(engine_S - trainer_S)
    gap, limit = float(differences_S.mean()), GROWTH * max(now.gap, first.gap) + numerics.floor
    limit = max(limit, numerics.first / 2)  # other sequences than the probe's, of another gap
    error = float(differences_S.std(ddof=1)) / len(differences_S) ** 0.5
    if not gap - ERRORS * error <= limit:
        raise NotAsTold(
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


def failed(seen: str, now: ProbeReading, first: ProbeReading, kept: str) -> NotAsTold:
    """The failure that says what was seen."""
    at_first = "" if now is first else f", {first.gap:.3g} at equal weights"
    return NotAsTold(
        f"{FALSE_WEIGHTS}: {seen} arrived, and on {len(now.trainer_S)} probe tokens its "
        f"log-probs differ from the trainer's by {now.gap:.3g} on average{at_first}; it seems to "
        f"keep old: {kept}"
    )


CHANGED, OTHERS = 4, 4
"""Columns of a matrix that are read: with the most changes, and at random."""
WINDOW = 64
"""Neighbouring columns whose values are kept until the next hand-over."""
NAMED = 3
"""Tensors that a failure names."""

Columns = dict[str, list[int]]
"""Of matrices, by the names of files; those of vectors are empty: they are read whole."""


@dataclass(frozen=True)
class HandedOver:
    """What an engine was handed over last, as far as it is kept."""

    number: int = 0
    """Hand-overs before it."""
    windows: dict[str, tuple[int, Tensor]] = field(default_factory=dict)
    """The first column and the values (R, WINDOW) of a part of each matrix; 0 and the whole of each
    vector."""


def chosen_columns(state: State, before: HandedOver) -> Columns:
    """Which columns of each tensor are read after `state` was handed over."""
    columns: Columns = {}
    for name, tensor in state.items():
        columns[name] = []
        if tensor.ndim < 2:
            continue
        wanted = list[int]()
        if name in before.windows:
            first, old_RW = before.windows[name]
            changes_W = (tensor[:, first : first + old_RW.shape[1]] != old_RW).sum(0)
            most = changes_W.topk(min(CHANGED, len(changes_W))).indices
            wanted = [first + int(place) for place in most if changes_W[place]]
        some = torch.randint(tensor.shape[1], (OTHERS,), generator=drawn(name, before.number))
        columns[name] = sorted({*wanted, *some.tolist()})
    return columns


def kept(state: State, before: HandedOver) -> HandedOver:
    """What of `state` is compared with at the next hand-over."""
    windows = {}
    for name, tensor in state.items():
        first = 0
        if tensor.ndim > 1:
            starts = max(1, tensor.shape[1] - WINDOW + 1)
            first = int(torch.randint(starts, (1,), generator=drawn(name, before.number)))
        part = tensor[:, first : first + WINDOW] if tensor.ndim > 1 else tensor
        windows[name] = first, part.cpu().clone()
    return HandedOver(before.number + 1, windows)


def drawn(name: str, number: int) -> torch.Generator:
    """Other columns of every tensor at every hand-over, the same in every run."""
    return torch.Generator().manual_seed(crc32(f"{number} {name}".encode()))


def compare(state: State, before: HandedOver, columns: Columns, weights: State) -> dict[str, float]:
    """Metrics of what was read. Raises NotAsTold with the names of tensors that differ."""
    old, other, moved = list[str](), list[str](), 0
    for name, values in weights.items():
        wanted = picked(state[name], columns[name])
        values = values[: len(wanted)]
        known, last = last_values(before, name, columns[name])
        changed = bool(last.numel()) and not same(last, wanted[..., known])
        moved += changed
        if not same(values, wanted):
            stayed = changed and same(values[..., known], last)
            (old if stayed else other).append(name)
    if old or other:
        told = [
            f"{listed(names, NAMED)} {what}"
            for names, what in ((old, OLD), (other, OTHER))
            if names
        ]
        raise NotAsTold(f"{FALSE_WEIGHTS}: of {len(weights)} tensors {', '.join(told)}")
    seen = {"engine/read_moved": moved / len(state)} if before.number else {}
    return {"engine/read": len(weights) / len(state), **seen}


OLD = "kept their old weights"
OTHER = "hold other weights than those handed over"


def last_values(
    before: HandedOver, name: str, columns: list[int]
) -> tuple[list[int] | slice, Tensor]:
    """Which of these columns were kept at the hand-over before, and their values then."""
    first, old = before.windows.get(name, (0, torch.empty(0)))
    if old.ndim < 2:
        return slice(None), old
    known = [n for n, column in enumerate(columns) if 0 <= column - first < old.shape[1]]
    return known, old[:, [columns[n] - first for n in known]]


def picked(tensor: Tensor, columns: list[int]) -> Tensor:
    """What is read of a tensor, on the CPU."""
    return (tensor[:, columns] if tensor.ndim > 1 else tensor).cpu()


def same(a: Tensor, b: Tensor) -> bool:
    """Whether they are equal; products take what is below the smallest normal number for 0."""
    tiny = torch.finfo(b.dtype).tiny
    return a.shape == b.shape and bool(((a == b) | ((a - b).abs() < tiny)).all())
