"""`assay ceiling FILE`: what demonstrations, or fixed workflows, can do at all, before anything is
trained."""

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
        str | None, typer.Option(metavar="NAME", help="The evaluation; else the first that fits.")
    ] = None,
    items: Annotated[int | None, typer.Option(min=1, help="Only the first N items.")] = None,
    draws: Annotated[
        int, typer.Option(min=1, help="Random selections, or repeats, of each item.")
    ] = 4,
    breadth: Annotated[
        int, typer.Option(min=1, help="Selections that the search of a pair extends.")
    ] = 3,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Search all ordered selections.")
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table as Markdown, for a page.")
    ] = False,
) -> Outcome:
    """Measure what the best choice could win before anything is trained: of demonstrations, or of
    fixed workflows and the best of them per problem."""
    from assay.lab.ceiling.fixed_workflows_measured import WorkflowCeiling, ceiling_of
    from assay.lab.ceiling.measure import CeilingRequest
    from assay.library.actions import shown as progress
    from assay.pages.command_tables.ceiling_tables import ceiling_markdown, ceiling_shown
    from assay.pages.command_tables.workflow_ceiling_tables import (
        workflows_markdown,
        workflows_shown,
    )

    request = CeilingRequest(on, items, draws, None if exhaustive else breadth)
    with progress(True) as observer:
        found = ceiling_of(file, overrides or (), root, request, observer)
    if isinstance(found, WorkflowCeiling):
        shown = [workflows_markdown(found)] if markdown else workflows_shown(found)
    else:
        shown = [ceiling_markdown(found)] if markdown else ceiling_shown(found)
    return Outcome(found, shown, warnings=found.warnings)
