"""`assay ceiling FILE`: what can be won on an experiment's problems, before anything is trained."""

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
    fixed programs and the best of them per problem."""
    from assay.lab.ceiling.ceiling import CeilingRequest, measure_ceiling
    from assay.library.actions import shown as progress
    from assay.pages.markdown import blocks_markdown
    from assay.pages.words import words

    request = CeilingRequest(on, items, draws, None if exhaustive else breadth)
    with progress(True) as observer:
        found, blocks = measure_ceiling(file, overrides or (), root, request, observer)
    shown = [blocks_markdown(blocks, words("en"))] if markdown else blocks
    return Outcome(found, shown, warnings=found.warnings)
