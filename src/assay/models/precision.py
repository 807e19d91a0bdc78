"""Which number formats a model is kept and computed in.

Master weights are fp32. Matrix products run in bf16 under autocast where a GPU has bf16 cores or a
CPU is faster in it, and in fp32 otherwise. Loss, softmax and optimizer stay fp32 elsewhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.utils import deterministic

from assay.models.matmul import BF16_FLAGS, WORTH, product_speeds

PrecisionName = Literal["auto", "fp32", "bf16"]


@dataclass(frozen=True, slots=True)
class Precision:
    """The dtype policy of a run, as the manifest records it."""

    master: torch.dtype
    compute: torch.dtype
    device: str
    """`cpu` or `cuda`."""
    reason: str
    """Why `compute` was chosen."""

    def autocast(self) -> torch.autocast:
        """Inside, matrix products run in `compute`; without effect when that is `master`."""
        enabled = self.compute != self.master
        return torch.autocast(self.device, dtype=torch.bfloat16, enabled=enabled)

    def record(self) -> dict[str, str]:
        """The policy in plain words for a manifest."""
        return {
            "master": str(self.master).removeprefix("torch."),
            "compute": str(self.compute).removeprefix("torch."),
            "device": self.device,
            "reason": self.reason,
        }


def choose_precision(name: PrecisionName = "auto", device: str | None = None) -> Precision:
    """The policy for `device` (default: `cuda` when there is one, else `cpu`).

    `auto` takes bf16 where the hardware gains by it; `fp32` and `bf16` take what they say.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if name == "auto":
        compute, reason = _fastest(device)
    else:
        compute = {"fp32": torch.float32, "bf16": torch.bfloat16}[name]
        reason = f"{name} was asked for"
    return Precision(torch.float32, compute, device, reason)


def _fastest(device: str) -> tuple[torch.dtype, str]:
    dtype = bf16_hardware(device)
    if not dtype:
        return torch.float32, f"{device} has no bf16 arithmetic"
    # Intel's processors with AVX-512 alone have the instructions at about half the speed of fp32.
    if device == "cpu" and dtype != BF16_FLAGS[0] and product_speeds().bf16 < WORTH:
        return torch.float32, f"{device} has {dtype}, which is not faster than fp32"
    return torch.bfloat16, f"{device} has {dtype}"


def bf16_hardware(device: str) -> str:
    """What gives the device bf16 arithmetic (an instruction set, or bf16 cores); else empty."""
    if device == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16 tensor cores" if native else ""
    capabilities = torch.cpu.get_capabilities()
    return next((flag for flag in BF16_FLAGS if capabilities.get(flag)), "")


@contextmanager
def repeatable_sums(module: nn.Module) -> Iterator[None]:
    """Inside, a GPU adds in one order, so that a resumed run ends in the same bits.

    Forward and backward pass both belong inside: a compiled graph refuses a backward pass under
    another setting than its forward pass.

    CUDA's `index_add_`, which gradients of tied embeddings go through, has no order otherwise
    (https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html).
    """
    if not any(parameter.is_cuda for parameter in module.parameters()):
        yield
        return
    # PyTorch sets this module's class at run time, which no type checker sees.
    settings: Any = deterministic
    before = torch.get_deterministic_debug_mode(), settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    # What is filled would be overwritten.
    settings.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        settings.fill_uninitialized_memory = before[1]
