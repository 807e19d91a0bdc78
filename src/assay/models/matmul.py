"""Matrix products by the library that is fastest for them on this processor.

On a CPU torch sends float32 to MKL, which takes slower paths on processors that are not Intel's,
and bfloat16 to oneDNN. Both are timed once on a machine and the result is cached, so that every
process of a run, and a resumed one, computes alike. Other types and devices, and products under
autocast, are left to torch; decoding uses the packed weights of `inference`.
"""

import json
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from assay.data.files import built_once, cache_root, content_id


def wide_type(tensor: Tensor) -> torch.dtype:
    """The tensor's type, or float32 where that is wider."""
    return torch.promote_types(tensor.dtype, torch.float32)


def widened(tensor: Tensor) -> Tensor:
    """The tensor in at least float32, where sums over many keys or words are taken."""
    return tensor.to(wide_type(tensor))


def spans(length: int, step: int) -> Iterator[tuple[int, int]]:
    """Consecutive (first, stop) pairs that cover `length`."""
    for first in range(0, length, step):
        yield first, min(first + step, length)


def moved(host: Tensor, device: torch.device) -> Tensor:
    """`host` on the device; to a GPU it goes out of pinned memory and nobody waits for it.

    The host allocator keeps the pinned copy until the transfer has happened
    (https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers).
    """
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)


LEAST_SIDE = 256
"""Products of a batch are computed one by one where the longest side has at least this length."""
FASTER = 1.03
"""The least speed-up for which another library is used; two timings of a layer differ by less."""
WORTH = 1.2
"""The least speed-up for which another number format is used."""
BF16_FLAGS = ("amx_bf16", "avx512_bf16")
"""What torch calls the instruction sets with bf16 products, fastest first."""


@dataclass(frozen=True, slots=True)
class ProductSpeeds:
    """How many times as fast as torch's own float32 products others are on this processor."""

    onednn: float
    """float32 by oneDNN, over the three products of a layer; 0 where this torch has none."""
    onednn_batches: float
    """The same for a batch, each product by itself."""
    bf16: float
    """bfloat16; 0 where the processor has no instructions for it."""


@cache
def product_speeds() -> ProductSpeeds:
    """Timed once for each processor and version of torch, then read from the cache."""
    met = content_id([processor_name(), torch.__version__, "layer"])
    kept = built_once(cache_root() / "products" / met, _write_speeds)
    return ProductSpeeds(**json.loads((kept / "speeds.json").read_text("utf-8")))


def processor_name() -> str:
    """The processor's name, or its architecture where the system gives no name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _write_speeds(folder: Path) -> None:
    # One thread: waiting threads use the processor too, and would count in its time.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        speeds = timed_speeds()
    finally:
        torch.set_num_threads(threads)
    (folder / "speeds.json").write_text(json.dumps(asdict(speeds)), "utf-8")


def timed_speeds() -> ProductSpeeds:
    """Times products of the sizes that training a small model asks for."""
    if not torch.backends.mkldnn.is_available():
        return ProductSpeeds(0.0, 0.0, 0.0)
    rows_TI, weight_OI, grad_TO = (torch.randn(*s) for s in ((512, 576), (1536, 576), (512, 1536)))
    left_BMK, right_BKN = torch.randn(9, 256, 64), torch.randn(9, 64, 256)
    own, others = _seconds(
        lambda: _layer(torch.mm, rows_TI, weight_OI, grad_TO),
        lambda: _layer(_mm_by_onednn, rows_TI, weight_OI, grad_TO),
    )
    batch, alone = _seconds(
        lambda: torch.bmm(left_BMK, right_BKN), lambda: one_by_one(left_BMK, right_BKN)
    )
    bf16 = 0.0
    if any(torch.cpu.get_capabilities().get(flag) for flag in BF16_FLAGS):
        rough_TI, rough_IO = rows_TI.bfloat16(), weight_OI.bfloat16().t()
        wide, rough = _seconds(
            lambda: torch.mm(rows_TI, weight_OI.t()), lambda: torch.mm(rough_TI, rough_IO)
        )
        bf16 = wide / rough
    return ProductSpeeds(own / others, batch / alone, bf16)


def _layer(
    mm: Callable[[Tensor, Tensor], Tensor], rows_TI: Tensor, weight_OI: Tensor, grad_TO: Tensor
) -> None:
    # Forward, and backward to the rows and to the weight: each favours another library.
    mm(rows_TI, weight_OI.t())
    mm(grad_TO, weight_OI)
    mm(grad_TO.t(), rows_TI)


def _mm_by_onednn(left_MK: Tensor, right_KN: Tensor) -> Tensor:
    return onednn(left_MK, right_KN.t(), None)


def _seconds(*computations: Callable[[], object]) -> list[float]:
    # In turn, the least of 15 processor times, so that other programs do not decide the result.
    taken = [1e9] * len(computations)
    for _ in range(15):
        for place, compute in enumerate(computations):
            started = time.process_time()
            compute()
            taken[place] = min(taken[place], time.process_time() - started)
    return [max(each, 1e-9) for each in taken]


def prefers_onednn() -> bool:
    """Whether float32 products are faster by oneDNN than by torch's choice."""
    return product_speeds().onednn >= FASTER


def takes(values: Tensor) -> bool:
    """Whether a product with these values goes to oneDNN."""
    plain = values.is_cpu and values.dtype == torch.float32
    return plain and prefers_onednn() and not torch.is_autocast_enabled("cpu")


def project(layer: nn.Module, rows_TI: Tensor) -> Tensor:
    """A linear layer's output for rows (T, I); other modules, and layers with hooks, are called."""
    # `Project` would not run the layer's hooks.
    watched = layer._forward_hooks or layer._forward_pre_hooks
    if type(layer) is nn.Linear and not watched and takes(rows_TI):
        result: Any = Project.apply(rows_TI, layer.weight, layer.bias)
        return result
    return layer(rows_TI)


def product(left_MK: Tensor, right_KN: Tensor) -> Tensor:
    """left @ right; not differentiable."""
    if not takes(left_MK):
        return torch.mm(left_MK, right_KN)
    return _mm_by_onednn(left_MK, right_KN)


def batched(left_BMK: Tensor, right_BKN: Tensor) -> Tensor:
    """left @ right of each of a batch; not differentiable."""
    sides = (*left_BMK.shape[1:], right_BKN.shape[2])
    if max(sides) < LEAST_SIDE or product_speeds().onednn_batches < FASTER or not takes(left_BMK):
        return torch.bmm(left_BMK, right_BKN)
    return one_by_one(left_BMK, right_BKN)


def one_by_one(left_BMK: Tensor, right_BKN: Tensor) -> Tensor:
    """left @ right of each of a batch by oneDNN."""
    pairs = zip(left_BMK, right_BKN, strict=True)
    return torch.stack([onednn(left_MK, right_KN.t(), None) for left_MK, right_KN in pairs])


def onednn(rows_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """rows @ weight' + bias by oneDNN; either may be a transposed view."""
    return torch.ops.mkldnn._linear_pointwise(rows_TI, weight_OI, bias_O, "none", [], "")


class Project(torch.autograd.Function):
    """A linear layer whose three products go to oneDNN."""

    @staticmethod
    def forward(ctx: Any, rows_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        """Rows (T, O)."""
        ctx.save_for_backward(rows_TI if ctx.needs_input_grad[1] else None, weight_OI)
        return onednn(rows_TI, weight_OI, bias_O)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # type: ignore[override]
        """Gradients of rows, weight and bias, those that are wanted."""
        rows_TI, weight_OI = ctx.saved_tensors
        (grad_TO,) = grads
        wants_rows, wants_weight, wants_bias = ctx.needs_input_grad
        return (
            product(grad_TO, weight_OI) if wants_rows else None,
            product(grad_TO.t(), rows_TI) if wants_weight else None,
            grad_TO.sum(dim=0) if wants_bias else None,
        )
