"""A run and a comparison as small pieces of HTML for a notebook's cell.

Shows what the head of their pages shows, from the same values; the piece loads nothing, runs
nothing, and styles nothing outside itself.
"""

from assay.compare.benchmarks_table import BenchmarksTable
from assay.compare.table import Table
from assay.pages import content
from assay.pages.comparison.benchmarks_content import benchmarks_section, labels_of
from assay.pages.comparison.comparison_content import (
    finding_rows,
    labelled_sentence,
    line_labels,
    line_rows,
    mark,
)
from assay.pages.facts import RunFacts
from assay.pages.run_page import story
from assay.pages.run_page.page import page_of
from assay.pages.templating import render
from assay.pages.words import words


def run_html(facts: RunFacts, lang: str = "en") -> str:
    """The run in a line, its warnings, and the scores and verdicts of its main evaluation."""
    w = words(lang)
    page = page_of(facts.run, lang)
    values = {
        "w": w,
        "title": str(facts.run),
        "about": facts.experiment.about,
        "chips": story.chips(facts, w),
        "warnings": story.warnings(facts, w),
        "main": content.main_section(facts, w),
        "page": str(page) if page.exists() else "",
    }
    return render("inline_run.html.j2", values)


def benchmarks_html(table: BenchmarksTable, lang: str = "en") -> str:
    """The table of several benchmarks."""
    w = words(lang)
    values = {"w": w, "benchmarks": benchmarks_section(table, labels_of(table, w), w)}
    return render("benchmarks_table.html.j2", values)


def comparison_html(table: Table, lang: str = "en") -> str:
    """The scores of a comparison, its warnings, and its verdicts in words."""
    w = words(lang)
    labels = line_labels(table, w)
    pairings = [line.to_control for line in table.lines if line.to_control is not None]
    values = {
        "w": w,
        "title": w("compare.title", evaluation=table.evaluation.name),
        "about": content.about_evaluation(table, w),
        "mark": mark(table, w),
        "findings": finding_rows((*table.left_out, *table.findings), w),
        "rows": line_rows(table, w),
        "sentences": [labelled_sentence(pairing, labels, w) for pairing in pairings],
    }
    return render("inline_comparison.html.j2", values)
