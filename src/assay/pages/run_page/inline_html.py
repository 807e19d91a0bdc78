"""A run and a comparison as small pieces of HTML for a notebook's cell.

Shows what the head of their pages shows; the piece loads nothing, runs nothing, and styles nothing
outside itself.
"""

from assay.compare.benchmarks_table import BenchmarksTable
from assay.compare.table import Table
from assay.pages import content
from assay.pages.comparison.benchmarks_content import benchmark_blocks, labels_of
from assay.pages.comparison.comparison_page import (
    difference_table,
    labelled_sentence,
    line_labels,
    mark,
    score_table,
)
from assay.pages.facts import RunFacts
from assay.pages.html import inline_html
from assay.pages.page import Block, Bullets, Facts, Findings, Heading, Mark, Text
from assay.pages.run_page import story
from assay.pages.run_page.page import page_of
from assay.pages.words import words


def run_html(facts: RunFacts, lang: str = "en") -> str:
    """The run in a line, its warnings, and the scores and verdicts of its main evaluation."""
    w = words(lang)
    page = page_of(facts.run, lang)
    results = content.results(facts, w) or [Text(w("page.nothing_measured"))]
    blocks: list[Block] = [
        Heading(str(facts.run)),
        Text(facts.experiment.about),
        Facts(story.chips(facts, w), chips=True),
        *(Text(("⚠ ", said), "warning") for said in story.warnings(facts, w)),
        *results,
        *([Text(Mark(str(page), "code"))] if page.exists() else []),
    ]
    return inline_html(blocks, w)


def benchmarks_html(table: BenchmarksTable, lang: str = "en") -> str:
    """The table of several benchmarks."""
    w = words(lang)
    return inline_html(benchmark_blocks(table, labels_of(table, w), w), w)


def comparison_html(table: Table, lang: str = "en") -> str:
    """The scores of a comparison, its warnings, and its verdicts in words."""
    w = words(lang)
    labels = line_labels(table, w)
    pairings = [line.to_control for line in table.lines if line.to_control is not None]
    said = [labelled_sentence(pairing, labels, w) for pairing in pairings]
    findings, marked = (*table.left_out, *table.findings), mark(table, w)
    blocks: list[Block] = [
        Heading(w("compare.title", evaluation=table.evaluation.name)),
        Text(content.about_evaluation(table, w)),
        *([Text(("⚠ ", marked), "warning")] if marked else []),
        *([Findings(findings)] if findings else []),
        score_table(table, w),
        *([difference_table(table, w)] if said else []),
        Bullets([content.sentence_line(each, w) for each in said]),
    ]
    return inline_html(blocks, w)
