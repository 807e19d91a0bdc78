"""The stages that a run descends from, as a table: what each started from, and what it changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.experiment.checkpoint_reference import (
    CheckpointReference,
    checkpoint_name,
    parse_checkpoint,
)
from assay.experiment.reward_tables import Reward, plain
from assay.experiment.stage_tables import OTHER_RUN, SamplingStage, StageSpec
from assay.judge.confounds import ABSENT, differences
from assay.pages.page import Block, Cell, Table
from assay.pages.result_tables import checkpoint_label, setting_text
from assay.pages.words import Words, percent, visible
from assay.runs.checkpoints import Selection, read_selection
from assay.runs.manifest_file import read_manifest
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
    return list(found.values())


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
    """The keys in which it differs from the round before, if both sample completions."""
    before = _round_before(run, stage)
    if not isinstance(stage, SamplingStage) or not isinstance(before, SamplingStage):
        return ()
    return tuple(
        Change(found.path, _text(found.control), _text(found.other))
        for found in differences(_settings(before), _settings(stage))
    )


def _round_before(run: RunDirectory, stage: StageSpec) -> StageSpec | None:
    """The stage whose checkpoint was looked for: the gate may have kept an earlier one."""
    reference = parse_checkpoint(stage.start)
    if reference is None:
        run, reference = _start(run, stage)
    stages = experiment_of(run).stage if run.spec.is_file() else {}
    return stages.get(reference.stage or "")


def _settings(stage: StageSpec) -> dict[str, Any]:
    """The changeable settings of a stage that are set."""
    table = stage.model_dump(exclude_none=True)
    reward: Reward | None = getattr(stage, "reward", None)
    table["reward"] = None if reward is None else plain(reward)
    adapt = table["adapt"]
    table["adapt"] = {key: adapt[key] for key in ("kind", "rank") if key in adapt}
    if not table.get("kl", {}).get("coef"):
        table.pop("kl", None)
    found = {name: _value(table, name) for name in CHANGEABLE}
    return {name: value for name, value in found.items() if value is not None}


def _value(table: Mapping[str, Any], name: str) -> Any:
    first, _, rest = name.partition(".")
    value = table.get(first)
    return value.get(rest) if rest and isinstance(value, Mapping) else value


def _text(value: Any) -> str:
    return "" if value == ABSENT else setting_text(value)


def origin_text(origin: Origin, words: Words) -> str:
    """What a stage started from, and by which rule."""
    checkpoint = checkpoint_label(origin.checkpoint, words)
    if not origin.known:
        return words("lineage.waits", start=visible(origin.written))
    chosen = origin.selection
    if chosen is None and parse_checkpoint(origin.written) == parse_checkpoint(origin.checkpoint):
        return words("lineage.plain", checkpoint=checkpoint)
    if chosen is None:
        return words("lineage.named", checkpoint=checkpoint, start=visible(origin.written))
    values = {"checkpoint": checkpoint, "looks": chosen.looks, "start": visible(origin.written)}
    if chosen.rule == "dev_score":
        return words("lineage.dev_score", score=percent(chosen.score), **values)
    if chosen.rule == "reward_trend":
        if chosen.rise is None:
            return words("lineage.no_rise", **values)
        first, last = chosen.rise.after + 1, chosen.rise.until
        return words("lineage.reward_trend", first=first, last=last, **values)
    if not chosen.promoted:
        return words("lineage.kept", **values)
    adjusted = [each.adjusted_p for each in chosen.evidence if each.checkpoint == chosen.checkpoint]
    if not adjusted:
        return words("lineage.gate_plain", **values)
    return words("lineage.gate", p=f"{adjusted[0]:.2g}", **values)


def change_text(change: Change, words: Words) -> str:
    """A changed setting."""
    before, after = (visible(value) or "–" for value in (change.before, change.after))
    return words("lineage.change", name=visible(change.name), before=before, after=after)


def lineage_blocks(run: RunDirectory, words: Words) -> list[Block]:
    """A row for each stage that the run has or descends from; nothing for a single stage of a
    model."""
    nodes = lineage(run)
    if len(nodes) < 3:
        return []
    heads = [words(f"lineage.{name}") for name in ("stage", "start", "changed")]
    return [Table(heads, [_row(run, node, words) for node in nodes if node.method])]


def _row(run: RunDirectory, node: LineageNode, words: Words) -> list[Cell]:
    start = origin_text(node.origin, words) if node.origin else "–"
    changed = [change_text(change, words) for change in node.changes]
    other = [] if node.run == run else [words("lineage.other_run", run=node.run)]
    stage = Cell(f"{node.label} · {node.method.upper()}", other, kind="head")
    return [stage, Cell(start), Cell(words.semicolon.join(changed) or "–")]
