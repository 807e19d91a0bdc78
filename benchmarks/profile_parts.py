"""Where the time of a call goes, by part: products, attention, vocabulary, copies and so on.

Read off torch.profiler's own time of each operator; what lies between the operators is Python and
the interpreter's work. An operator over a tensor with an axis of the vocabulary's size counts as
vocabulary, whatever it does. Shares are of wall time, so they mean something on a quiet machine.
"""

import time
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile

REST = "Python and other"
PARTS: dict[str, tuple[str, ...]] = {
    "optimizer": ("adamw", "_foreach", "vector_norm", "optimizer"),
    "attention": ("scaled_dot_product", "bmm", "_softmax", "flash", "attention"),
    "products": ("aten::mm", "addmm", "mkldnn", "linear", "matmul", "aten::dot"),
    "copies": (
        *("copy_", "cat", "clone", "index", "gather", "scatter", "fill_", "zero_", "stack"),
        *("empty", "repeat", "contiguous", "embedding", "arange", "resize", "slice", "select"),
        *("view", "reshape", "transpose", "expand", "split", "narrow", "as_strided", "aten::t"),
    ),
}
"""Pieces of operator names, tried in this order; the remaining aten operators are elementwise."""
ELEMENTWISE = "norms and elementwise"
VOCABULARY = "vocabulary"


def profile_shares(action: Callable[[], object], vocabulary: int) -> dict[str, float]:
    """Share of each part in the wall time of one call, largest first."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        start = time.perf_counter()
        action()
        whole = time.perf_counter() - start
    seconds: dict[str, float] = {}
    for event in profiler.key_averages(group_by_input_shape=True):
        part = part_of(event.key, event.input_shapes, vocabulary)
        seconds[part] = seconds.get(part, 0.0) + event.self_cpu_time_total * 1e-6
    seconds[REST] = seconds.get(REST, 0.0) + max(whole - sum(seconds.values()), 0.0)
    return {
        part: taken / whole for part, taken in sorted(seconds.items(), key=lambda entry: -entry[1])
    }


def part_of(name: str, shapes: Any, vocabulary: int) -> str:
    """The part that an operator belongs to."""
    lowered = name.lower()
    if any(piece in lowered for piece in PARTS["optimizer"]):
        return "optimizer"
    if any(isinstance(shape, list) and vocabulary in shape for shape in shapes or ()):
        return VOCABULARY
    for part, pieces in PARTS.items():
        if any(piece in lowered for piece in pieces):
            return part
    return ELEMENTWISE if lowered.startswith("aten::") else REST
