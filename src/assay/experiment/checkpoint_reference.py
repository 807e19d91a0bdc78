"""Parses the names of a run's checkpoints: `base`, `STAGE.best`, `STAGE.last`, `STAGE.step-N`.

A checkpoint that a rule chooses is named after it: `STAGE.best` is the gate's choice,
`STAGE.dev_score` and `STAGE.reward_trend` those of the others. Does not check that the checkpoint
exists.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Rule = Literal["gate", "dev_score", "reward_trend"]
Which = Literal["best", "dev_score", "reward_trend", "last", "all", "step"]
RULES: Mapping[Rule, Which] = {
    "gate": "best",
    "dev_score": "dev_score",
    "reward_trend": "reward_trend",
}
"""The rules that choose a checkpoint of a stage, and how their choice is named."""

_PATTERN = re.compile(
    rf"(?P<stage>[A-Za-z0-9_-]+)\.(?P<which>{'|'.join(RULES.values())}|last|all"
    r"|step-(?P<step>[0-9]{1,18}))"
)


@dataclass(frozen=True, slots=True)
class CheckpointReference:
    """A checkpoint by name; `stage` None is the model before any training."""

    stage: str | None
    which: Which = "last"
    step: int | None = None
    """The step, for `which == "step"`."""

    @property
    def rule(self) -> Rule | None:
        """The rule whose choice is meant; None where the name says the step."""
        return next((rule for rule, which in RULES.items() if which == self.which), None)


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
