"""`assay matrix SWEEP` or `assay matrix RUN... --rows KEY`: any set of runs by any of its keys."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from assay.cli.output import Outcome, run_names

if TYPE_CHECKING:  # records load pyarrow, which help must do without
    from assay.lab.sweep.matrix.model import Matrix
    from assay.report.words import Words

Keys = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY", help="A further axis, one table for each value; may be repeated."),
]


def matrix(
    root: Path,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="SWEEP.toml | RUN...",
            help="A sweep file, or runs by name or pattern such as 'cot*'.",
            autocompletion=run_names,
        ),
    ],
    rows: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Such as stage.sft.batch, name, step or epoch."),
    ] = None,
    columns: Annotated[str | None, typer.Option(metavar="KEY", help="The same.")] = None,
    layers: Keys = None,
    on: Annotated[
        list[str] | None, typer.Option(help="Evaluation, benchmark or pattern; may be repeated.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="STAGE.last, STAGE.best, STAGE.all; else the last measured.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="NAME[@CHECKPOINT], KEY=VALUE of an axis, or 'base' of each run."),
    ] = None,
    select: Annotated[
        str | None, typer.Option(help="The evaluation that recommends a cell.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Accept an undeclared difference; may be repeated."),
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the page: en or zh.")] = "en",
) -> Outcome:
    """Pivot runs into a table with intervals, verdicts and averages, and write its page."""
    from assay.cli.matrix_results import matrix_result
    from assay.lab.sweep.matrix.request import Request, make_matrix
    from assay.report.matrix_page import write_matrix
    from assay.report.words import words

    catalogue = words(lang)
    request = Request(
        rows=rows,
        columns=columns,
        layers=tuple(layers or ()),
        on=tuple(on or ()),
        checkpoint=checkpoint,
        baseline=baseline,
        select=select,
        allow=tuple(allow or ()),
    )
    found = make_matrix(root, what, request)
    page = write_matrix(found, root, lang)
    shown: list[Any] = [
        *tables(found, catalogue),
        *sentences(found, catalogue),
        catalogue("terminal.page", file=page),
    ]
    return Outcome(
        {**matrix_result(found), "page": page}, shown, warnings=[str(note) for note in found.notes]
    )


def tables(found: "Matrix", words: "Words") -> list[Table]:
    """One table for each layer."""
    from assay.report.matrix_view import column_labels, layer_views

    views = []
    for layer in layer_views(found, words):
        table = Table(title=layer["title"] or None, show_lines=True)
        for label in (found.layout.rows, *column_labels(found, words), words("matrix.average")):
            table.add_column(label)
        for row in layer["rows"]:
            table.add_row(row["label"], *map(cell_text, row["cells"]), average_text(row["average"]))
        if layer["averages"]:
            averages = map(average_text, [*layer["averages"], layer["all"]])
            table.add_row(words("matrix.average"), *averages)
        views.append(table)
    return views


def cell_text(cell: dict[str, Any]) -> str:
    """A cell as the terminal shows it."""
    if not cell["measured"]:
        return cell["state"]
    lines = [cell["score"], cell["interval"], cell["size"]]
    change = cell["change"]
    if change is not None:
        lines += [f"{change['sign']} {change['difference']} {change['verdict']}"]
    return "\n".join(lines)


def average_text(found: dict[str, Any] | None) -> str:
    """An average as the terminal shows it."""
    if found is None:
        return "–"
    return "\n".join(filter(None, (found["score"], found["interval"], found["cells"])))


def sentences(found: "Matrix", words: "Words") -> list[str]:
    """Counts, dependence and the recommendation, a line each."""
    from assay.report.matrix_words import overlap_lines, recommendation_view, tally_lines

    advice = recommendation_view(found, words)
    dependent = words("matrix.dependent")
    said = tally_lines(found.tally, found, words)
    said += [f"{line} [{dependent}]" if yes else line for line, yes in overlap_lines(found, words)]
    title = words("matrix.recommendation")
    if advice["chosen"]:
        said.append(f"{title}: {advice['setting']} ({advice['model']}). {advice['why']}")
    else:
        said.append(f"{title}: {words('matrix.none')} {advice['why']}")
    return [*said, *(f"  {line}" for line in advice["evidence"])]
