"""How answers were generated, what became of them, and what repeated samples say.

Figures come from `judge.sampled_scores` through the lines of a table; nothing is computed here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from assay.compare.table import Table as Compared
from assay.judge.arms import AtK, SampledScores
from assay.pages.content import interval_text
from assay.pages.page import Block, Cell, Column, Heading, Mark, Table, Text
from assay.pages.result_tables import checkpoint_label, settings_text
from assay.pages.words import Words, number, percent, score_text

if TYPE_CHECKING:  # gathering facts loads what a comparison does not need
    from assay.pages.facts import RunFacts

Labels = Mapping[str, str]
"""The names of lines as a page shows them."""


def run_generation(facts: "RunFacts", words: Words) -> list[Block]:
    """The blocks of all reporting evaluations of a run."""
    tables = [found.table for found in facts.reported if found.table is not None]
    labelled = [
        (table, {line.name: checkpoint_label(line.name, words) for line in table.lines})
        for table in tables
    ]
    return generation_blocks(labelled, words)


def generation_blocks(tables: Sequence[tuple[Compared, Labels]], words: Words) -> list[Block]:
    """The limits and truncated answers of every line, then what its repeats say; nothing where
    neither is known."""
    unknown = words("generation.unknown")
    rows = [
        [
            table.evaluation.name,
            labels[line.name],
            settings_text(line.limits) or unknown,
            truncated_text(line.truncated, line.items * line.repeats, words),
        ]
        for table, labels in tables
        for line in table.lines
    ]
    sampled = [block for table, labels in tables for block in _sampled(table, labels, words)]
    if not sampled and all(row[2] == row[3] == unknown for row in rows):
        return []
    heads = [words(f"table.{name}") for name in ("evaluation", "checkpoint")]
    truncated = Column(words("generation.truncated"), right=True)
    limits = Table([*heads, words("generation.limits"), truncated], rows, kind="small")
    about = [Text(words("generation.sampled_about"), "soft")] if sampled else []
    return [limits, *about, *sampled]


def truncated_text(truncated: int | None, answers: int, words: Words) -> str:
    """The share of answers that were cut, with the counts."""
    if truncated is None:
        return words("generation.unknown")
    counts = {"count": number(truncated), "answers": number(answers)}
    return words("generation.share", share=percent(truncated / answers), **counts)


def _sampled(table: Compared, labels: Labels, words: Words) -> list[Block]:
    """mean@n, pass@k and maj@k by line; nothing where no line has repeats that were sampled."""
    lines = [(labels[line.name], line.sampled) for line in table.lines]
    shown = [(label, found) for label, found in lines if found is not None]
    if not shown:
        return []
    figures = [figures_by_name(found) for _, found in shown]
    names = dict.fromkeys(name for each in figures for name in each)
    rows = [
        [Mark(name), *(_figure_cell(each.get(name), words) for each in figures)] for name in names
    ]
    notes = dict.fromkeys(sampled_notes((found for _, found in shown), words))
    return [
        Heading(words("generation.sampled", evaluation=table.evaluation.name)),
        Table(["", *(Column(label, right=True) for label, _ in shown)], rows, kind=""),
        *(Text(note, "soft") for note in notes),
    ]


def figures_by_name(found: SampledScores) -> dict[str, AtK]:
    """The figures as they are usually called; k = 1 is left out of pass@k, which then is the mean.

    maj@1 is shown where it is not the mean: a right completion without an answer has no vote.
    """
    mean = found.mean
    majority = {f"maj@{each.k}": each for each in found.majority}
    if found.majority and abs(found.majority[0].value - mean.value) < 1e-9:
        majority.pop("maj@1", None)
    passes = {f"pass@{each.k}": each for each in found.passes if each.k > 1}
    return {f"mean@{mean.k}": mean, **passes, **majority}


def _figure_cell(found: AtK | None, words: Words) -> Cell:
    """One figure with its interval, and the range that unscored completions leave."""
    if found is None:
        return Cell("–", kind="soft")
    low, high = found.possible
    ends = {"low": percent(low), "high": percent(high), "items": found.items}
    possible = words("generation.possible", **ends) if high - low > 1e-9 else ""
    value = Mark(score_text(found.value, found.interval), "score")
    return Cell(value, [interval_text(found.interval, words), possible])


def sampled_notes(found: Iterable[SampledScores], words: Words) -> Iterable[str]:
    """Why there is no pass@k, or no maj@k."""
    for each in found:
        if not each.binary:
            yield words("generation.not_binary")
        elif not each.named:
            yield words("generation.not_named")
