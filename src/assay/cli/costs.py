"""`assay costs RUN`: what the helper models of a run cost, and what the whole run will."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome, run_names


def costs(
    root: Path,
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="NAME, NAME/ID or NAME#SEED.", autocompletion=run_names),
    ],
    lang: Annotated[str, typer.Option(help="Language: en or zh.")] = "en",
) -> Outcome:
    """Show what a run's helper models cost, by model, stage, operator, step and problem."""
    from assay.lab.monitor.run_costs import run_costs
    from assay.pages.command_tables.cost_tables import costs_page
    from assay.pages.words import words
    from assay.runs.run_names import find_run, parse_run_name

    found = run_costs(find_run(root, parse_run_name(run)))
    return Outcome(found, costs_page(found, words(lang)), lang=lang)
