"""Writes the pages of a run, `report.html` and `report.md` (in Chinese `report.zh.html` and
`report.zh.md`), and the progress reports of a live run.

The page loads no other file, and its content security policy forbids it. The templates escape all
text of models and files. When a report is due is decided in `lab.monitor.report_journal`; its
numbers come from `lab.monitor.progress`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from assay.data.files import atomic_write_text
from assay.lab.monitor.observer import Observer, Passing
from assay.lab.monitor.progress import progress
from assay.lab.monitor.report_journal import note_report, report_file
from assay.pages import content
from assay.pages.comparison.benchmarks_content import run_benchmarks
from assay.pages.examples import examples
from assay.pages.facts import RunFacts, gather
from assay.pages.generation_content import run_generation
from assay.pages.lineage.lineage_view import lineage_section
from assay.pages.progress.progress_content import progress_section
from assay.pages.provenance import data_views, fingerprints
from assay.pages.result_tables import checkpoint_label
from assay.pages.rounds.rounds_content import rounds_section
from assay.pages.run_page import story
from assay.pages.templating import render, write_pages
from assay.pages.words import Words, in_language, words
from assay.runs.run_directory import RunDirectory
from assay.runs.status import STATUS, stored_status


@dataclass(frozen=True, slots=True)
class Span:
    """The stage and steps whose progress is shown; None: as `lab.monitor.progress` chooses."""

    stage: str | None = None
    first: int | None = None
    last: int | None = None


def write_report(run: RunDirectory, lang: str = "en", span: Span = Span()) -> Path:
    """Write both pages of a run in one language, from its records; returns the HTML page.

    `span` selects the steps whose progress is shown. Raises UnknownLanguage, NothingToReport,
    InputError, and what reading the records raises.
    """
    facts = gather(run)
    values = page_values(facts, words(lang), span)
    return write_pages(page_of(run, lang), "page", values)


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


def write_progress(run: RunDirectory, stage: str, step: int, why: str, lang: str = "en") -> Path:
    """Write the Markdown of one progress report, from the report before it to `step` of `stage`,
    and enter it into the run's journal. Raises what `write_report` raises.
    """
    facts, w = gather(run), words(lang)
    found = progress(run, stage, last=step)
    assert found is not None, "a stage that is named has steps, or InputError is raised"
    values = {"w": w, "facts": facts, "progress": progress_section(found, w)}
    values["standalone"] = True
    file = report_file(run, stage, step)
    atomic_write_text(file, render("progress_page.md.j2", values))
    note_report(run, stage, step, why)
    return file


def page_values(facts: RunFacts, w: Words, span: Span = Span()) -> dict[str, Any]:
    """Everything that the templates write."""
    table = facts.main.table if facts.main else None
    found = progress(facts.run, span.stage, span.first, span.last)
    main, selections = content.main_section(facts, w), story.selection_section(facts, w)
    findings = story.finding_section(facts, w)
    values = {
        "w": w,
        "facts": facts,
        "version": version("assay-lab"),
        "about": facts.experiment.about,
        "chips": story.chips(facts, w),
        "warnings": story.warnings(facts, w),
        "headline": content.headline(facts, w),
        "main": main,
        "results": bool(main or selections),
        "standalone": False,
        "selections": selections,
        "progress": progress_section(found, w) if found else None,
        "others": content.other_rows(facts, w),
        "others_plot": content.others_plot(facts, w),
        "benchmarks": run_benchmarks(facts, w),
        "generation": run_generation(facts, w),
        "labels": [checkpoint_label(line.name, w) for line in table.lines] if table else [],
        "parts": content.parts_section(facts, w),
        "outcomes": content.outcome_sections(facts, w),
        "examples": story.example_section(examples(facts, table) if table else None, w),
        "lineage": lineage_section(facts.run, w),
        "rounds": rounds_section(facts, w),
        "training": story.stage_section(facts, w),
        "findings": findings,
        "health": bool(findings or facts.metrics),
        "data": data_views(facts, w),
        "methods": story.method_section(facts, w),
        "fingerprints": fingerprints(facts, w),
    }
    return {**values, "contents": contents(values, w)}


SECTIONS = {
    "results": "page.results",
    "lineage": "page.lineage",
    "rounds": "figure.title",
    "training": "page.training",
    "progress": "",
    "others": "page.others",
    "benchmarks": "benchmarks.title",
    "generation": "generation.title",
    "parts": "page.parts",
    "outcomes": "page.errors",
    "examples": "page.examples",
    "health": "page.health",
    "data": "page.data",
    "methods": "page.methods",
    "fingerprints": "page.fingerprints",
}
"""The sections of the page in their order, by their anchors, with the keys of their titles."""


def contents(values: Mapping[str, Any], w: Words) -> list[tuple[str, str]]:
    """Anchors and titles of the sections that the page has."""
    titles = {anchor: w(key) for anchor, key in SECTIONS.items() if key}
    if values["progress"]:
        titles["progress"] = values["progress"]["title"]
    return [(anchor, titles[anchor]) for anchor in SECTIONS if values[anchor]]


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
            write_progress(run, stage, step, why, self.lang)
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
