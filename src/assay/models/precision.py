"""Which number formats a model is kept and computed in.

Master weights are fp32. Matrix products run in bf16 under autocast where a GPU has bf16 cores or a
CPU is faster in it, and in fp32 otherwise. Loss, softmax and optimizer stay fp32 elsewhere.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch

from assay.models.matmul import product

PrecisionName = Literal["auto", "fp32", "bf16"]
AMX = "amx_bf16"
CPU_BF16 = (AMX, "avx512_bf16")
WORTH = 1.2
"""How many times as fast as fp32 products in bf16 must be to be worth their rounding."""


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
    found = bf16_hardware(device)
    if not found:
        return torch.float32, f"{device} has no bf16 arithmetic"
    # Intel's processors with AVX-512 alone have the instructions at about half the speed of fp32.
    if device == "cpu" and found != AMX and bf16_speed() < WORTH:
        return torch.float32, f"{device} has {found}, which is not faster than fp32"
    return torch.bfloat16, f"{device} has {found}"


@cache
def bf16_speed() -> float:
    """How many times as fast a CPU's products are in bf16 as in fp32: the best of five each."""
    left_MK, right_KN = torch.randn(256, 576), torch.randn(1536, 576).t()
    rough_MK, rough_KN = left_MK.bfloat16(), right_KN.bfloat16()
    exact, rough = [], []
    for _ in range(5):
        exact.append(_seconds(lambda: product(left_MK, right_KN)))
        rough.append(_seconds(lambda: torch.mm(rough_MK, rough_KN)))
    return min(exact) / min(rough)


def _seconds(compute: Callable[[], object]) -> float:
    # Of the processor, not of the clock: other programs must not decide it.
    started = time.process_time()
    compute()
    return time.process_time() - started


def bf16_hardware(device: str) -> str:
    """What gives the device bf16 arithmetic (an instruction set, or bf16 cores); else empty."""
    if device == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16 tensor cores" if native else ""
    capabilities = torch.cpu.get_capabilities()
    return next((flag for flag in CPU_BF16 if capabilities.get(flag)), "")
