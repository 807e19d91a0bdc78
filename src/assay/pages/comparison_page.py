"""The page of a comparison of runs, what a terminal shows of it, and questions with their answers.

Numbers come from the table of `compare.judged_table`, answers from the records that it names,
questions from the source of the items. Links to the records are relative, so that a lab's folder
can be moved. Nothing is judged here.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from assay.compare.table import ComparisonTable
from assay.compare.table import Line as Scored
from assay.data.files import canonical_json, sha256_text
from assay.data.row import Row
from assay.errors import AssayError, InputError
from assay.judge.confounds import ABSENT
from assay.lab.data.prepare import rows_by_id
from assay.pages.content import (
    Labels,
    about_evaluation,
    against,
    checkpoint_label,
    difference_blocks,
    generation_blocks,
    judge_blocks,
    outcome_blocks,
    pairings,
    picked_blocks,
    score_table,
    sections,
    verdict_line,
)
from assay.pages.html import write_page
from assay.pages.page import (
    Answer,
    Block,
    Bullets,
    Cell,
    Findings,
    Folded,
    Heading,
    Line,
    Mark,
    Page,
    Section,
    SideBySide,
    Table,
    Text,
)
from assay.pages.page import Row as TableRow
from assay.pages.words import Words, flat, in_language, named_tests, number, visible, words
from assay.runs.history import answers_in
from assay.runs.records import FACTS, transcript
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import experiment_of
from assay.tasks.task import BenchmarkOptions, benchmark, task

FOLDER = "comparisons"
LONGEST_NAME = 120
SHOWN = 2
"""Items of each kind that are shown with both answers."""
KINDS = {"gained": "better", "lost": "worse", "unchanged": "plain"}
"""What becomes of an item, and its badge."""
SHOWN_VALUE = 60
"""Characters of a setting that a table shows."""
QUIET = ("follows", "note")
"""Kinds of differences that only the page lists."""


def write_comparison(table: ComparisonTable, root: Path, lang: str = "en") -> Path:
    """Write the page (.html and .md) under `comparisons/` in the lab's root, named after runs and
    evaluation; the same comparison made again replaces it. Returns the HTML page.

    Raises InputError for a language, and where the page cannot be written.
    """
    w = words(lang)
    target = in_language((root / FOLDER / _page_name(table)).with_suffix(".html"), lang).resolve()
    try:
        return write_page(comparison_page(table, w, target.parent), target)
    except OSError as error:
        problem = f"{target} cannot be written: {error.strerror or error}"
        raise InputError(problem, fix="name another folder with --lab") from error


Door = Callable[[Sequence[Scored], str], str]
"""Where both answers to an item lie side by side: an address of the two lines and the item; ""
where there is none."""


def comparison_page(
    table: ComparisonTable, w: Words, folder: Path, door: Door = lambda sides, item: ""
) -> Page:
    """The whole page; links are relative to its `folder`, items lead through their `door`."""
    labels = line_labels(table, w)
    blocks: list[Block] = [
        Text(about_evaluation(table, w), "lead"),
        *(Text(verdict_line(pairing, labels, w)) for pairing in pairings(table)),
        *warned(table, w),
        *comparison_sections(table, w, folder, door),
    ]
    footer = w("compare.footer", version=version("assay-lab"))
    title = w("compare.title", evaluation=table.evaluation.name)
    return Page(w, title.removesuffix(" · Assay"), blocks, footer, title)


def warned(table: ComparisonTable, w: Words) -> list[Block]:
    """Accepted confounds and findings."""
    marked, findings = mark(table, w), (*table.left_out, *table.findings)
    blocks: list[Block] = [Text(marked, "warning")] if marked else []
    return [*blocks, *([Findings(findings)] if findings else [])]


def comparison_sections(
    table: ComparisonTable,
    w: Words,
    folder: Path | None = None,
    door: Door = lambda sides, item: "",
    wanted: Sequence[str] = (),
) -> list[Section]:
    """The sections that have something to say; those of some anchors where they are `wanted`."""
    labels, note = line_labels(table, w), mark(table, w)
    control = labels[table.control.name]
    about = Text(w("compare.differences_about"), "soft")

    def differences() -> list[Block]:
        blocks = difference_blocks(table, labels, w, note)
        return [about, *blocks] if blocks else []

    parts: dict[str, tuple[str, Callable[[], Sequence[Block]]]] = {
        "scores": (
            w("compare.scores"),
            lambda: [score_table(table, labels, w, folder, note=note)],
        ),
        "differences": (w("compare.differences", control=control), differences),
        "generation": (w("generation.title"), lambda: generation_blocks([(table, labels)], w)),
        "judge": (w("judge.title"), lambda: judge_blocks(table, w)),
        "picked": (w("picked.title"), lambda: picked_blocks(table, labels, w)),
        "outcomes": (w("page.errors"), lambda: outcome_blocks(table, labels, w)),
        "fairness": (w("compare.fairness"), lambda: _fairness(table, control, w, not wanted)),
        "flips": (w("compare.flips"), lambda: flips_blocks(table, labels, w, table.lines, door)),
        "methods": (w("page.methods"), lambda: [Text(line) for line in _methods(table, w)]),
    }
    return sections(parts, wanted)


IN_TERMINAL = ("scores", "differences", "generation", "judge", "picked", "outcomes", "fairness")


def comparison_shown(table: ComparisonTable, lang: str = "en") -> list[Block]:
    """What a terminal shows of the page."""
    w = words(lang)
    title = Heading(f"{table.evaluation.name} ({table.evaluation.benchmark})")
    return [title, *comparison_sections(table, w, wanted=IN_TERMINAL)]


def line_labels(table: ComparisonTable, w: Words) -> dict[str, str]:
    """Short names of the lines: the run, its id where two runs share a name, the checkpoint.

    Runs of other tools keep the name that their file gives them.
    """
    split = {line.name: line.name.partition("@") for line in table.lines if line.address}
    names = [run.partition("/")[0] for run in {run for run, _, _ in split.values()}]
    labels = {line.name: line.name for line in table.lines}
    for name, (run, at, checkpoint) in split.items():
        short, _, id_ = run.partition("/")
        if names.count(short) > 1:
            short += "/" + id_.rpartition("-")[2]
        labels[name] = f"{short} · {checkpoint_label(checkpoint, w)}" if at else name
    return labels


def mark(table: ComparisonTable, w: Words) -> str:
    """The note on every table of a comparison with accepted confounds."""
    return w("compare.mark", allowed=w.listing.join(table.allowed)) if table.allowed else ""


def _fairness(table: ComparisonTable, control: str, w: Words, whole: bool) -> list[Block]:
    """The parts of the runs' manifests: every difference, then those that are equal; consequences
    and notes on the `whole` page alone."""
    if len(table.lines) < 2:
        return []
    loud, quiet = list[TableRow](), list[TableRow]()
    kinds = {state.part: table.state(state) for state in table.parts}
    for state in table.parts:
        kind, part = kinds[state.part], w(f"part.{state.part}")
        for rows in (loud, quiet):
            own = [each for each in state.differences if (each.kind in QUIET) == (rows is quiet)]
            lines: list[Line] = []
            for each in own:
                one, two = each.control, each.other
                before, after = _shown(one, two, w), _shown(two, one, w)
                known = w.within(w(f"compare.kind_{each.kind}"))
                lines.append((Mark(each.path, "code"), known, f"{w.colon}{before} → {after}"))
            if rows is loud and kind != "same" and not state.differences:
                lines.append("–")  # unknown
            if lines:
                mark = Mark(w(f"compare.kind_{kind}"), kind)
                rows.append([part, mark, Cell(lines[0], lines[1:])])
    same = w.listing.join(w(f"part.{part}") for part, kind in kinds.items() if kind == "same")
    columns = [w(f"compare.{name}") for name in ("part", "state", "differs")]
    tables = [rows for rows in (loud, quiet if whole else []) if rows]
    return [
        Text(w("compare.fairness_about", control=control), "soft"),
        *(Table(columns, rows, kind="cards parts") for rows in tables),
        *([Text(w("compare.same_list", parts=same))] if same else []),
    ]


def _shown(value: Any, beside: Any, w: Words) -> str:
    """A value, cut from where it differs from the one beside it if its beginning would be alike."""
    if value == ABSENT:
        return w("compare.absent")
    texts = (str(each).lower() if isinstance(each, bool) else str(each) for each in (value, beside))
    text, other = (" ".join(each.split()) for each in texts)
    if len(text) <= SHOWN_VALUE:
        return text
    first = next((n for n, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), 0)
    if first < SHOWN_VALUE:
        return f"{text[:SHOWN_VALUE]} …"
    start = first - SHOWN_VALUE // 2
    rest = text[start : start + SHOWN_VALUE]
    return f"… {rest} …" if start + SHOWN_VALUE < len(text) else f"… {rest}"


def flips_blocks(
    table: ComparisonTable,
    labels: Labels,
    w: Words,
    lines: Sequence[Scored],
    door: Door = lambda sides, item: "",
    most: int = SHOWN,
) -> list[Block]:
    """The changed items of some lines: counts, addresses, the first `most` of each kind in full."""
    pairings = [line.to_control for line in lines if line.to_control is not None]
    if not pairings:
        return []
    about = Text(w("compare.flips_about"), "soft")
    blocks: list[Block] = []
    rows: Mapping[str, Row] = {}
    run = table.control.run
    try:
        rows = item_rows(run, table.evaluation.name) if run is not None else {}
    except AssayError as error:
        blocks.append(Text(w("page.no_questions", why=str(error)), "warning"))
    named = {line.name: line for line in table.lines}
    for pairing in pairings:
        sides = (named[pairing.control], named[pairing.other])
        kinds = {"gained": pairing.flips.gained, "lost": pairing.flips.lost}
        if not any(kinds.values()):
            kinds = {"unchanged": pairing.flips.unchanged}
        shown = [item for items in kinds.values() for item in items[:most]]
        answers = {line.name: _answers(line, shown) for line in sides}
        blocks.append(Heading(against(pairing, labels, w)))
        for kind, items in kinds.items():
            if not items:
                continue
            badge = Mark(w(f"kind.{kind}"), KINDS[kind])
            blocks.append(Text((badge, f" {number(len(items))}")))
            for item in items[:most]:
                both = [(labels[line.name], answers[line.name].get(item)) for line in sides]
                blocks += question_blocks(
                    Mark(item, "", door(sides, item)), rows.get(item), both, w
                )
            if kind == "unchanged":
                continue
            every = [Mark(sides[1].address + item, "code", door(sides, item)) for item in items]
            blocks.append(
                Folded(w("compare.all_items", count=number(len(items))), [about, Bullets(every)])
            )
    return blocks


def _answers(line: Scored, items: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The first answers of a record to some items; none of a file that another tool wrote."""
    if line.file is None or not line.address or not items:
        return {}
    every = answers_in(line.file)
    return {a["item_id"]: a for a in every if a["repeat"] == 0 and a["item_id"] in items}


def _methods(table: ComparisonTable, w: Words) -> list[str]:
    """The methods of the figures, in sentences."""
    tests = named_tests([pairing.comparison.method for pairing in pairings(table)], w)
    lines = [w("methods.one"), w("methods.two", tests=tests), w("methods.three")]
    return [*lines, w("compare.methods_detectable"), w("compare.methods_fairness")]


def _page_name(table: ComparisonTable) -> str:
    """`other-vs-control-on-evaluation`, of names that any file system takes."""
    control, *others = [
        re.sub(r"/[^@]*" if line.address else r"^[./]+", "", line.name) for line in table.lines
    ]
    versus = "-vs-".join(filter(None, ("-".join(others), control)))
    name = f"{versus}-on-{table.evaluation.name}"
    # No dot may be left: what follows it would be taken for the suffix.
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    # Comparisons whose names begin alike must not replace one another's page.
    whole = len(clean) <= LONGEST_NAME
    return clean if whole else f"{clean[: LONGEST_NAME - 9]}-{sha256_text(name)[:8]}"


LONGEST = 3000
"""Characters of a text that a page shows."""


def question_blocks(
    title: Line,
    row: Row | None,
    sides: Sequence[tuple[str, Mapping[str, Any] | None]],
    words: Words,
) -> list[Block]:
    """A question with its answers side by side; nothing where one of them is not there."""
    answers = [answer_view(label, line, words) for label, line in sides if line is not None]
    question, gold = question_and_gold(row)
    whole = SideBySide(title, question, answers, gold, words("page.gold"))
    return [whole] if len(answers) == len(sides) else []


def answer_view(label: str, line: Mapping[str, Any], words: Words) -> Answer:
    """A line of a record as an answer with its score."""
    if line["score"] is None:
        result = words("answer.abstained", why=visible(line["why"]) or "–")
    elif line["error"]:
        error = visible(line["error"])
        result = words("answer.error", score=number(line["score"]), error=error)
    else:
        result = words("answer.scored", score=number(line["score"]))
    length = "answer.truncated" if line["ended"] == "length" else "answer.tokens"
    # A model behind an endpoint has the counts of its server, where that gives any.
    tokens = line["completion_tokens"]
    note = words(length, tokens="?" if tokens is None else number(tokens))
    text = transcript(line["messages"]) if line.get("messages") else line["output"]
    noted = json.loads(line.get(FACTS) or "{}").items()
    facts = tuple((flat(name), shortened(str(value))) for name, value in noted)
    return Answer(label, result, shortened(text), facts, f"{line['sample_id']} · {note}")


def item_rows(run: RunDirectory, evaluation: str) -> Mapping[str, Row]:
    """The items of an evaluation by id, from their source; empty for one that the experiment file
    does not name. Raises what reading the source raises.
    """
    experiment = experiment_of(run)
    spec = experiment.evaluate.get(evaluation)
    if spec is None:
        return {}
    skill = task(experiment.task, run.root)
    if spec.benchmark is not None:
        options = BenchmarkOptions(spec.options, run.root)
        rows: Sequence[Row] = benchmark(skill, spec.benchmark, options).items
    else:
        return rows_by_id(experiment, (spec.data or "").partition(".")[0], run.root)
    return {row.id: row for row in rows}


def question_and_gold(row: Row | None) -> tuple[str, str]:
    """The question of an item, its last user message, and the accepted answer; "" where unknown."""
    if row is None:
        return "", ""
    questions = [m.content for m in row.messages if m.role == "user"]
    gold, last = row.gold, row.messages[-1]
    if gold is None:  # the answer as the data has it
        gold = last.content if last.role == "assistant" else ""
    text = gold if isinstance(gold, str) else canonical_json(gold)
    return shortened(questions[-1]) if questions else "", shortened(text)


def shortened(text: str) -> str:
    """Text safe to show, cut where it is long, saying how much is missing."""
    text = visible(text)
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]} … (+{len(text) - LONGEST:,})"
