"""How answers were generated, what became of them, and what repeated samples say.

For the pages of runs and comparisons and for the terminal. Figures come from `judge.sampled_scores`
through the lines of a table; nothing is computed here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table as RichTable
from rich.text import Text

from assay.compare.table import Line, Table
from assay.judge.sampled_scores import AtK, SampledScores
from assay.pages.content import Section, interval_text
from assay.pages.result_tables import checkpoint_label, settings_text
from assay.pages.words import Words, number, percent, score_text

if TYPE_CHECKING:  # gathering facts loads what a comparison does not need
    from assay.pages.facts import RunFacts

Labels = Mapping[str, str]
"""The names of lines as a page shows them."""


def generation_section(tables: Sequence[tuple[Table, Labels]], words: Words) -> Section | None:
    """The limits and truncated answers of every line, then what its repeats say."""
    if not tables:
        return None
    rows = [
        generation_row(table, line, labels, words)
        for table, labels in tables
        for line in table.lines
    ]
    found = [sampled_table(table, labels, words) for table, labels in tables]
    sampled = [each for each in found if each is not None]
    unknown = words("generation.unknown")
    if not sampled and all(row["limits"] == row["truncated"] == unknown for row in rows):
        return None
    return {"rows": rows, "sampled": sampled}


def run_generation(facts: "RunFacts", words: Words) -> Section | None:
    """The same of all reporting evaluations of a run."""
    tables = [found.table for found in facts.reported if found.table is not None]
    labelled = [
        (table, {line.name: checkpoint_label(line.name, words) for line in table.lines})
        for table in tables
    ]
    return generation_section(labelled, words)


def generation_row(table: Table, line: Line, labels: Labels, words: Words) -> Section:
    """The limits of one line, and how many of its answers reached the limit of tokens."""
    return {
        "evaluation": table.evaluation.name,
        "label": labels[line.name],
        "limits": settings_text(line.limits) or words("generation.unknown"),
        "truncated": truncated_text(line.truncated, line.items * line.repeats, words),
    }


def truncated_text(truncated: int | None, answers: int, words: Words) -> str:
    """The share of answers that were cut, with the counts."""
    if truncated is None:
        return words("generation.unknown")
    counts = {"count": number(truncated), "answers": number(answers)}
    return words("generation.share", share=percent(truncated / answers), **counts)


def sampled_table(table: Table, labels: Labels, words: Words) -> Section | None:
    """mean@n, pass@k and maj@k by line; None where no line has repeats that were sampled."""
    lines = [(labels[line.name], line.sampled) for line in table.lines]
    shown = [(label, found) for label, found in lines if found is not None]
    if not shown:
        return None
    rows = [figures_by_name(found) for _, found in shown]
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        "evaluation": table.evaluation.name,
        "labels": [label for label, _ in shown],
        "rows": [
            {"name": name, "cells": [figure_view(row.get(name), words) for row in rows]}
            for name in names
        ],
        "notes": list(dict.fromkeys(sampled_notes((found for _, found in shown), words))),
    }


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


def figure_view(found: AtK | None, words: Words) -> Section | None:
    """One figure with its interval, and the range that unscored completions leave."""
    if found is None:
        return None
    low, high = found.possible
    unsure = high - low > 1e-9
    return {
        "value": score_text(found.value, found.interval),
        "interval": interval_text(found.interval, words),
        "possible": words(
            "generation.possible",
            low=percent(low),
            high=percent(high),
            items=found.items,
        )
        if unsure
        else "",
    }


def sampled_notes(found: Iterable[SampledScores], words: Words) -> Iterable[str]:
    """Why there is no pass@k, or no maj@k."""
    for each in found:
        if not each.binary:
            yield words("generation.not_binary")
        elif not each.named:
            yield words("generation.not_named")


def generation_shown(section: Section | None, words: Words) -> list[RichTable | Text]:
    """The same in a terminal."""
    if section is None:
        return []
    heads = ("table.evaluation", "table.checkpoint", "generation.limits", "generation.truncated")
    limits = RichTable(*(words(head) for head in heads), box=None, header_style="bold")
    limits.columns[1].overflow = "fold"
    for row in section["rows"]:
        limits.add_row(*(Text(row[k]) for k in ("evaluation", "label", "limits", "truncated")))
    shown: list[RichTable | Text] = [Text(words("generation.title"), "bold"), limits]
    for found in section["sampled"]:
        shown.append(Text(words("generation.sampled", evaluation=found["evaluation"]), "bold"))
        shown.append(_sampled_shown(found))
        shown += [Text(note, "yellow") for note in found["notes"]]
    return shown


def _sampled_shown(found: Section) -> RichTable:
    view = RichTable("", box=None, header_style="bold")
    for label in found["labels"]:
        view.add_column(Text(label))
    for row in found["rows"]:
        view.add_row(Text(row["name"]), *map(_cell_text, row["cells"]))
    return view


def _cell_text(cell: Section | None) -> Text:
    if cell is None:
        return Text("–", "dim")
    text = Text.assemble((cell["value"], "bold"), f" ({cell['interval']})")
    return text.append(f"; {cell['possible']}", "yellow") if cell["possible"] else text


def outcome_table(rows: Sequence[Section], labels: Sequence[str], words: Words) -> RichTable:
    """Answers by outcome in a terminal: the count and the share of each for each line."""
    view = RichTable(words("table.outcome"), box=None, header_style="bold")
    for label in labels:
        view.add_column(Text(label))
    for row in rows:
        view.add_row(*map(Text, (row["name"], *row["cells"])))
    return view
