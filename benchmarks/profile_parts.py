"""Where the time of a call goes, by part: products, attention, vocabulary, copies and so on.

Read off torch.profiler's own time of each operator; what lies between the operators is Python and
the interpreter's work. An operator over a tensor with an axis of the vocabulary's size counts as
vocabulary, whatever it does; attention's products are told from the layers' by who asks for them,
as one library computes both. Shares are of wall time, so they mean something on a quiet machine.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from torch.profiler import ProfilerActivity, profile, record_function

from assay.models import tree_attention
from assay.models.matmul import batched

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
ATTENTION = "attention"


def marked(*given: Any) -> Any:
    """Attention's products, under a name of their own."""
    with record_function(ATTENTION):
        return batched(*given)


def profile_shares(action: Callable[[], object], vocabulary: int) -> dict[str, float]:
    """Share of each part in the wall time of one call, largest first."""
    with ExitStack() as stack:
        for module in (tree_attention,):
            stack.enter_context(patch.object(module, "batched", marked))
        profiler = stack.enter_context(
            profile(activities=[ProfilerActivity.CPU], record_shapes=True)
        )
        start = time.perf_counter()
        action()
        whole = time.perf_counter() - start
    seconds: dict[str, float] = {}
    for event in profiler.events() or ():
        part = ATTENTION if asked_by_attention(event) else part_of(event, vocabulary)
        seconds[part] = seconds.get(part, 0.0) + event.self_cpu_time_total * 1e-6
    seconds[REST] = seconds.get(REST, 0.0) + max(whole - sum(seconds.values()), 0.0)
    return {
        part: taken / whole for part, taken in sorted(seconds.items(), key=lambda entry: -entry[1])
    }


def asked_by_attention(event: Any) -> bool:
    """Whether an operator is one of attention's products, or a part of one."""
    while event is not None and event.name != ATTENTION:
        event = event.cpu_parent
    return event is not None


def part_of(event: Any, vocabulary: int) -> str:
    """The part that an operator belongs to."""
    lowered = event.name.lower()
    if any(piece in lowered for piece in PARTS["optimizer"]):
        return "optimizer"
    if any(isinstance(shape, list) and vocabulary in shape for shape in event.input_shapes or ()):
        return VOCABULARY
    for part, pieces in PARTS.items():
        if any(piece in lowered for piece in pieces):
            return part
    return ELEMENTWISE if lowered.startswith("aten::") else REST
