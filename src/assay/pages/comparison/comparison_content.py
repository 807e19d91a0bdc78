"""The sections and pages of a comparison of runs; the sections are shared with the terminal.

Numbers come from the table of `compare.judged_table`, answers from the records that it names,
questions from the source of the items. A page loads no other file, and its links to the records are
relative, so that a lab's folder can be moved. Nothing is judged here.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from assay.compare.table import Line as Scored
from assay.compare.table import Pairing, Table
from assay.data.hashing import sha256_text
from assay.data.row import Row
from assay.errors import AssayError, InputError
from assay.judge.confounds import ABSENT, Confound
from assay.judge.findings import Finding
from assay.judge.intervals import Interval
from assay.judge.verdict import Comparison
from assay.pages.charts import difference_bar, difference_scale, interval_bar
from assay.pages.content import (
    Section,
    about_evaluation,
    abstained_text,
    interval_text,
    items_text,
    outcome_blocks,
    pairing_view,
    sentence,
    shared_scale,
    size_text,
)
from assay.pages.drawn import difference_plot, score_bars, score_plot
from assay.pages.examples import asked, item_rows
from assay.pages.generation_content import generation_blocks
from assay.pages.html import blocks_html
from assay.pages.markdown import blocks_markdown
from assay.pages.page import Cell, Line, Mark
from assay.pages.page import Table as ScoreTable
from assay.pages.picked_content import picked_sentences
from assay.pages.result_tables import checkpoint_label
from assay.pages.templating import write_pages
from assay.pages.words import (
    Words,
    difference_text,
    in_language,
    named_tests,
    number,
    percent,
    score_text,
    translated,
    visible,
    words,
)
from assay.runs.records import read_columns

SHOWN = 2
"""Items of each kind that are shown with both answers."""
LONGEST = 2000
"""Characters of an answer that are shown."""


@dataclass(frozen=True, slots=True)
class Given:
    """One answer of a record."""

    text: str
    score: float | None


@dataclass(frozen=True, slots=True)
class Questions:
    """The items of an evaluation by id."""

    rows: Mapping[str, Row]
    problem: str = ""
    """Why the questions could not be read."""


def questions_of(table: Table) -> Questions:
    """The changed items as the control's source has them; empty if none changed or no source is
    known."""
    pairings = [line.to_control for line in table.lines if line.to_control is not None]
    run = table.control.run
    if run is None or not any(p.flips.gained or p.flips.lost for p in pairings):
        return Questions({})
    try:
        return Questions(item_rows(run, table.evaluation.name))
    except AssayError as error:
        return Questions({}, str(error))


def changed_section(
    table: Table,
    pairing: Pairing,
    labels: Mapping[str, str],
    questions: Questions,
    words: Words,
) -> dict[str, Any]:
    """The changed items of one comparison: counts, addresses, the first of each kind in full."""
    lines = {line.name: line for line in table.lines}
    control, other = lines[pairing.control], lines[pairing.other]
    kinds = {"gained": pairing.flips.gained, "lost": pairing.flips.lost}
    shown = [item for items in kinds.values() for item in items[:SHOWN]]
    answers = {line.name: _answers(line, shown) for line in (control, other)}
    return {
        "what": words(
            "table.against", other=labels[pairing.other], control=labels[pairing.control]
        ),
        "unchanged": number(len(pairing.flips.unchanged)),
        "kinds": [
            {
                "kind": kind,
                "name": words(f"kind.{kind}"),
                "count": number(len(items)),
                "items": [visible(item) for item in items],
                "address": other.address,
                "examples": [
                    _example(item, questions, (control, other), answers, labels, words)
                    for item in items[:SHOWN]
                    if all(item in answers[line.name] for line in (control, other))
                ],
            }
            for kind, items in kinds.items()
            if items
        ],
    }


def _answers(line: Scored, items: Sequence[str]) -> dict[str, Given]:
    """The first repeat of some items of a record; none of a file that another tool wrote."""
    if line.file is None or not line.address or not items:
        return {}
    found = read_columns(line.file, ["item_id", "repeat", "output", "score"])
    wanted, answers = set(items), {}
    for item, repeat, output, score in zip(*found.values(), strict=True):
        if item in wanted and repeat == 0:
            answers[item] = Given(output, score)
    return answers


def _example(
    item: str,
    questions: Questions,
    lines: tuple[Scored, Scored],
    answers: Mapping[str, Mapping[str, Given]],
    labels: Mapping[str, str],
    words: Words,
) -> dict[str, Any]:
    sides = []
    for line in lines:
        given = answers[line.name][item]
        text = visible(given.text)
        cut = text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
        score = words("answer.scored", score=number(given.score))
        address = f"assay show '{line.address}{visible(item)}'"
        sides.append({"label": labels[line.name], "score": score, "text": cut, "show": address})
    question, gold = asked(questions.rows.get(item))
    return {"item": visible(item), "question": question, "gold": gold, "sides": sides}


SHOWN_VALUE = 60
"""Characters of a setting that a table shows."""


def comparison_values(table: Table, words: Words, folder: Path) -> Section:
    """Everything that the templates write; links are relative to the page's `folder`."""
    labels, parts = line_labels(table, words), part_rows(table, words)
    pairings = [line.to_control for line in table.lines if line.to_control is not None]
    questions = questions_of(table)
    outcomes = outcome_blocks(table, [labels[line.name] for line in table.lines], words)
    generation = generation_blocks([(table, labels)], words)
    says = [{**labelled_sentence(p, labels, words), "record": i} for i, p in enumerate(pairings, 2)]
    return {
        "title": words("compare.title", evaluation=table.evaluation.name),
        "about": about_evaluation(table, words),
        "control": labels[table.control.name],
        "verdicts": verdict_rows(pairings, labels, words),
        "rows": line_rows(table, words),
        "labels": [labels[line.name] for line in table.lines],
        "outcomes_html": blocks_html(outcomes, words) if outcomes else "",
        "outcomes_markdown": blocks_markdown(outcomes, words),
        "plots": drawn_plots(table, labels),
        "generation_html": blocks_html(generation, words) if generation else "",
        "generation_markdown": blocks_markdown(generation, words),
        "tasks": task_rows(table, words),
        "picked": picked_sentences(table, labels, words),
        "mark": mark(table, words),
        "sentences": says,
        "parts": [part for part in parts if part["kind"] != "same"],
        "same_parts": [part for part in parts if part["kind"] == "same"],
        "findings": finding_rows((*table.left_out, *table.findings), words),
        "flips": [changed_section(table, p, labels, questions, words) for p in pairings],
        "questions_problem": visible(questions.problem),
        "records": record_rows(table, labels, folder),
        "methods": method_lines(pairings, words),
    }


def verdict_rows(
    pairings: Sequence[Pairing], labels: Mapping[str, str], words: Words
) -> list[dict[str, Any]]:
    """The verdict of each comparison in a line, with the number of its record."""
    return [
        {
            **(pairing_view(pairing, words) or {}),
            "what": words(
                "table.against", other=labels[pairing.other], control=labels[pairing.control]
            ),
            "record": record,
        }
        for record, pairing in enumerate(pairings, 2)
    ]


def line_labels(table: Table, words: Words) -> dict[str, str]:
    """Short names of the lines: the run, its id where two runs share a name, the checkpoint.

    Runs of other tools keep the name that their file gives them.
    """
    split = {line.name: line.name.partition("@") for line in table.lines if line.address}
    runs = {run for run, _, _ in split.values()}
    names = [run.partition("/")[0] for run in runs]
    labels = {line.name: visible(line.name) for line in table.lines}
    for name, (run, at, checkpoint) in split.items():
        short, _, id_ = run.partition("/")
        if names.count(short) > 1:
            short += "/" + id_.rpartition("-")[2]
        labels[name] = f"{short} · {checkpoint_label(checkpoint, words)}" if at else name
    return labels


def line_rows(table: Table, words: Words) -> list[Section]:
    """One row for each checkpoint, the control first."""
    labels = line_labels(table, words)
    scale = shared_scale(table.lines)
    found = [line.to_control.comparison for line in table.lines if line.to_control is not None]
    differences = difference_scale(found)
    return [
        {
            "label": labels[line.name],
            "record": index,
            **_score_cells(line, scale, words),
            "against": _pairing_cells(line.to_control, differences, words),
        }
        for index, line in enumerate(table.lines, 1)
    ]


def line_table(table: Table, words: Words) -> ScoreTable:
    """The checkpoints with their scores and their verdicts against the control."""
    heads = ("table.checkpoint", "table.score", "table.interval", "compare.items")
    more = ("compare.repeats", "compare.difference", "compare.p", "compare.verdict")
    rows = []
    for row in line_rows(table, words):
        size = Cell(row["size"], [row["abstained"]])
        interval = Cell(row["interval"], figure=row["graph"])
        cells: list[Cell | Line] = [row["label"], Mark(row["score"], "score"), interval, size]
        found = row["against"]
        if found is None:
            rows.append([*cells, row["repeats"], "–", "", words("compare.control"), ""])
            continue
        difference = f"{found['difference']} ({found['interval']})"
        verdict = Mark(found["verdict"], found["kind"])
        rows.append([*cells, row["repeats"], difference, found["p"], verdict, found["detectable"]])
    return ScoreTable([words(head) for head in (*heads, *more, "compare.smallest")], rows)


def drawn_plots(table: Table, labels: dict[str, str]) -> dict[str, str]:
    """Scores and differences with their intervals, drawn in characters."""
    lines = [(labels[line.name], line) for line in table.lines]
    found = [(label, line.to_control.comparison) for label, line in lines if line.to_control]
    return {
        "scores": score_plot(score_bars(lines), shared_scale(table.lines)),
        "differences": difference_plot(found, difference_scale([c for _, c in found])),
    }


def _score_cells(line: Scored, scale: tuple[float, float], words: Words) -> Section:
    return {
        "score": score_text(line.score, line.interval),
        "interval": interval_text(line.interval, words),
        "graph": interval_bar(line.score, line.interval, scale),
        "size": size_text(items_text(line, words), line.clusters, words),
        "repeats": number(line.repeats),
        "abstained": abstained_text(line, words),
    }


def _pairing_cells(
    pairing: Pairing | None, scale: tuple[float, float], words: Words
) -> dict[str, Any] | None:
    """The cells of a line that compare it with the control; None for the control itself."""
    if pairing is None:
        return None
    found = pairing.comparison
    low, high = (
        difference_text(end, found.interval) for end in (found.interval.low, found.interval.high)
    )
    return {
        "kind": found.verdict,
        "verdict": words(f"verdict_name.{found.verdict}"),
        "difference": difference_text(found.difference, found.interval),
        "interval": words("table.interval_text", low=low, high=high),
        "graph": difference_bar(found, scale, words),
        "p": p_text(found),
        "detectable": detectable_text(found, words),
        "gained": len(pairing.flips.gained),
        "lost": len(pairing.flips.lost),
        "unchanged": len(pairing.flips.unchanged),
        "agreement": percent(pairing.agreement),
    }


def p_text(found: Comparison) -> str:
    """The p-value after Holm's correction; a dash where the runs are not comparable."""
    return "–" if found.verdict == "not comparable" else f"{found.adjusted_p:.2g}"


def detectable_text(found: Comparison, words: Words) -> str:
    """The smallest difference that the design could have seen, in points."""
    smallest = found.minimum_detectable_difference
    if smallest is None:
        return words("compare.nothing_detectable")
    if not found.interval.share:
        return words("compare.detectable_plain", smallest=number(smallest))
    return words("compare.detectable", smallest=f"{smallest * 100:.1f}")


def task_rows(table: Table, words: Words) -> list[dict[str, Any]]:
    """The runs task by task, then the mean over tasks."""
    labels = line_labels(table, words)
    return [
        {
            "task": visible(line.task) or words("compare.tasks_alike"),
            "items": number(line.items),
            "label": labels[figure.run],
            "score": score_text(figure.score, figure.interval),
            "interval": interval_text(figure.interval, words),
            "difference": _difference_text(figure.difference, figure.difference_interval, words),
        }
        for line in table.tasks
        for figure in line.figures
    ]


def _difference_text(difference: float | None, interval: Interval | None, words: Words) -> str:
    if difference is None or interval is None:
        return "–"
    low, high = (difference_text(end, interval) for end in (interval.low, interval.high))
    return words(
        "table.short", difference=difference_text(difference, interval), low=low, high=high
    )


def labelled_sentence(pairing: Pairing, labels: dict[str, str], words: Words) -> dict[str, str]:
    """A comparison in words, under the short names."""
    control, other = labels[pairing.control], labels[pairing.other]
    what = words("table.against", other=other, control=control)
    return {**sentence(pairing, words), "what": what}


def mark(table: Table, words: Words) -> str:
    """The note on every table of a comparison with accepted confounds."""
    return words("compare.mark", allowed=words.listing.join(table.allowed)) if table.allowed else ""


def part_rows(table: Table, words: Words) -> list[Section]:
    """The parts of the runs' manifests: equal, or every difference."""
    return [
        {
            "part": words(f"part.{state.part}"),
            "kind": table.state(state),
            "state": words(f"compare.kind_{table.state(state)}"),
            "values": [difference_row(d, words) for d in state.differences],
        }
        for state in table.parts
    ]


def difference_row(difference: Confound, words: Words) -> dict[str, str]:
    """One value in which two runs differ."""
    return {
        "path": visible(difference.path),
        "control": _shown(difference.control, difference.other, words),
        "other": _shown(difference.other, difference.control, words),
        "kind": words(f"compare.kind_{difference.kind}"),
    }


def _shown(value: Any, beside: Any, words: Words) -> str:
    """A value, cut from where it differs from the one beside it if its beginning would be alike."""
    if value == ABSENT:
        return words("compare.absent")
    texts = (str(each).lower() if isinstance(each, bool) else str(each) for each in (value, beside))
    text, other = (" ".join(visible(each).split()) for each in texts)
    if len(text) <= SHOWN_VALUE:
        return text
    first = next((n for n, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), 0)
    if first < SHOWN_VALUE:
        return f"{text[:SHOWN_VALUE]} …"
    start = first - SHOWN_VALUE // 2
    rest = text[start : start + SHOWN_VALUE]
    return f"… {rest} …" if start + SHOWN_VALUE < len(text) else f"… {rest}"


def finding_rows(findings: Sequence[Finding], words: Words) -> list[dict[str, str]]:
    """Notes on the figures."""
    return [
        {
            "kind": finding.severity,
            "severity": words(f"severity.{finding.severity}"),
            "what": finding.what,
            "evidence": visible(finding.evidence),
            "fix": finding.fix,
        }
        for finding in (translated(each, words) for each in findings)
    ]


def record_rows(table: Table, labels: dict[str, str], folder: Path) -> list[dict[str, str]]:
    """The record of each line, and the command that shows one of its items."""
    rows = []
    for line in table.lines:
        link = "" if line.file is None else Path(os.path.relpath(line.file, folder)).as_posix()
        shown = f"assay show '{line.address}ITEM'" if line.address else ""
        rows.append({"label": labels[line.name], "file": link, "show": shown})
    return rows


def method_lines(pairings: Sequence[Pairing], words: Words) -> list[str]:
    """The methods of the figures, in sentences."""
    tests = named_tests([pairing.comparison.method for pairing in pairings], words)
    said = [words("methods.one"), words("methods.two", tests=tests), words("methods.three")]
    return [*said, words("compare.methods_detectable"), words("compare.methods_fairness")]


FOLDER = "comparisons"
LONGEST_NAME = 120


class PageName(InputError):
    """A page cannot be written there."""


def write_comparison(table: Table, root: Path, page: Path | None = None, lang: str = "en") -> Path:
    """Write `page` (.html) and the same as .md beside it; returns the HTML page.

    Omitted, they lie under `comparisons/` in the lab's root, named after runs and evaluation, and
    the same comparison made again replaces them. Raises UnknownLanguage, PageName.
    """
    w = words(lang)
    target = page_file(table, root, page, lang)
    values = {**comparison_values(table, w, target.parent), "w": w, "version": version("assay-lab")}
    with page_problem(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        return write_pages(target, "comparison", values)


@contextmanager
def page_problem(target: Path) -> Iterator[None]:
    """Raises PageName where the page cannot be written."""
    try:
        yield
    except OSError as error:
        problem = f"{target} cannot be written: {error.strerror or error}"
        raise PageName(problem, field="--page", fix="name another folder") from error


def page_file(table: Table, root: Path, page: Path | None, lang: str, on: str = "") -> Path:
    """The path of the HTML page, `on` the evaluations if not that of the table. Raises PageName for
    a file of another kind."""
    name = page_name(table, on or table.evaluation.name)
    if page is None or page.is_dir():
        folder = root / FOLDER if page is None else page
        return in_language((folder / name).with_suffix(".html"), lang).resolve()
    if page.suffix != ".html":
        raise PageName(f"{page} is not a .html file", field="--page", fix="write FILE.html")
    return page.resolve()


def page_name(table: Table, on: str) -> str:
    """`other-vs-control-on-evaluation`, of names that any file system takes."""
    control, *others = [
        re.sub(r"/[^@]*", "", line.name) if line.address else line.name for line in table.lines
    ]
    name = f"{'-'.join(others)}-vs-{control}-on-{on}" if others else f"{control}-on-{on}"
    # No dot may be left: what follows it would be taken for the suffix.
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    # Comparisons whose names begin alike must not replace one another's page.
    whole = len(clean) <= LONGEST_NAME
    return clean if whole else f"{clean[: LONGEST_NAME - 9]}-{sha256_text(name)[:8]}"
