"""Finds what each stage of a run started from, through other runs down to the first model.

Gathers the choices, the scores and the settings that changed between rounds; drawing and words are
in `lineage_view`. Judges nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from assay.experiment.checkpoint_reference import (
    CheckpointReference,
    checkpoint_name,
    parse_checkpoint,
)
from assay.experiment.reward_tables import Reward, plain
from assay.experiment.stage_tables import OTHER_RUN, SamplingStage, StageSpec
from assay.judge.intervals import Interval, score_interval
from assay.pages.result_tables import setting_text, settings_text
from assay.runs.checkpoints import Selection, read_selection
from assay.runs.history import evaluation_records, measured_checkpoints
from assay.runs.manifest_file import read_manifest
from assay.runs.records import EvaluationRecord, read_scores
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import (
    Located,
    RunNotFound,
    experiment_of,
    find_named,
    recorded_place,
    stage_start,
)

CHANGEABLE = (
    *("algorithm", "optimizer.lr", "clip", "reward", "sampling.max_tokens", "sampling.temperature"),
    *("overlong", "kl", "prompts", "group", "data", "adapt"),
)
"""Settings of a round whose change is shown."""


@dataclass(frozen=True, slots=True)
class Change:
    """A setting of a round that differs from the round before; "" where it is not set."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class CheckpointScore:
    """The measured score of a checkpoint."""

    checkpoint: str
    evaluation: str
    score: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class Origin:
    """The checkpoint that a stage started from, and how it was chosen."""

    written: str
    """As the experiment file names it."""
    checkpoint: str
    """By its step; as written where it is not known yet."""
    known: bool
    selection: Selection | None
    """The choice of its rule; None for a checkpoint that is named by its step, the last or base."""


@dataclass(frozen=True, slots=True)
class LineageNode:
    """A model before training, or a stage of a run."""

    run: RunDirectory
    label: str
    """The stage, or the model's source."""
    method: str
    """The stage's; "" of a model."""
    parent: int | None = None
    """Place of what it started from among the nodes."""
    origin: Origin | None = None
    changes: tuple[Change, ...] = ()
    scores: tuple[CheckpointScore, ...] = ()
    """Of the checkpoints that others started from, and of the last one measured."""


Key = tuple[str, str]
Nodes = dict[Key, LineageNode]
"""By run and stage, or by "" and fingerprint of a model; parents before their children."""


def lineage(run: RunDirectory) -> list[LineageNode]:
    """The stages of a run in their order, each behind all that it descends from.

    Raises what reading the runs raises; a run that is gone ends the line.
    """
    found: Nodes = {}
    for name in experiment_of(run).stage:
        _add_stage(found, run, name)
    nodes = list(found.values())
    return [
        replace(node, scores=_scores(node, [n for n in nodes if n.parent == place]))
        for place, node in enumerate(nodes)
    ]


def _add_stage(found: Nodes, run: RunDirectory, name: str) -> Key:
    key = (str(run), name)
    if key in found:
        return key
    if not run.spec.is_file():
        found[key] = LineageNode(run, name, "")
        return key
    stage = experiment_of(run).stage[name]
    place = _start(run, stage)
    parent = _add_place(found, *place)
    origin = _origin(run, stage, place)
    number = list(found).index(parent)
    found[key] = LineageNode(run, name, stage.method, number, origin, _changes(run, stage))
    return key


def _add_place(found: Nodes, run: RunDirectory, reference: CheckpointReference) -> Key:
    if reference.stage is not None:
        return _add_stage(found, run, reference.stage)
    base = read_manifest(run).get("base_weights", {})
    if "checkpoint" in base:
        return _add_place(found, *recorded_place(run.root, base["checkpoint"]))
    source = experiment_of(run).model if run.spec.is_file() else str(run)
    key = ("", base.get("sha256", source))
    found.setdefault(key, LineageNode(run, source, ""))
    return key


def _start(run: RunDirectory, stage: StageSpec) -> Located:
    """Where a stage started; of what is not there yet, or was deleted, the stage that it names."""
    try:
        return stage_start(run, stage)
    except RunNotFound:
        chosen = _selection(run, stage)
        reference = parse_checkpoint(chosen.checkpoint if chosen else stage.start)
        return run, reference or CheckpointReference(None)


def _origin(run: RunDirectory, stage: StageSpec, place: Located) -> Origin:
    _, reference = place
    known = reference.stage is None or reference.step is not None
    name = checkpoint_name(reference) if known else stage.start
    return Origin(stage.start, name, known, _selection(run, stage))


def _selection(run: RunDirectory, stage: StageSpec) -> Selection | None:
    """The stored choice that a stage started from, in whichever run it was made."""
    text = stage.start
    if text.startswith(OTHER_RUN):
        try:
            run, _ = find_named(run.root, text.removeprefix(OTHER_RUN))
        except RunNotFound:
            return None
        text = text.partition("@")[2]
    reference = parse_checkpoint(text)
    if reference is None or reference.stage is None or reference.rule is None:
        return None
    return read_selection(run.path, reference.stage, reference.rule)


def _changes(run: RunDirectory, stage: StageSpec) -> tuple[Change, ...]:
    """What differs from the round before, if both sample completions."""
    before = _round_before(run, stage)
    if not isinstance(stage, SamplingStage) or not isinstance(before, SamplingStage):
        return ()
    old, new = _settings(before), _settings(stage)
    return tuple(
        Change(name, old.get(name, ""), new.get(name, ""))
        for name in CHANGEABLE
        if old.get(name, "") != new.get(name, "")
    )


def _round_before(run: RunDirectory, stage: StageSpec) -> StageSpec | None:
    """The stage whose checkpoint was looked for: the gate may have kept an earlier one."""
    reference = parse_checkpoint(stage.start)
    if reference is None:
        run, reference = _start(run, stage)
    stages = experiment_of(run).stage if run.spec.is_file() else {}
    return stages.get(reference.stage or "")


def _settings(stage: StageSpec) -> Mapping[str, str]:
    """The changeable settings of a stage as texts."""
    table = stage.model_dump(exclude_none=True)
    reward: Reward | None = getattr(stage, "reward", None)
    table["reward"] = None if reward is None else plain(reward)
    adapt = table["adapt"]
    table["adapt"] = {key: adapt[key] for key in ("kind", "rank") if key in adapt}
    if not table.get("kl", {}).get("coef"):
        table.pop("kl", None)
    return {name: text for name in CHANGEABLE if (text := _text(_value(table, name)))}


def _value(table: Mapping[str, Any], name: str) -> Any:
    first, _, rest = name.partition(".")
    value = table.get(first)
    return value.get(rest) if rest and isinstance(value, Mapping) else value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return settings_text(value)
    return setting_text(value)


def _scores(node: LineageNode, children: list[LineageNode]) -> tuple[CheckpointScore, ...]:
    """Scores of the checkpoints that children started from, then of the last one measured."""
    if not node.run.spec.is_file():
        return ()
    stage = node.label if node.method else None
    records = _records(node.run)
    taken = [child.origin.checkpoint for child in children if child.origin and child.origin.known]
    last = [names[-1] for record in records if (names := _measured(node.run, record, stage))]
    wanted = [name for name in (*taken, *last[:1]) if _stage_of(name) == stage]
    found = [_score(node.run, records, name) for name in dict.fromkeys(wanted)]
    return tuple(each for each in found if each is not None)


def _records(run: RunDirectory) -> list[EvaluationRecord]:
    """The evaluations in the order of the experiment, those that report before the others."""
    order = list(experiment_of(run).evaluate)
    known = [record for record in evaluation_records(run) if record.name in order]
    return sorted(known, key=lambda r: (r.role != "report", order.index(r.name)))


def _measured(run: RunDirectory, record: EvaluationRecord, stage: str | None) -> list[str]:
    return [name for name in measured_checkpoints(run, record) if _stage_of(name) == stage]


def _stage_of(checkpoint: str) -> str | None:
    reference = parse_checkpoint(checkpoint)
    return reference.stage if reference else None


def _score(
    run: RunDirectory, records: list[EvaluationRecord], checkpoint: str
) -> CheckpointScore | None:
    for record in records:
        if record.finished(run, checkpoint):
            scores = read_scores(run, record, checkpoint)
            return CheckpointScore(checkpoint, record.name, scores.mean, score_interval(scores))
    return None
