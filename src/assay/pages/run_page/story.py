"""The blocks about the run itself: examples, training, health, methods.

Like `content`, this module only adds words and units to the numbers of other modules.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.compare.table import Pairing
from assay.compare.table import Table as Compared
from assay.errors import Finding
from assay.experiment.checkpoint_reference import RULES, parse_checkpoint
from assay.judge.intervals import Interval, counted, grouped
from assay.judge.selection import Promotion
from assay.lab.monitor.stage_health import explained
from assay.pages.charts import (
    Checkpoints,
    Told,
    curve_panel,
    told_curve,
)
from assay.pages.content import interval_text
from assay.pages.facts import Curve, DevScore, RunFacts
from assay.pages.page import (
    Block,
    Cell,
    Column,
    Figure,
    Findings,
    Folded,
    Heading,
    Mark,
    Panels,
    Table,
    Text,
)
from assay.pages.progress.progress_content import promotion, uncorrected_choice
from assay.pages.provenance import marks
from assay.pages.result_tables import StageRow, checkpoint_label, marked_start, stage_rows
from assay.pages.run_page.trainer_content import trainer_blocks
from assay.pages.words import Words, metric_label, named_tests, number, percent, points, visible
from assay.runs.checkpoints import Selection, read_selection, read_selections
from assay.runs.manifest_file import IMPORTED, PUT_ASIDE
from assay.runs.records import OUTCOME, RIGHT, outcome
from assay.runs.status import read_sink_states
from assay.train.metric_names import is_written

CUT = "length"
"""How a completion ended that was cut at the limit of tokens."""
MOST_BINS, FEWEST_IN_BIN = 6, 8
MOST_RECORDS = 4
"""Checkpoints whose answers are shown by length: the control and the last ones."""


@dataclass(frozen=True, slots=True)
class LengthBin:
    """The scored answers of one range of lengths."""

    low: int
    high: int
    """Tokens, both included."""
    share: float
    """Of right answers."""
    interval: Interval
    answers: int


@dataclass(frozen=True, slots=True)
class LengthsOfRecord:
    """The share of right answers by length, truncated answers apart."""

    checkpoint: str
    bins: tuple[LengthBin, ...]
    truncated: LengthBin | None
    """None where none was truncated."""


def lengths_of_record(
    checkpoint: str, answers: Sequence[Mapping[str, Any]]
) -> LengthsOfRecord | None:
    """The scored answers of a record by their tokens, in bins of about equal numbers.

    None where there are too few for two bins, or an endpoint did not count tokens.
    """
    scored = [a for a in answers if a["score"] is not None and a["completion_tokens"] is not None]
    ended = sorted((a for a in scored if a["ended"] != CUT), key=lambda a: a["completion_tokens"])
    bins = tuple(map(_bin, _parted(ended)))
    if len(bins) < 2:
        return None
    cut = [a for a in scored if a["ended"] == CUT]
    return LengthsOfRecord(checkpoint, bins, _bin(cut) if cut else None)


def _parted(answers: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Sorted answers in up to MOST_BINS parts; answers of one length are in one part."""
    count = min(MOST_BINS, len(answers) // FEWEST_IN_BIN)
    parts: list[list[Mapping[str, Any]]] = []
    for place, answer in enumerate(answers):
        same = parts and parts[-1][-1]["completion_tokens"] == answer["completion_tokens"]
        if not parts or (place * count // len(answers) >= len(parts) and not same):
            parts.append([])
        parts[-1].append(answer)
    if len(parts) > 1 and len(parts[-1]) < FEWEST_IN_BIN:
        rest = parts.pop()
        parts[-1] += rest
    return parts


def _bin(answers: Sequence[Mapping[str, Any]]) -> LengthBin:
    """Wilson's interval; robust to clusters where an item was answered several times."""
    right = [float(outcome(a["score"], a["error"], a.get(OUTCOME)) == RIGHT) for a in answers]
    items = [a["item_id"] for a in answers]
    share = sum(right) / len(right)
    single = len(set(items)) == len(items)
    found = counted(share, len(right)) if single else grouped(right, items, (0.0, 1.0))
    assert found.interval is not None
    lengths = [a["completion_tokens"] for a in answers]
    return LengthBin(min(lengths), max(lengths), share, found.interval, len(answers))


def length_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """The answers of the main evaluation by length, by checkpoint."""
    table = facts.main.table if facts.main else None
    if table is None:
        return []
    lines = table.lines
    shown = lines if len(lines) <= MOST_RECORDS else (lines[0], *lines[1 - MOST_RECORDS :])
    rows = [
        (checkpoint_label(line.name, words), *row)
        for line in shown
        if (found := lengths_of_record(line.name, facts.answers(table.evaluation, line.name)))
        for row in _rows(found, words)
    ]
    if not rows:
        return []
    heads = [words("table.checkpoint"), words("figure.range"), Column(words("figure.share"), True)]
    heads += [words("table.interval"), Column("n", True)]
    return [Text(words("figure.bins_about"), "soft"), Table(heads, rows)]


def _rows(found: LengthsOfRecord, words: Words) -> list[Sequence[str]]:
    bins = [(f"{each.low}–{each.high}", each) for each in found.bins]
    if found.truncated is not None:
        bins.append((words("figure.cut"), found.truncated))
    return [
        (name, percent(e.share), interval_text(e.interval, words), number(e.answers))
        for name, e in bins
    ]


GAP = "engine/gap"


def engine_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """A line for each stage whose completions an engine sampled; nothing where none did."""
    stages = [(name, _lines(lines)) for name, lines in facts.metrics.items()]
    rows = [[name, *_cells(lines)] for name, lines in stages if lines]
    if not rows:
        return []
    names = ("steps", "first", "gap", "sampled", "arrived", "read", "seconds")
    heads = [Column(words(f"engine.{name}"), right=True) for name in names]
    return [Text(words("engine.about"), "soft"), Table([words("engine.stage"), *heads], rows)]


def _lines(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [line for line in lines if GAP in line]


def _cells(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    def of(name: str) -> list[float]:
        return [line[f"engine/{name}"] for line in lines if f"engine/{name}" in line]

    arrived, errors, read = of("proof_stage"), of("proof_stage_error"), of("read")
    share = f"{percent(arrived[-1])} ± {percent(errors[-1])}" if arrived else "–"
    parts = ("load_seconds", "read_seconds", "proof_seconds")
    spent = sum(sum(of(part)) for part in parts) / len(lines)
    return [
        number(len(lines)),
        number(lines[0]["engine/gap_first"]),
        number(max(of("gap"))),
        number(max(of("gap_sampled"))) if of("gap_sampled") else "–",
        share,
        percent(min(read)) if read else "–",
        number(spent),
    ]


SHARES = frozenset(
    {
        "signal_share",
        "reward_accuracy",
        "truncated_share",
        "clip_low_share",
        "clip_high_share",
        "abstained_share",
    }
)


def stage_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """Training, stage by stage: settings, curves, rewards, dev scores; of stages with steps."""
    blocks: list[Block] = []
    for row in stage_rows(facts):
        if row.name in facts.metrics:
            title = words("stage.title", name=row.name, method=row.method.upper())
            blocks += [Heading(title), Text(about_stage(row, words), "soft")]
            blocks += trainer_blocks(facts, row.name, words)
            blocks += _curves(facts, row.name, words)
            blocks += _dev(facts.dev_scores(row.name), words)
    return blocks


def _curves(facts: RunFacts, stage: str, words: Words) -> list[Block]:
    found = [*facts.curves(stage), *facts.part_curves(stage)]
    marked = checkpoints_of(facts, stage)
    panels = [panel(curve, marked, words) for curve in found if not curve.constant]
    said = [
        constants([curve for curve in found if curve.constant], words),
        legend(found, marked, words),
    ]
    shown: list[Block] = [Panels(panels)] if panels else []
    return [
        *shown,
        *_of_tools(facts, stage, marked, words),
        *(Text(each, "soft") for each in said if each),
    ]


def _of_tools(facts: RunFacts, stage: str, marked: Checkpoints, words: Words) -> list[Block]:
    """The metrics of another trainer that have no name here, folded."""
    method = facts.experiment.stage[stage].method
    own = [c for c in facts.further_curves(stage) if not is_written(c.metric, method)]
    panels = [panel(curve, marked, words) for curve in own if not curve.constant]
    return [Folded(words("chart.of_tools"), [Panels(panels)])] if panels else []


def _dev(scores: Sequence[DevScore], words: Words) -> list[Block]:
    if not scores:
        return []
    rows = [
        [
            number(each.step),
            Cell(percent(each.score), [Mark(words("chart.chosen"))] if each.chosen else []),
            interval_text(each.interval, words),
        ]
        for each in scores
    ]
    heads = [Column(words(name), True) for name in ("chart.step", "table.score", "table.interval")]
    about = Text(words("chart.dev_about", items=scores[0].items), "soft")
    return [Heading(words("chart.dev")), about, Table(heads, rows, kind="plain")]


def about_stage(row: StageRow, words: Words) -> str:
    """A stage's settings in one line."""
    return words(
        "stage.about",
        start=marked_start(row.start, words),
        data=row.data,
        steps=number(row.done),
        minutes="–" if row.seconds is None else f"{row.seconds / 60:.1f}",
        optimizer=row.optimizer,
        adapt=row.adapt,
        detail=words("stage.detail", detail=row.detail) if row.detail else "",
    )


def checkpoints_of(facts: RunFacts, stage: str) -> Checkpoints:
    """The checkpoints of a stage, and the one that the dev items promoted."""
    best = read_selection(facts.run.path, stage)
    reference = parse_checkpoint(best.checkpoint) if best and best.promoted else None
    own = reference is not None and reference.stage == stage
    return Checkpoints(facts.checkpoint_steps(stage), reference.step if reference and own else None)


def constants(found: Sequence[Curve], words: Words) -> str:
    """The metrics whose value never changed, in one line; empty without any."""
    values = [
        f"{metric_label(curve.metric, words)} {writer(curve.metric)(curve.last)}" for curve in found
    ]
    return words("chart.constant", metrics=words.listing.join(values)) if values else ""


def legend(found: Sequence[Curve], marked: Checkpoints, words: Words) -> str:
    """The legend of the curves: bands, triangles and the dashed line."""
    shown = [
        ("chart.band", any(any(curve.limits) for curve in found if not curve.constant)),
        ("chart.checkpoints", bool(marked.steps)),
        ("chart.chosen_line", marked.chosen is not None),
    ]
    return " ".join(words(key) for key, there in shown if there)


def writer(metric: str) -> Callable[[float | None], str]:
    """The format of a metric's values."""
    return percent if metric in SHARES else number


def panel(curve: Curve, marked: Checkpoints, words: Words) -> Figure:
    """One learning curve with its ends."""
    write = writer(curve.metric)
    first = write(next(value for value in curve.values if value is not None))
    label, last = metric_label(curve.metric, words), write(curve.last)

    def tell(curve: Curve, x: Callable[[float], float], _: int) -> Told:
        return told_curve(label, curve, write, words, x)

    drawing = curve_panel([curve], f"{label}: {first} → {last}", write, tell, marked)
    return Figure(drawing, label, last, first)


def placed_findings(facts: RunFacts, words: Words) -> list[tuple[str, Finding]]:
    """Findings of the health rules for each stage, and of the identity rules in the main table."""
    found = [
        (stage, each)
        for stage in facts.experiment.stage
        if stage in facts.metrics
        for each in facts.health(stage)
    ]
    table = facts.main.table if facts.main else None
    own = table.findings if table else ()
    return [*found, *((table.evaluation.name, each) for each in own if table)]


def health_blocks(facts: RunFacts, words: Words) -> list[Block]:
    """The findings, or that there is none; nothing before the first step."""
    found = placed_findings(facts, words)
    if found:
        return [Findings([each for _, each in found], [place for place, _ in found])]
    return [Text(words("page.healthy"))] if facts.metrics else []


def selection_section(facts: RunFacts, words: Words) -> list[str]:
    """The best checkpoint of each stage, with the reason."""
    looks = {stage: explained(facts.history, stage) for stage in facts.experiment.stage}
    gate = read_selections(facts.run.path)
    said = [promotion(stage, gate.get(stage), found, words) for stage, found in looks.items()]
    said += [
        uncorrected_choice(stage, chosen, words)
        for stage in facts.experiment.stage
        for rule in RULES
        if (chosen := read_selection(facts.run.path, stage, rule)) and not chosen.corrected
    ]
    return [*(text for text in said if text), *stalled_rounds(gate, looks, words)]


def stalled_rounds(
    gate: Mapping[str, Selection], looks: Mapping[str, Promotion | None], words: Words
) -> list[str]:
    """How often the gate kept a start, and how many dev items the differences seen would take."""
    kept = [stage for stage, chosen in gate.items() if not chosen.promoted]
    if not kept:
        return []
    counts = {"kept": len(kept), "rounds": len(gate), "stages": words.listing.join(kept)}
    found = [(stage, looks.get(stage)) for stage in kept]
    needs = [needed_items(stage, each, words) for stage, each in found if each is not None]
    return [words("promotion.stalled", **counts), *needs]


def needed_items(stage: str, found: Promotion, words: Words) -> str:
    """The dev items at which the best checkpoint of a stage would be shown better."""
    best = found.looks[found.favourite]
    values: Mapping[str, Any] = {"stage": stage, "step": found.favourite, "items": best.items}
    if best.difference <= 0:
        return words("promotion.no_gain", **values)
    values = {**values, "difference": points(best.difference), "needed": best.items_needed}
    return words("promotion.no_size" if best.items_needed is None else "promotion.needed", **values)


def method_section(facts: RunFacts, words: Words) -> list[str]:
    """The methods of the figures, in sentences."""
    table = facts.main.table if facts.main else None
    if table is None:
        return []
    tests = [p.comparison.method for p in _pairings(table)]
    said = [words("methods.one")]
    if tests:
        said.append(words("methods.two", tests=named_tests(tests, words)))
    said.append(words("methods.three"))
    if any(e.role == "select" for e in facts.experiment.evaluate.values()):
        said.append(words("methods.four"))
    return said


def _pairings(table: Compared) -> list[Pairing]:
    every = [p for line in table.lines for p in (line.to_control, line.to_previous)]
    return [pairing for pairing in every if pairing is not None]


def chips(facts: RunFacts, words: Words) -> list[tuple[str, str]]:
    """The run in a line."""
    unknown = facts.manifest.get(IMPORTED, {}).get("unknown", ())
    experiment: Mapping[str, str] = {
        "model": facts.experiment.model,
        "task": facts.experiment.task,
        "seed": "" if "seeds" in unknown else str(facts.status.seed),
        "stages": " → ".join(s.method for s in facts.experiment.stage.values()),
        "control": facts.experiment.control or "",
        "ranks": str(facts.manifest.get("machine", {}).get("ranks", "")),
        "status": words(f"status.{facts.status.status}"),
        "started": facts.status.started.replace("T", " ").removesuffix("+00:00") + " UTC",
    }
    return [(words(f"chip.{name}"), value) for name, value in experiment.items() if value]


def warnings(facts: RunFacts, words: Words) -> list[str]:
    """Warnings that come before every number."""
    found = []
    if facts.status.status != "finished":
        message = f"{words.colon}{visible(facts.status.message)}" if facts.status.message else ""
        name = words(f"status.{facts.status.status}")
        found.append(words("page.running", status=name, message=message))
    found += marks(facts, words)
    if facts.main is None:
        found.append(words("page.nothing_measured"))
    for name, state in read_sink_states(facts.run.path).states.items():
        if state.problem:
            problem = visible(state.problem)
            found.append(words("page.sink_failed", sink=name, step=state.step, problem=problem))
    if facts.experiment.as_reported:
        found.append(words("page.as_reported"))
    found += [
        _put_aside(noted, words) for noted in facts.manifest.get("time", {}).get(PUT_ASIDE, ())
    ]
    for name, stage in facts.experiment.stage.items():
        if stage.other_rendering_than:
            apart = words.listing.join(stage.other_rendering_than)
            found.append(words("page.other_rendering", stage=name, evaluations=apart))
    return found


def _put_aside(noted: Mapping[str, Any], words: Words) -> str:
    """Why a part of the run was trained twice, and the folder of the first attempt."""
    given = {"start": noted["start"], "folder": noted["folder"], "at": noted["at"]}
    if not noted["damage"]:
        return words("page.started_over", **given)
    return words("page.damaged", file=noted["damage"], **given)
