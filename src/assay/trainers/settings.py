"""The settings of a stage as the table of tools reads them: presets resolved, steps counted.

Nothing is translated here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from assay.errors import look_up
from assay.experiment.stage_tables import GrpoStage, SftStage
from assay.experiment.training_settings import EveryEpochs, LoraAdapt, Schedule
from assay.rl.aggregation import Importance
from assay.rl.presets import PRESETS, Preset

OF_PRESET = {key: key for key in ("advantage", "loss", "aggregation")}
OF_PRESET |= {"clip.low": "clip_low", "clip.high": "clip_high", "clip.dual": "dual_clip"}
"""Keys that a preset fills, and what they are called there."""
Exported = SftStage | GrpoStage
"""Stages that other tools train."""


def algorithm_of(stage: GrpoStage) -> Preset:
    """The preset with the stage's own parts in its place; scheduled bounds at their start. Raises
    UnknownName."""
    preset = look_up(PRESETS, stage.algorithm, "algorithm")
    table, clip = stage.advantage_options, stage.clip
    given = table.model_dump(exclude_none=True) if table else {}
    own = {
        **{name: getattr(stage, name) for name in ("advantage", "loss", "aggregation")},
        "clip_low": at_start(clip.low),
        "clip_high": at_start(clip.high),
        "dual_clip": clip.dual,
        "advantage_options": replace(preset.advantage_options, **given),
    }
    return replace(preset, **{name: value for name, value in own.items() if value is not None})


def at_start(value: Any) -> Any:
    """A setting at the first step."""
    return value.start if isinstance(value, Schedule) else value


def updates_of_round(stage: Exported) -> int:
    """Optimizer steps of one round."""
    table = stage.updates if isinstance(stage, GrpoStage) else None
    return table.minibatches * table.epochs if table else 1


def moves(value: Any) -> bool:
    """Whether a setting changes over the steps."""
    return isinstance(value, Schedule) and value.end not in (None, value.start)


@dataclass(frozen=True)
class Settings:
    """A stage to be exported."""

    name: str
    """The stage's."""
    stage: Exported
    model: str
    """What the tool opens: a name of the hub, or a folder of the export."""
    seed: int
    rounds: int
    """Assay's steps."""
    rows: int
    """Rows, or packs, that one epoch visits."""
    longest_prompt: int
    """Tokens; the limit of the data set, where it has one."""
    longest: int
    """Tokens of the longest sequence that is trained, or of a pack."""
    from_base: bool = True
    """Whether the stage starts from the experiment's model."""
    template: Mapping[str, Any] | None = None
    """How ms-swift is to open and render the model."""

    @property
    def sft(self) -> SftStage:
        """The stage as one that learns from given answers."""
        assert isinstance(self.stage, SftStage)
        return self.stage

    @property
    def grpo(self) -> GrpoStage:
        """The stage as one that samples."""
        assert isinstance(self.stage, GrpoStage)
        return self.stage

    @property
    def algorithm(self) -> Preset:
        """Of a stage that samples."""
        return algorithm_of(self.grpo)

    def value(self, key: str) -> Any:
        """The value of a dotted key: the preset's where the stage has none of its own, a schedule's
        start; None where the stage has no such table."""
        if key in OF_PRESET:
            return getattr(self.algorithm, OF_PRESET[key])
        value: Any = self.stage
        for part in key.split("."):
            value = getattr(value, part, None)
        return at_start(value)

    @property
    def lora(self) -> LoraAdapt | None:
        """The adapter, where one is trained."""
        adapt = self.stage.adapt
        return adapt if isinstance(adapt, LoraAdapt) else None

    @property
    def updates(self) -> int:
        """Optimizer steps of one round."""
        return updates_of_round(self.stage)

    @property
    def batch(self) -> int:
        """Sequences of one optimizer step."""
        if isinstance(self.stage, SftStage):
            return self.stage.batch
        return self.stage.prompts * self.stage.group // self.stage.updates.minibatches

    @property
    def warmup(self) -> int:
        """Optimizer steps over which the rate rises."""
        return round(self.rounds * self.stage.optimizer.warmup) * self.updates

    @property
    def together(self) -> int:
        """Sequences that go through the model at once: a divisor of the batch that fits
        `micro_tokens`."""
        fits = max(1, self.stage.micro_tokens // max(self.longest, 1))
        return max(n for n in range(1, min(fits, self.batch) + 1) if self.batch % n == 0)

    @property
    def importance(self) -> Importance:
        """The correction of the rollout gap."""
        table = self.grpo.importance
        return Importance(**table.model_dump()) if table else Importance()

    def every(self, wanted: int | EveryEpochs | None) -> int:
        """Rounds after which something is due again."""
        if wanted is None:
            return self.rounds
        if isinstance(wanted, int):
            return wanted
        taken = self.batch if isinstance(self.stage, SftStage) else self.grpo.prompts
        return max(1, math.ceil(wanted.epochs * self.rows / taken))
