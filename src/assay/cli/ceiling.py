"""`assay ceiling FILE`: what the arms of a task reach before anything is trained."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome
from assay.cli.run import Overrides


def ceiling(
    root: Path,
    file: Annotated[Path, typer.Argument(help="The experiment file.")],
    overrides: Overrides = None,
    on: Annotated[
        str | None, typer.Option(metavar="NAME", help="The evaluation; else the first.")
    ] = None,
    items: Annotated[int | None, typer.Option(min=1, help="Only the first N items.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Repeats of each item.")] = 4,
) -> Outcome:
    """Measure what the best choice could win before anything is trained: of demonstrations, or of
    fixed workflows."""
    from assay.cli.results import table_result
    from assay.lab.run.ceiling import measure_ceiling
    from assay.library.actions import compare, shown
    from assay.pages.comparison.comparison_page import comparison_shown
    from assay.pages.words import worded, words

    with shown(True) as observer:
        found = measure_ceiling(
            file, overrides or (), root, observer, on=on, items=items, repeats=draws
        )
    table = compare(*map(str, found.runs.values()), root=root)
    best = f"the best arm of each item, in hindsight: {found.hindsight:.1%}"
    result = {
        **table_result(table.table),
        "scores": found.scores,
        "hindsight": found.hindsight,
        "page": table.page,
    }
    lines = [*comparison_shown(table.table)[:3], best, f"page: {table.page}"]
    findings = [worded(each, words()) for each in table.findings]
    return Outcome(result, lines, findings, warnings=found.warnings)
