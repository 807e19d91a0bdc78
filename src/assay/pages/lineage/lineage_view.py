"""The lineage of a run's stages in words, as an SVG graph and as a list.

What descends from what comes from `lineage`; only words, places and lines are added here.
"""

import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from assay.experiment.checkpoint_reference import (
    CheckpointReference,
    checkpoint_name,
    parse_checkpoint,
)
from assay.experiment.reward_tables import Reward, plain
from assay.experiment.stage_tables import OTHER_RUN, SamplingStage, StageSpec
from assay.judge.confounds import ABSENT, differences
from assay.judge.intervals import Interval, score_interval
from assay.pages.charts import Scale, dot, drawing, line, rect, text
from assay.pages.page import Block, Bullets, Figure, Line, Mark, Only, Text, joined
from assay.pages.result_tables import checkpoint_label, setting_text
from assay.pages.words import Words, percent, score_text, visible
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


WIDTH = 1012
SCORES_AT, SCORES_END = 672, 1004
"""Where the bars of the scores begin and end."""
LANE, ROW_GAP, TEXT_LINE, SCORE_LINE = 22, 20, 17, 36
FEW, NARROW = 96, 60
"""Characters of a line beside the bars, and those of a script of wide characters."""


@dataclass(frozen=True, slots=True)
class LineageRow:
    """One model or stage in words."""

    node: LineageNode
    depth: int
    lane: int
    """Column of its mark: a first child stays below its parent."""
    title: str
    lines: tuple[str, ...]
    """What it started from, and what changed."""
    corrected: bool
    """Whether its start was chosen with correction for looks, or not chosen by scores at all."""


def lineage_rows(run: RunDirectory, words: Words) -> list[LineageRow]:
    """The nodes in words, parents before their children; empty for a single stage of a model."""
    nodes = lineage(run)
    if len(nodes) < 3:
        return []
    rows: list[LineageRow] = []
    lanes = 0
    for node in nodes:
        parent = None if node.parent is None else rows[node.parent]
        if parent is not None and all(row.node.parent != node.parent for row in rows):
            lane = parent.lane
        else:
            lane, lanes = lanes, lanes + 1
        depth = 0 if parent is None else parent.depth + 1
        rows.append(_row(run, node, depth, lane, words))
    return rows


def _row(run: RunDirectory, node: LineageNode, depth: int, lane: int, words: Words) -> LineageRow:
    title = node.label if node.method else words("lineage.model", source=visible(node.label))
    if node.method:
        title += f" · {node.method.upper()}"
    if node.method and node.run != run:
        title += " · " + words("lineage.other_run", run=node.run)
    lines = [origin_text(node.origin, words)] if node.origin else []
    if node.changes:
        said = words.semicolon.join(change_text(change, words) for change in node.changes)
        lines.append(words("lineage.changes", changes=said))
    chosen = node.origin.selection if node.origin else None
    return LineageRow(node, depth, lane, title, tuple(lines), chosen is None or chosen.corrected)


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


def score_line(score: CheckpointScore, words: Words) -> str:
    """A checkpoint's score with its interval."""
    low, high = (
        score_text(end, score.interval) for end in (score.interval.low, score.interval.high)
    )
    return words(
        "lineage.score",
        checkpoint=checkpoint_label(score.checkpoint, words),
        evaluation=score.evaluation,
        score=score_text(score.score, score.interval),
        low=low,
        high=high,
    )


def lineage_blocks(run: RunDirectory, words: Words) -> list[Block]:
    """The lineage as a picture, and as a list in other media; nothing for a single stage of a
    model."""
    rows = lineage_rows(run, words)
    if not rows:
        return []
    lines = [_in_characters(row, words) for row in rows]
    return [
        Text(words("page.lineage_about"), "soft"),
        Figure(lineage_graph(rows, words)),
        Only(("markdown", "terminal"), [Bullets(lines, [row.depth for row in rows])]),
    ]


def _in_characters(row: LineageRow, words: Words) -> Line:
    loose = "" if row.corrected else "undecided"
    lines = [Mark(each, "" if n else loose) for n, each in enumerate(row.lines)]
    scores = [score_line(score, words) for score in row.node.scores]
    return joined(Mark(row.title), *lines, *scores, by=words.semicolon)


def has_choices(run: RunDirectory) -> bool:
    """Whether a stage of the run started from a checkpoint that a rule chose."""
    return any(node.origin and node.origin.selection for node in lineage(run))


def lineage_graph(rows: Sequence[LineageRow], words: Words) -> Markup:
    """The lineage as a picture: a mark for each model and stage, joined to what it started from;
    a dashed line leads from a choice that is not corrected for looks. Scores are on one scale."""
    left = 40 + LANE * max(row.lane for row in rows)
    scores = [score for row in rows for score in row.node.scores]
    scale = _scale(scores)
    marks: list[Markup] = []
    places: list[tuple[float, float]] = []
    y = 14.0
    for row in rows:
        written = [
            (part, "loose" if n == 0 and not row.corrected else "line")
            for n, each in enumerate(row.lines)
            for part in wrapped(each)
        ]
        place = (16.0 + LANE * row.lane, y)
        if row.node.parent is not None:
            marks.append(_edge(places[row.node.parent], place, row.corrected))
        places.append(place)
        marks.append(text(left, y + 4, row.title, "label"))
        marks += [
            text(left, y + 4 + TEXT_LINE * (n + 1), part, kind)
            for n, (part, kind) in enumerate(written)
        ]
        for n, score in enumerate(row.node.scores):
            marks += _bar(score, scale, y + SCORE_LINE * n, words)
        y += max(TEXT_LINE * (len(written) + 1), SCORE_LINE * len(row.node.scores)) + ROW_GAP
    marks += [
        dot(*place, 6, "mark" if row.node.method else "mark hollow", row.title)
        for place, row in zip(places, rows, strict=True)
    ]
    if scores:
        marks += _ends(scale, scores[0].interval, y)
    return drawing(WIDTH, y + 8, marks, words("page.lineage"))


def wrapped(said: str) -> list[str]:
    """A text in lines that end before the bars."""
    wide = any(unicodedata.east_asian_width(letter) in "WF" for letter in said)
    return textwrap.wrap(said, NARROW if wide else FEW)


def _scale(scores: Sequence[CheckpointScore]) -> Scale:
    low = min((score.interval.low for score in scores), default=0.0)
    high = max((score.interval.high for score in scores), default=1.0)
    return Scale(low, high, SCORES_AT, SCORES_END)


def _edge(parent: tuple[float, float], child: tuple[float, float], corrected: bool) -> Markup:
    """Down the child's lane, after a bend where that is not the parent's."""
    (x, y), (to, end) = parent, child
    bend = "" if x == to else f"C{x:g} {y + 18:g} {to:g} {y + 4:g} {to:g} {y + 24:g}"
    kind = "lane" if corrected else "lane loose"
    return Markup('<path d="M{} {}{}V{}" class="{}"/>').format(
        f"{x:g}", f"{y:g}", bend, f"{end:g}", kind
    )


def _bar(score: CheckpointScore, scale: Scale, y: float, words: Words) -> list[Markup]:
    """A score in words, and below it its interval."""
    said = score_line(score, words)
    low, high = scale(score.interval.low), scale(score.interval.high)
    return [
        text(SCORES_AT, y + 4, said, "line"),
        line(SCORES_AT, y + 16, SCORES_END, y + 16, "grid"),
        rect(low, y + 12, max(high - low, 1), 8, "range", said),
        dot(scale(score.score), y + 16, 4, "mark", said),
    ]


def _ends(scale: Scale, kind: Interval, y: float) -> list[Markup]:
    """The scores at the ends of the bars."""
    return [
        text(SCORES_AT, y, score_text(scale.low, kind), "tick"),
        text(SCORES_END, y, score_text(scale.high, kind), "tick", "end"),
    ]
