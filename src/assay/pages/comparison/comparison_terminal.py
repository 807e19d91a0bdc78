"""Terminal view of a comparison: two tables, verdicts in words, differences between the settings.

Makes rich renderables and prints nothing.
"""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from assay.compare.table import Table
from assay.pages.comparison.comparison_content import (
    labelled_sentence,
    line_labels,
    line_table,
    mark,
    part_rows,
    task_rows,
)
from assay.pages.content import outcome_blocks
from assay.pages.generation_content import generation_blocks
from assay.pages.picked_content import picked_sentences
from assay.pages.terminal import blocks_shown
from assay.pages.words import Words, visible, words

KINDS = {"confound": "bold red", "allowed": "yellow", "warning": "yellow"}
KINDS |= {"declared": "cyan", "tested": "cyan"}
QUIET = ("follows", "note")
"""Kinds of differences that are only counted here; the page lists them."""


def comparison_shown(table: Table, lang: str = "en", flips: bool = False) -> list[RenderableType]:
    """Scores, differences to the control with verdicts, and everything in which the runs differ."""
    w = words(lang)
    labels = line_labels(table, w)
    said = [
        labelled_sentence(line.to_control, labels, w) for line in table.lines if line.to_control
    ]
    colon, stop = w.colon, w("punctuation.stop")
    lines = [
        Text.assemble((s["what"], "bold"), colon, s["text"], stop, (s["flips"], "dim"))
        for s in said
    ]
    title = f"{table.evaluation.name} ({table.evaluation.benchmark})"
    shown: list[RenderableType] = [Text(title, "bold"), *blocks_shown([line_table(table, w)], w)]
    shown += blocks_shown(generation_blocks([(table, labels)], w), w)
    if table.tasks:
        shown.append(_tasks(table, w))
    names = [labels[line.name] for line in table.lines]
    shown += blocks_shown(outcome_blocks(table, names, w), w)
    if table.allowed:
        shown.append(Text(mark(table, w), "yellow"))
    picked = [Text(said) for said in picked_sentences(table, labels, w)]
    shown += [*lines, *picked, *_differences(table, w)]
    return [*shown, *_flips(table, w)] if flips else shown


def _tasks(table: Table, w: Words) -> RichTable:
    """Every run on every task, and the mean over tasks."""
    heads = ("compare.task", "compare.items", "table.checkpoint", "table.score", "table.interval")
    view = RichTable(
        *(w(head) for head in (*heads, "compare.difference")), box=None, header_style="bold"
    )
    view.columns[2].overflow = "fold"
    for row in task_rows(table, w):
        cells = (row[k] for k in ("task", "items", "label", "score", "interval", "difference"))
        view.add_row(*map(Text, cells))
    return view


def _differences(table: Table, w: Words) -> Iterator[Text]:
    """Every difference that counts, by part; consequences and notes as one number."""
    quiet = 0
    colon, listing = w.colon, w.listing
    for part, state in zip(part_rows(table, w), table.parts, strict=True):
        for value, difference in zip(part["values"], state.differences, strict=True):
            if difference.kind in QUIET:
                quiet += 1
                continue
            values = f"{value['control']} -> {value['other']}"
            yield Text.assemble(
                (value["kind"], KINDS.get(difference.kind, "")),
                colon + colon.join((part["part"], value["path"], values)),
            )
    by_kind: dict[str, list[str]] = {"same": [], "unknown": []}
    for part in part_rows(table, w):
        by_kind.setdefault(part["kind"], []).append(part["part"])
    same, unknown = (listing.join(by_kind[kind]) for kind in ("same", "unknown"))
    yield Text(w("compare.same_parts", parts=same or "–", quiet=quiet), "dim")
    if unknown:
        yield Text(w("compare.unknown_parts", parts=unknown), "yellow")


def _flips(table: Table, w: Words) -> Iterator[Text]:
    """The `assay show` address of every changed item, in the record of the other run."""
    for line in table.lines:
        if line.to_control is None:
            continue
        changed = line.to_control.flips
        for kind, items in (("gained", changed.gained), ("lost", changed.lost)):
            for item in items:
                yield Text(f"{w(f'kind.{kind}')}  {visible(line.address + item)}")
