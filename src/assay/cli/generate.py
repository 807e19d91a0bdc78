"""`assay generate FILE [NAME]`: makes the stored selections of an experiment. Trains nothing."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome
from assay.cli.run import Overrides


def generate(
    root: Path,
    file: Annotated[Path, typer.Argument(help="The experiment file.")],
    name: Annotated[
        str | None, typer.Argument(help="A [selections.NAME] table; omitted: all of them.")
    ] = None,
    overrides: Overrides = None,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Only every Nth query, from the Ith.")
    ] = "1/1",
) -> Outcome:
    """Make the stored selections that an experiment learns from; goes on where it was stopped."""
    from assay.lab.setup.session import generate_tables
    from assay.pages.live_display import progress as shown_progress

    with shown_progress() as observer:
        made = generate_tables(file, overrides or (), root, name, shard, observer)
    shown = []
    for each in made:
        rest = f"{each.left} of {each.queries} queries are left to other shards"
        shown.append(f"{each.name}: {each.made} queries made; {each.file or rest}")
        numbers = each.health.numbers() if each.health else {}
        shown += [f"  {key}: {value:.4g}" for key, value in numbers.items()]
    result = [
        {
            "name": each.name,
            "queries": each.queries,
            "made": each.made,
            "left": each.left,
            "file": each.file and str(each.file),
            "health": each.health,
        }
        for each in made
    ]
    findings = [finding for each in made for finding in each.findings]
    return Outcome({"selections": result}, shown, findings)
