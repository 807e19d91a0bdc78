"""A run and a comparison as small pieces of HTML for a notebook's cell.

Shows what the head of their pages shows; the piece loads nothing, runs nothing, and styles nothing
outside itself.
"""

from assay.compare.table import BenchmarksTable, Table
from assay.pages import content
from assay.pages.comparison.benchmarks_content import benchmark_blocks, labels_of
from assay.pages.comparison.comparison_page import sections, warned
from assay.pages.facts import RunFacts
from assay.pages.html import inline_html
from assay.pages.page import Block, Heading, Mark, Text
from assay.pages.run_page.page import head, page_of
from assay.pages.words import words


def run_html(facts: RunFacts, lang: str = "en") -> str:
    """The head of the page, and the scores and verdicts of its main evaluation."""
    w = words(lang)
    page = page_of(facts.run, lang)
    results = content.results(facts, w) or [Text(w("page.nothing_measured"))]
    written = [Text(Mark(str(page), "code"))] if page.exists() else []
    return inline_html([Heading(str(facts.run)), *head(facts, w), *results, *written], w)


def benchmarks_html(table: BenchmarksTable, lang: str = "en") -> str:
    """The table of several benchmarks."""
    w = words(lang)
    return inline_html(benchmark_blocks(table, labels_of(table, w), w), w)


def comparison_html(table: Table, lang: str = "en") -> str:
    """The scores of a comparison, its warnings, and its verdicts in words."""
    w = words(lang)
    blocks: list[Block] = [
        Heading(w("compare.title", evaluation=table.evaluation.name)),
        Text(content.about_evaluation(table, w)),
        *warned(table, w),
        *(b for each in sections(table, w, wanted=("scores", "differences")) for b in each.blocks),
    ]
    return inline_html(blocks, w)
