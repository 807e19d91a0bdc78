"""The settings of a stage as the table of tools reads them, presets resolved and steps counted, and
what a tool has for each: a row of Assay's key with a cell for TRL, ms-swift and verl, which export
writes and import reads back.

A cell has the tool's keys, how a value is written there, and what differs. A difference is listed;
where the tool has nothing that corresponds, an export is refused until the key is allowed by name.
The rows are in settings.toml, which `table` reads.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any

from assay.errors import InputError, nearest
from assay.experiment.stage_tables import GrpoStage, SftStage
from assay.experiment.training_settings import EveryEpochs, LoraAdapt, ScheduleSpec
from assay.rl.aggregation import Importance
from assay.rl.presets import Preset
from assay.train.grpo import algorithm_of

OF_PRESET = ("advantage", "loss", "aggregation", "clip.low", "clip.high", "clip.dual")
"""Keys that a preset fills."""
Exported = SftStage | GrpoStage
"""Stages that other tools train."""


def at_start(value: Any) -> Any:
    """A setting at the first step."""
    return value.start if isinstance(value, ScheduleSpec) else value


def updates_of_round(stage: Exported) -> int:
    """Optimizer steps of one round."""
    table = stage.updates if isinstance(stage, GrpoStage) else None
    return table.minibatches * table.epochs if table else 1


def moves(value: Any) -> bool:
    """Whether a setting changes over the steps."""
    return isinstance(value, ScheduleSpec) and value.end not in (None, value.start)


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
            return attrgetter(key)(self.algorithm)
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


Values = Mapping[str, Any]
"""A tool's configuration by its own keys, dotted where they are nested."""


@dataclass(frozen=True, slots=True)
class Unlike:
    """What is not the same over there."""

    what: str
    """In a sentence without its end."""
    when: Callable[[Settings], bool] | None = None
    """Omitted: where the setting is set."""
    refused: bool = False
    """Nothing corresponds: the key has to be allowed by name."""

    def holds(self, settings: Settings, key: str) -> bool:
        """Whether it is so of a stage's setting."""
        if self.when is not None:
            return self.when(settings)
        return settings.value(key) not in (None, False, 0)


@dataclass(frozen=True)
class ToolCell:
    """What a tool has for a setting."""

    keys: tuple[str, ...] = ()
    """The tool's."""
    how: str = ""
    """In words, where the value is not written as it is."""
    names: Values | None = None
    """The tool's values by Assay's; the first stands for what has none, and is allowed."""
    none: Any = None
    """The tool's value where Assay's is omitted."""
    value: Callable[[Settings], Any] | None = None
    """The tool's value, of a tuple one for each key, or all that is written; omitted: Assay's."""
    read: Callable[[Values], Any] | None = None
    """Assay's value by the tool's configuration; omitted: that of the first key, where no `value`
    was converted."""
    unlike: tuple[Unlike, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether its keys hold the setting's own value."""
        return bool(self.keys) and not self.how and self.value is None

    def written(self, settings: Settings, key: str) -> Values:
        """What an export writes for Assay's `key`."""
        if self.value is None and not self.is_plain:
            return {}
        value = settings.value(key) if self.value is None else self.value(settings)
        if isinstance(value, Mapping):
            return value
        if self.names is not None:
            value = self.names.get(value, next(iter(self.names.values())))
        value = self.none if value is None else value
        if isinstance(value, tuple) and len(self.keys) > 1:
            return dict(zip(self.keys, value, strict=True))
        return dict.fromkeys(self.keys, [*value] if isinstance(value, tuple) else value)

    def told(self, config: Values) -> Any:
        """Assay's value by a tool's configuration. Raises KeyError where that does not tell it, or
        tells another kind of value than the tool writes."""
        try:
            if self.read is not None:
                return self.read(config)
            first = config[self.keys[0]]
            if self.names is None:
                return None if first == self.none else first
            values = {own: v if isinstance(v, tuple) else (v,) for own, v in self.names.items()}
            names = [own for own, theirs in values.items() if theirs[0] == first]
            if len(names) > 1:  # the other keys tell which
                all_ = tuple(config[key] for key in self.keys)
                names = [own for own in names if values[own] == all_]
            return dict(enumerate(names))[0]
        except (TypeError, ZeroDivisionError, AttributeError) as error:
            raise KeyError(self.keys) from error


@dataclass(frozen=True)
class ToolTable:
    """What a tool has for the stages of a method."""

    cells: Mapping[str, ToolCell]
    """By Assay's key, in the order of writing."""
    idle: Mapping[str, str] = field(default_factory=dict)
    """Keys of the tool that change nothing of what is learned, in one text by the reason; a key may
    be a pattern."""
    gated: Mapping[str, str] = field(default_factory=dict)
    """Keys of the tool that act where another does, likewise by that other key, which an export
    writes as it does not act."""

    def written(self, settings: Settings) -> Values:
        """All that an export writes."""
        values: dict[str, Any] = {}
        for key, cell in self.cells.items():
            values |= cell.written(settings, key)
        return values

    def unlike(self, settings: Settings) -> list[tuple[str, Unlike]]:
        """What differs of a stage, by Assay's keys."""
        pairs = [(key, each) for key, cell in self.cells.items() for each in cell.unlike]
        cells = {(k, each.what): (k, each) for k, each in pairs if each.holds(settings, k)}
        return [*cells.values()]

    def is_idle(self, key: str) -> bool:
        """Whether a key of the tool changes nothing of what is learned."""
        return listed(self.idle, key) is not None


def listed(groups: Mapping[str, str], key: str) -> str | None:
    """By what a key is listed in a table's `idle` or `gated`."""
    held = (by for by, keys in groups.items() if any(fnmatchcase(key, k) for k in keys.split()))
    return next(held, None)


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting that does not mean the same in the tool."""

    key: str
    what: str
    allowed: bool = False
    """Nothing corresponds to it, and the user allowed that by name."""


@dataclass(frozen=True)
class Translated:
    """The settings of a stage in a tool's words."""

    values: Values
    differences: tuple[SettingDifference, ...]


def translated(
    table: ToolTable, settings: Settings, tool: str, allowed: Collection[str] = ()
) -> Translated:
    """A stage in the words of `tool`. Raises InputError for a setting to which nothing corresponds
    and that neither the stage nor `allowed` allows, for an `allowed` key that needs no permission,
    and for a key of the stage's `allow` that is none.
    """
    named = settings.stage.allow or ()
    for key in named:
        if key not in table.cells:
            known = [each for each in table.cells if not each.startswith("(")]
            place, fix = f"stage.{settings.name}.allow", nearest(key, known)
            raise InputError(f"{key!r} is no setting", field=place, fix=fix)
    cells = table.unlike(settings)
    for key, each in cells:
        if each.refused and key not in (*allowed, *named):
            in_file = f'allow = ["{key}"] in the stage'
            how = in_file if settings.stage.trainer else f"--allow {key}"
            place, fix = f"stage.{settings.name}.{key}", f"{how} lists it as a difference"
            raise InputError(f"{tool} {each.what}", field=place, fix=fix)
    differences = tuple(SettingDifference(key, each.what, each.refused) for key, each in cells)
    needed = [each.key for each in differences if each.allowed]
    for key in allowed:
        if key not in needed:
            fix = nearest(key, needed) if needed else "leave it out"
            problem = f"{key!r} needs no permission to go to {tool}"
            raise InputError(problem, field="--allow", fix=fix)
    return Translated(table.written(settings), differences)
