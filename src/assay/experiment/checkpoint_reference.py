"""Parses the names of a run's checkpoints: `base`, `STAGE.best`, `STAGE.last`, `STAGE.step-N`.

Does not check that the checkpoint exists.
"""

import re
from dataclasses import dataclass
from typing import Literal

Which = Literal["best", "last", "all", "step"]

_PATTERN = re.compile(
    r"(?P<stage>[A-Za-z0-9_-]+)\.(?P<which>best|last|all|step-(?P<step>[0-9]{1,18}))"
)


@dataclass(frozen=True, slots=True)
class CheckpointReference:
    """A checkpoint by name; `stage` None is the model before any training."""

    stage: str | None
    which: Which = "last"
    step: int | None = None
    """The step, for `which == "step"`."""


BASE = CheckpointReference(None)


def parse_checkpoint(text: str) -> CheckpointReference | None:
    """Read a checkpoint's name; None where it is not one."""
    if text == "base":
        return BASE
    match = _PATTERN.fullmatch(text)
    if match is None:
        return None
    if match["step"] is not None:
        return CheckpointReference(match["stage"], "step", int(match["step"]))
    return CheckpointReference(match["stage"], match["which"])  # type: ignore[arg-type]


def checkpoint_name(reference: CheckpointReference) -> str:
    """`base` or `sft.step-000040`: how records name a checkpoint that is resolved to its step."""
    if reference.stage is None:
        return "base"
    return f"{reference.stage}.step-{reference.step:06d}"
