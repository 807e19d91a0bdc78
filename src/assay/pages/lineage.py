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
from assay.pages.content import checkpoint_label, setting_text
from assay.pages.page import Block, Cell, Row, Table
from assay.pages.words import Words, visible
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
class LineageNode:
    """A model before training, or a stage of a run with the checkpoint that it started from."""

    run: RunDirectory
    label: str
    """The stage, or the model's source."""
    stage: StageSpec | None = None
    """None of a model, and of a run that is gone."""
    start: CheckpointReference | None = None


Nodes = dict[tuple[str, str], LineageNode]
"""By run and stage, or by "" and fingerprint of a model; parents before their children."""


def lineage(run: RunDirectory) -> list[LineageNode]:
    """The stages of a run in their order, each behind all that it descends from.

    Raises what reading the runs raises; a run that is gone ends the line.
    """
    nodes: Nodes = {}
    for name in experiment_of(run).stage:
        _add_stage(nodes, run, name)
    return list(nodes.values())


def _add_stage(nodes: Nodes, run: RunDirectory, name: str) -> None:
    key = (str(run), name)
    if key not in nodes and not run.spec.is_file():
        nodes[key] = LineageNode(run, name)
    elif key not in nodes:
        stage = experiment_of(run).stage[name]
        place = _start(run, stage)
        _add_place(nodes, *place)
        nodes[key] = LineageNode(run, name, stage, place[1])


def _add_place(nodes: Nodes, run: RunDirectory, reference: CheckpointReference) -> None:
    base = read_manifest(run).get("base_weights", {})
    if reference.stage is not None:
        _add_stage(nodes, run, reference.stage)
    elif "checkpoint" in base:
        _add_place(nodes, *recorded_place(run.root, base["checkpoint"]))
    else:
        source = experiment_of(run).model if run.spec.is_file() else str(run)
        nodes.setdefault(("", base.get("sha256", source)), LineageNode(run, source))


def _start(run: RunDirectory, stage: StageSpec) -> Located:
    """Where a stage started; of what is not there yet, or was deleted, the stage that it names."""
    try:
        return stage_start(run, stage)
    except RunNotFound:
        chosen = _selection(run, stage)
        reference = parse_checkpoint(chosen.checkpoint if chosen else stage.start)
        return run, reference or CheckpointReference(None)


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


def changes(node: LineageNode, words: Words, within: str = "") -> list[str]:
    """The keys, or those that begin so, in which a stage differs from the round before, if both
    sample completions."""
    stage = node.stage
    before = _round_before(node.run, stage) if stage is not None else None
    if not isinstance(stage, SamplingStage) or not isinstance(before, SamplingStage):
        return []
    return [
        words(
            "lineage.change",
            name=visible(each.path),
            before=_text(each.control),
            after=_text(each.other),
        )
        for each in differences(_settings(before), _settings(stage))
        if each.path.startswith(within)
    ]


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
    settings = {name: _value(table, name) for name in CHANGEABLE}
    return {name: value for name, value in settings.items() if value is not None}


def _value(table: Mapping[str, Any], name: str) -> Any:
    first, _, rest = name.partition(".")
    value = table.get(first)
    return value.get(rest) if rest and isinstance(value, Mapping) else value


def _text(value: Any) -> str:
    return "–" if value in (ABSENT, "") else visible(setting_text(value))


def start_text(stage: StageSpec, words: Words) -> str:
    """What a stage's file says of its start, and where no rule corrects for the looks, that."""
    reference = parse_checkpoint(stage.start.rpartition("@")[2])
    loose = reference is not None and reference.rule not in (None, "gate")
    start = visible(stage.start)
    return words("promotion.uncorrected", start=start) if loose else start


def origin_text(node: LineageNode, words: Words) -> str:
    """What a stage started from, and what its file says of that."""
    stage, reference = node.stage, node.start
    if stage is None or reference is None:
        return "–"
    if reference.stage is not None and reference.step is None:
        return words("lineage.waits", start=visible(stage.start))
    checkpoint = checkpoint_name(reference)
    label = checkpoint_label(checkpoint, words)
    if parse_checkpoint(stage.start) == parse_checkpoint(checkpoint):
        return words("lineage.plain", checkpoint=label)
    return words("lineage.named", checkpoint=label, start=start_text(stage, words))


def lineage_blocks(run: RunDirectory, words: Words) -> list[Block]:
    """A row for each stage that the run has or descends from; nothing for a single stage of a
    model."""
    nodes = lineage(run)
    if len(nodes) < 3:
        return []
    heads = [words("table.stage"), words("lineage.start"), words("lineage.changed")]
    rows: list[Row] = []
    for node in nodes:
        if node.stage is not None:
            other = [] if node.run == run else [words("lineage.other_run", run=node.run)]
            head = Cell(f"{node.label} · {node.stage.method.upper()}", other, kind="head")
            changed = words.semicolon.join(changes(node, words)) or "–"
            rows.append([head, origin_text(node, words), changed])
    return [Table(heads, rows)]
