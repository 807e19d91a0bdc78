"""The stages that a run descends from, as a table: what each started from, and what it changed."""

from dataclasses import dataclass
from typing import Any

from assay.experiment.checkpoint_reference import (
    CheckpointReference,
    checkpoint_name,
    parse_checkpoint,
)
from assay.experiment.reward_tables import Reward, plain
from assay.experiment.stage_tables import SamplingStage, StageSpec
from assay.judge.confounds import ABSENT, differences
from assay.pages.content import checkpoint_label, setting_text
from assay.pages.page import Block, Cell, Row, Table
from assay.pages.words import Words, visible
from assay.runs.manifest_file import read_manifest
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import Located, RunNotFound, experiment_of, recorded_place, stage_start

EVERY = dict.fromkeys(
    ("algorithm", "clip", "reward", "overlong", "kl", "prompts", "group", "data"), True
)
CHANGEABLE: dict[str, Any] = {
    **EVERY,
    "optimizer": {"lr"},
    "sampling": {"max_tokens", "temperature"},
    "adapt": {"kind", "rank"},
}
"""Settings of a round whose change is shown."""


@dataclass(frozen=True, slots=True)
class LineageNode:
    """A stage of a run with the checkpoint that it started from."""

    run: RunDirectory
    label: str
    stage: StageSpec
    start: CheckpointReference


def lineage(run: RunDirectory) -> list[LineageNode]:
    """The stages of a run in their order, each behind all that it descends from.

    Raises what reading the runs raises; a run that is gone ends the line.
    """
    nodes: dict[tuple[str, str], LineageNode] = {}

    def add(run: RunDirectory, reference: CheckpointReference) -> None:
        name = reference.stage
        if name is None:
            base = read_manifest(run).get("base_weights", {})
            if "checkpoint" in base:
                add(*recorded_place(run.root, base["checkpoint"]))
        elif (str(run), name) not in nodes and run.spec.is_file():
            stage = experiment_of(run).stage[name]
            add(*(place := _start(run, stage)))
            nodes[str(run), name] = LineageNode(run, name, stage, place[1])

    for name in experiment_of(run).stage:
        add(run, CheckpointReference(name))
    return list(nodes.values())


def _start(run: RunDirectory, stage: StageSpec) -> Located:
    """Where a stage started; of what is not there, the stage that its file names."""
    try:
        return stage_start(run, stage)
    except RunNotFound:
        return run, stage.starts_from or CheckpointReference(None)


def changes(node: LineageNode, words: Words, within: str = "") -> list[str]:
    """The keys, or those that begin so, in which a stage differs from the round before, if both
    sample completions."""
    run, stage = node.run, node.stage
    # The stage whose checkpoint was looked for: the gate may have kept an earlier one.
    if (reference := stage.starts_from) is None:
        run, reference = _start(run, stage)
    before = experiment_of(run).stage.get(reference.stage or "") if run.spec.is_file() else None
    if not isinstance(stage, SamplingStage) or not isinstance(before, SamplingStage):
        return []
    changed = differences(_settings(before), _settings(stage))
    return [
        words("lineage.change", name=visible(c.path), before=_text(c.control), after=_text(c.other))
        for c in changed
        if c.path.startswith(within)
    ]


def _settings(stage: StageSpec) -> dict[str, Any]:
    """The changeable settings of a stage that are set."""
    table = stage.model_dump(exclude_none=True, include=CHANGEABLE)
    reward: Reward | None = getattr(stage, "reward", None)
    if reward is not None:
        table["reward"] = plain(reward)
    if not table.get("kl", {}).get("coef"):
        table.pop("kl", None)
    return table


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
    if reference.stage is not None and reference.step is None:
        return words("lineage.waits", start=visible(stage.start))
    checkpoint = checkpoint_name(reference)
    label = checkpoint_label(checkpoint, words)
    if stage.starts_from == parse_checkpoint(checkpoint):
        return words("lineage.plain", checkpoint=label)
    return words("lineage.named", checkpoint=label, start=start_text(stage, words))


def lineage_blocks(run: RunDirectory, words: Words) -> list[Block]:
    """A row for each stage that the run has or descends from; nothing for a single stage of a
    model."""
    nodes = lineage(run)
    heads = [words("table.stage"), words("lineage.start"), words("lineage.changed")]
    rows: list[Row] = []
    for node in nodes:
        other = [] if node.run == run else [words("lineage.other_run", run=node.run)]
        head = Cell(f"{node.label} · {node.stage.method.upper()}", other, kind="head")
        changed = words.semicolon.join(changes(node, words)) or "–"
        rows.append([head, origin_text(node, words), changed])
    return [Table(heads, rows)] if len(rows) > 1 else []
