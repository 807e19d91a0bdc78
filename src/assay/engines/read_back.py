"""Compares weights that are read back from an engine, bit for bit, with those handed over.

Log-probs tell a small update from rounding only after several steps. Columns of weights tell it at
once: some of every matrix, whole vectors. Those are read first in which the update is to be seen,
so that a weight that stayed behind cannot pass for one that did not change.
"""

from dataclasses import dataclass, field
from zlib import crc32

import torch
from torch import Tensor

from assay.engines.handover import FALSE_WEIGHTS, HandOverFailed
from assay.models.handed_over import State

CHANGED, OTHERS = 4, 4
"""Columns of a matrix that are read: with the most changes, and at random."""
WINDOW = 64
"""Neighbouring columns whose values are kept until the next hand-over."""
NAMED = 3
"""Tensors that a failure names."""

Columns = dict[str, list[int]]
"""Of matrices, by the names of files; those of vectors are empty: they are read whole."""


@dataclass(frozen=True)
class Held:
    """What an engine was handed over last, as far as it is kept."""

    number: int = 0
    """Hand-overs before it."""
    windows: dict[str, tuple[int, Tensor]] = field(default_factory=dict)
    """The first column and the values (R, WINDOW) of a part of each matrix; 0 and the whole of each
    vector."""


def chosen_columns(state: State, before: Held) -> Columns:
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


def kept(state: State, before: Held) -> Held:
    """What of `state` is compared with at the next hand-over."""
    windows = {}
    for name, tensor in state.items():
        first = 0
        if tensor.ndim > 1:
            starts = max(1, tensor.shape[1] - WINDOW + 1)
            first = int(torch.randint(starts, (1,), generator=drawn(name, before.number)))
        part = tensor[:, first : first + WINDOW] if tensor.ndim > 1 else tensor
        windows[name] = first, part.cpu().clone()
    return Held(before.number + 1, windows)


def drawn(name: str, number: int) -> torch.Generator:
    """Other columns of every tensor at every hand-over, the same in every run."""
    return torch.Generator().manual_seed(crc32(f"{number} {name}".encode()))


def compare(state: State, before: Held, columns: Columns, found: State) -> dict[str, float]:
    """Metrics of what was read. Raises HandOverFailed with the names of tensors that differ."""
    old, other, moved = list[str](), list[str](), 0
    for name, values in found.items():
        wanted = picked(state[name], columns[name])
        values = values[: len(wanted)]
        known, last = last_values(before, name, columns[name])
        changed = bool(last.numel()) and not same(last, wanted[..., known])
        moved += changed
        if not same(values, wanted):
            stayed = changed and same(values[..., known], last)
            (old if stayed else other).append(name)
    if old or other:
        told = [f"{listed(names)} {what}" for names, what in ((old, OLD), (other, OTHER)) if names]
        raise HandOverFailed(f"{FALSE_WEIGHTS}: of {len(found)} tensors {', '.join(told)}")
    seen = {"engine/read_moved": moved / len(state)} if before.number else {}
    return {"engine/read": len(found) / len(state), **seen}


OLD = "kept their old weights"
OTHER = "hold other weights than those handed over"


def last_values(before: Held, name: str, columns: list[int]) -> tuple[list[int] | slice, Tensor]:
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


def listed(names: list[str]) -> str:
    """The first names, and how many follow."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
