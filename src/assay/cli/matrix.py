"""`assay matrix SWEEP` or `assay matrix RUN... --rows KEY`: runs, pivoted by their keys."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import Lang, Outcome, run_names, taken

if TYPE_CHECKING:  # records load pyarrow, which help must do without
    from assay.lab.sweep.matrix.model import Cell, Matrix, Recommendation

What = Annotated[
    list[str],
    typer.Argument(
        metavar="SWEEP.toml | RUN...",
        help="A sweep file, or runs by name or pattern such as 'cot*'.",
        autocompletion=run_names,
    ),
]
Rows = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="Such as stage.sft.batch, name, step or epoch."),
]
Columns = Annotated[str | None, typer.Option(metavar="KEY", help="The same.")]
Layers = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY", help="A further axis, one table for each value; may be repeated."),
]
On = Annotated[
    list[str] | None, typer.Option(help="Evaluation, benchmark or pattern; may be repeated.")
]
Checkpoint = Annotated[
    str | None, typer.Option(help="STAGE.last, STAGE.best, STAGE.all; else the last measured.")
]
BaselineName = Annotated[
    str | None,
    typer.Option(help="NAME[@CHECKPOINT], KEY=VALUE of an axis, or 'base' of each run."),
]
Select = Annotated[str | None, typer.Option(help="The evaluation that recommends a cell.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="Accept an undeclared difference; may be repeated."),
]


def matrix(
    root: Path,
    what: What,
    rows: Rows = None,
    columns: Columns = None,
    layers: Layers = None,
    on: On = None,
    checkpoint: Checkpoint = None,
    baseline: BaselineName = None,
    select: Select = None,
    allow: Allow = None,
    lang: Lang = "en",
) -> Outcome:
    """Pivot runs by their keys, with intervals and verdicts.

    Writes the page of it.
    """
    from assay.lab.sweep.matrix.request import Request, make_matrix, settle_named
    from assay.pages.matrix.matrix_page import matrix_shown, note_lines, write_matrix
    from assay.pages.words import words

    catalogue = words(lang)
    asked = [tuple(given or ()) for given in (layers, on, allow)]
    request = Request(rows, columns, asked[0], asked[1], checkpoint, baseline, select, asked[2])
    found = make_matrix(root, what, request)
    page = write_matrix(found, root, lang)
    settled = settle_named(root, what, request, found)
    shown = [*matrix_shown(found, root, lang), catalogue("terminal.page", file=page)]
    result = {**matrix_result(found), "page": page, "winner": settled.winner if settled else None}
    warnings = note_lines(found, catalogue)
    warnings += [settled.note] if settled and settled.note else []
    return Outcome(result, shown, warnings=warnings, lang=lang)


def matrix_result(found: "Matrix") -> dict[str, Any]:
    """The values of the page by name, without scores of items."""
    return {
        **taken(found, "name", "layout", "on", "ratios_to", "baseline", "rows", "columns"),
        "layers": found.layers,
        "cells": [_cell_result(cell, found) for cell in found.cells.values()],
        "averages": found.margins,
        "counts": found.tally,
        **taken(found, "controls", "blocks", "trainings", "data_files"),
        "recommendation": _recommendation_result(found.recommendation),
        "notes": [{**taken(note, "code", "severity"), **note.values} for note in found.notes],
    }


def _cell_result(cell: "Cell", matrix: "Matrix") -> dict[str, Any]:
    """One cell with the records behind it."""
    names = ("place", "state", "name", "score", "interval", "items", "repeats", "seeds")
    names += ("seeds_missing", "is_baseline", "is_control", "run")
    advice = matrix.recommendation
    return {
        **taken(cell, *names),
        "dev_score": advice.dev_scores.get(cell.place),
        "winner": matrix.mark(cell) == "winner",
        "undecided_against_best": any(cell.place == rival.place for rival in advice.rivals),
        **taken(cell, "comparison", "against", "same_weights"),
        "records": [origin.file for origin in cell.origins],
    }


def _recommendation_result(advice: "Recommendation") -> dict[str, Any]:
    """The recommended cell, or why there is none."""
    cell, choice = advice.cell, advice.choice
    return {
        "chosen": advice.reason == "chosen",
        "reason": advice.reason,
        "candidate": cell.place if cell else None,
        "model": cell.name if cell else None,
        "select": ", ".join(advice.select),
        "ratios_to": advice.ratios_to,
        "dev_score": advice.dev_scores[cell.place] if cell else None,
        "points": advice.points,
        "missing": advice.missing,
        "comparison": choice.comparison if choice else None,
        "looks": choice.looks if choice else None,
        "optimism": choice.optimism if choice else None,
        "rivals": [rival.place for rival in advice.rivals],
        "standings": choice.standings if choice else {},
    }
