"""`assay ceiling FILE`: what the arms of a task reach before anything is trained."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import Outcome
from assay.cli.run import Overrides

if TYPE_CHECKING:
    from assay.lab.run.ceiling import Ceiling
    from assay.pages.page import Table


def ceiling(
    root: Path,
    file: Annotated[Path, typer.Argument(help="The experiment file.")],
    overrides: Overrides = None,
    on: Annotated[
        str | None, typer.Option(metavar="NAME", help="The evaluation; else the first.")
    ] = None,
    items: Annotated[int | None, typer.Option(min=1, help="Only the first N items.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Repeats of each item.")] = 4,
    shots: Annotated[
        list[int] | None, typer.Option(min=1, help="So many demonstrations; may be given again.")
    ] = None,
) -> Outcome:
    """Measure what the best choice could win before anything is trained: of demonstrations, or of
    fixed workflows."""
    from assay.cli.results import table_result
    from assay.lab.run.ceiling import measure_ceiling
    from assay.library.actions import compare, shown

    with shown(True) as observer:
        found = measure_ceiling(
            file,
            overrides or (),
            root,
            observer,
            on=on,
            items=items,
            repeats=draws,
            shots=shots or (),
        )
    table = compare(*map(str, found.runs.values()), root=root)
    result = {
        **table_result(table.table),
        "arms": found.lines,
        "best_by_type": found.best_by_type,
        "same": found.same,
        "page": table.page,
    }
    lines = [
        f"{found.evaluation} ({table.table.evaluation.benchmark})",
        ceiling_table(found),
        "best per problem: chosen by its other repeats; per type and in hindsight by these very "
        "scores, which flatters",
        *(f"best by type: {kind}: {arm}" for kind, arm in found.best_by_type.items()),
        *(f"{arm} answers these items as {other} does" for arm, other in found.same.items()),
        f"page: {table.page}",
    ]
    return Outcome(result, lines, table.findings, warnings=found.warnings)


def ceiling_table(found: "Ceiling") -> "Table":
    """The arms with their types, the difference to their floor, and the share of the gap."""
    from assay.pages.page import Column, Mark, Table
    from assay.pages.words import percent

    kinds = [*found.lines[0].by_type]
    heads = ("score", *kinds, "to the floor", "95% interval", "share of the gap")
    rows = []
    for line in found.lines:
        own = [percent(line.score), *(percent(line.by_type[kind]) for kind in kinds)]
        if line.interval is None:
            rows.append([Mark(line.name), *own, "floor", "", ""])
            continue
        limits = f"{line.interval.low * 100:+.1f} to {line.interval.high * 100:+.1f}"
        share = "" if line.share is None else f"{line.share:.0%}"
        rows.append([line.name, *own, f"{line.difference * 100:+.1f}", limits, share])
    return Table([Column("arm"), *(Column(head, right=True) for head in heads)], rows)
