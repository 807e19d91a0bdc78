"""Writes the pages of a run, `report.html` and `report.md` (in Chinese `report.zh.html` and
`report.zh.md`), and the progress reports of a live run.

When a report is due is decided in `lab.monitor.progress`; its
numbers come from `lab.monitor.progress`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from assay.data.files import atomic_write_text
from assay.lab.monitor.observer import Observer, Passing
from assay.lab.monitor.progress import progress, report_file
from assay.pages import content, story
from assay.pages.comparison_page import flips_blocks
from assay.pages.content import result_blocks
from assay.pages.facts import RunFacts, gather
from assay.pages.html import write_page
from assay.pages.markdown import page_markdown
from assay.pages.page import (
    Block,
    Bullets,
    Facts,
    Findings,
    Folded,
    Page,
    Section,
    SideBySide,
    Text,
)
from assay.pages.progress_content import progress_blocks, progress_page
from assay.pages.provenance import data_blocks, fingerprint_blocks
from assay.pages.words import Words, in_language, percent, worded, words
from assay.runs.history import leaving_out
from assay.runs.run_directory import STATUS, RunDirectory, stored_status


@dataclass(frozen=True, slots=True)
class ProgressSpan:
    """The stage and steps whose progress is shown; None: as `lab.monitor.progress` chooses."""

    stage: str | None = None
    first: int | None = None
    last: int | None = None


def write_report(run: RunDirectory, lang: str = "en", span: ProgressSpan = ProgressSpan()) -> Path:
    """Write both pages of a run in one language, from its records; returns the HTML page.

    `span` selects the steps whose progress is shown. Raises InputError,
    and what reading the records raises.
    """
    with leaving_out(run):
        return write_page(run_page(gather(run), words(lang), span), page_of(run, lang))


def page_of(run: RunDirectory, lang: str = "en") -> Path:
    """The file of a run's HTML page in a language, whether it exists or not."""
    return in_language(run.path / "report.html", lang)


def lacks_page(run: RunDirectory) -> bool:
    """Whether a finished run has no page, or only older ones, because it was killed before."""
    if stored_status(run.path).status != "finished":
        return False
    # The HTML page is written last.
    pages = [page.stat().st_mtime_ns for page in run.pages if page.suffix == ".html"]
    written = max(pages, default=0)
    return written < (run.path / STATUS).stat().st_mtime_ns


def write_progress(run: RunDirectory, stage: str, step: int, lang: str = "en") -> Path:
    """Write the Markdown of one progress report, from the report before it to `step` of `stage`.
    Raises what `write_report` raises.
    """
    steps = progress(run, stage, last=step)
    assert steps is not None, "a stage that is named has steps, or InputError is raised"
    file = report_file(run, stage, step)
    atomic_write_text(file, page_markdown(progress_page(steps, words(lang))))
    return file


OPEN = ("results", "progress", "rounds", "training", "examples", "next")
"""Sections that a reader sees at once; the others are folded."""
LONGEST = 250
"""Lines of report.md."""


def run_page(facts: RunFacts, w: Words, span: ProgressSpan | None = ProgressSpan()) -> Page:
    """Everything that the page of a run says, its progress in a span of steps or, with None, none.
    Sections that have nothing to say are left out."""
    every = sections(facts, w, span)
    parts = [Folded(s.title, s.blocks, anchor=s.anchor) for s in every if s.anchor not in OPEN]
    shown = {each.anchor: each for each in every if each.anchor in OPEN}
    blocks: list[Block] = [*head(facts, w), *_verdict(facts, w)]
    blocks += [shown[name] for name in OPEN if name in shown]
    blocks += [Section("more", w("page.more"), parts)] if parts else []
    footer = w("page.footer", run=facts.run, version=version("assay-lab"))
    title = facts.run.name
    document = w("page.title", name=title)
    return Page(w, title, blocks, footer, document, contents=True, longest=LONGEST)


def _verdict(facts: RunFacts, w: Words) -> list[Block]:
    """The score that the run ends with, the last stage against its start, and what is wrong."""
    blocks: list[Block] = [*content.headline_blocks(facts, w)] if facts.main else []
    table = facts.main.table if facts.main else None
    last = table.lines[-1].to_previous if table else None
    if table is not None and last is not None and table.lines[-1] is not content.best_line(facts):
        line = content.verdict_line(last, content.checkpoint_labels(table, w), w)
        blocks.append(Text(line))
    lines = table.lines if table else ()
    cut = [((x.truncated or 0) / (x.items * x.repeats or 1), x.name) for x in lines]
    share, name = max(cut, default=(0.0, ""))
    if share > MANY_CUT:
        label = content.checkpoint_label(name, w)
        blocks.append(Text(w("page.cut", share=percent(share), label=label), "warning"))
    # One of each kind: that many checkpoints answer alike is told once, and in full further down.
    wrong = [*{(place, f.code): (place, f) for place, f in story.warned(facts, w)}.values()]
    # What to do stands in "next", and of all of them among the improvements.
    told = [replace(worded(each, w), fix="", code="") for _, each in wrong]
    findings = [Findings(told, [place for place, _ in wrong])]
    return [*blocks, *(findings if wrong else [])]


MANY_CUT = 0.1
"""Of a checkpoint's answers, before it is told at the head that the token limit cut them."""


def head(facts: RunFacts, w: Words) -> list[Block]:
    """What a run is about, the run in a line, and what to know before any number."""
    about, failed = facts.experiment.about, facts.status.status == "failed"
    told = story.warnings(facts, w)
    return [
        *([Text(about, "lead")] if about else []),
        *(Text(error, "error") for error in told[:failed]),
        Facts(story.chips(facts, w), chips=True),
        *(Text(warning, "warning") for warning in told[failed:]),
    ]


def sections(
    facts: RunFacts, w: Words, span: ProgressSpan | None = None, wanted: Sequence[str] = ()
) -> list[Section]:
    """The sections that have something to say; those of some anchors where they are `wanted`."""
    rest = facts.reported[1:]
    moved = progress(facts.run, span.stage, span.first, span.last) if span else None
    title = w("progress.since", stage=moved.stage, first=moved.first) if moved else ""
    parts: dict[str, tuple[str, Callable[[], Sequence[Block]]]] = {
        "results": (w("page.results"), lambda: _results(facts, w)),
        "imported": (w("imported.title"), lambda: story.imported_blocks(facts, w)),
        "lineage": (w("page.lineage"), lambda: story.lineage_blocks(facts.run, w)),
        "rounds": (w("figure.title"), lambda: story.rounds_blocks(facts, w)),
        "training": (w("page.training"), lambda: story.stage_blocks(facts, w)),
        "progress": (title, lambda: progress_blocks(moved, w) if moved else []),
        "others": (w("page.others"), lambda: [b for x in rest for b in result_blocks(facts, x, w)]),
        "judge": (w("judge.title"), lambda: content.run_judges(facts, w)),
        "generation": (w("generation.title"), lambda: content.run_generation(facts, w)),
        "parts": (w("page.parts"), lambda: content.score_part_table(facts, w)),
        "outcomes": (w("page.errors"), lambda: content.all_outcomes(facts, w)),
        "examples": (w("page.examples"), lambda: _changed(facts, w)),
        "health": (w("page.health"), lambda: story.health_blocks(facts, w)),
        "next": (w("page.next"), lambda: story.next_blocks(facts, w)),
        "data": (w("page.data"), lambda: data_blocks(facts, w)),
        "methods": (w("page.methods"), lambda: list(map(Text, story.method_section(facts, w)))),
        "fingerprints": (w("page.fingerprints"), lambda: fingerprint_blocks(facts, w)),
    }
    return content.sections(parts, wanted)


def _results(facts: RunFacts, w: Words) -> list[Block]:
    lines = story.selection_section(facts, w)
    chosen = _folded(w("chart.dev"), [Bullets(lines)] if lines else [])
    if facts.main is None:
        return chosen
    table, blocks = facts.main.table, result_blocks(facts, facts.main, w)
    if table is not None:
        labels = content.checkpoint_labels(table, w)
        same = tuple(pair for pair in table.picked if pair.same_order == pair.queries)
        blocks += content.picked_blocks(replace(table, picked=same), labels, w)
        blocks += _folded(w("picked.title"), content.picked_blocks(table, labels, w))
    return [*blocks, *chosen]


def _folded(title: str, blocks: Sequence[Block]) -> list[Block]:
    return [Folded(title, blocks)] if blocks else []


def _changed(facts: RunFacts, w: Words) -> list[Block]:
    """Items that the last checkpoint gained and lost against the control."""
    table = facts.main.table if facts.main else None
    labels = content.checkpoint_labels(table, w) if table else {}
    blocks = flips_blocks(table, labels, w, table.lines[-1:], most=1) if table else []
    return [_brief(each) if isinstance(each, SideBySide) else each for each in blocks]


BRIEF = 200
"""Characters of a question or an answer."""


def _brief(block: SideBySide) -> SideBySide:
    def cut(text: str) -> str:
        return text if len(text) <= BRIEF else f"{text[:BRIEF]} …"

    answers = [replace(each, text=cut(each.text), facts=()) for each in block.answers]
    return replace(block, question=cut(block.question), answers=answers, gold=cut(block.gold))


@dataclass(frozen=True)
class Reporting(Passing):
    """Passes every event on to `inner`, and writes the reports and the page that are due."""

    inner: Observer
    lang: str = "en"

    def _pass(self, event: str, *values: Any, **named: Any) -> None:
        getattr(self.inner, event)(*values, **named)

    def report(self, run: RunDirectory, stage: str, step: int, why: str) -> None:
        """Write the report. A failure is noted and does not stop the training."""
        try:
            write_progress(run, stage, step, self.lang)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            self.inner.note(f"the report of {stage} step {step} was not written: {problem}")
            return
        self.inner.report(run, stage, step, why)

    def end(self, run: RunDirectory) -> None:
        """Write the page of a run that finished. Raises what `write_report` raises."""
        if stored_status(run.path).status == "finished":
            write_report(run, self.lang)
        self.inner.end(run)
