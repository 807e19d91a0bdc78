"""Which number formats a model is kept and computed in.

Master weights are fp32. Matrix products run in bf16 under autocast where the CPU or the GPU has
bf16 arithmetic, and in fp32 otherwise. Loss, softmax and optimizer stay fp32 elsewhere.
"""

from dataclasses import dataclass
from typing import Literal

import torch

PrecisionName = Literal["auto", "fp32", "bf16"]
CPU_BF16 = ("amx_bf16", "avx512_bf16")


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

    `auto` takes bf16 where the hardware has it; `fp32` and `bf16` take what they say.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    found = bf16_hardware(device)
    if name == "auto":
        compute = torch.bfloat16 if found else torch.float32
        reason = f"{device} has {found}" if found else f"{device} has no bf16 arithmetic"
    else:
        compute = {"fp32": torch.float32, "bf16": torch.bfloat16}[name]
        reason = f"{name} was asked for"
    return Precision(torch.float32, compute, device, reason)


def bf16_hardware(device: str) -> str:
    """What gives the device bf16 arithmetic (an instruction set, or bf16 cores); else empty."""
    if device == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16 tensor cores" if native else ""
    capabilities = torch.cpu.get_capabilities()
    return next((flag for flag in CPU_BF16 if capabilities.get(flag)), "")
