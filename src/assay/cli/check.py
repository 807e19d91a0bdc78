"""`assay check FILE`: finds problems of an experiment before it is run. Trains nothing."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome
from assay.cli.run import Overrides


def check(
    root: Path,
    file: Annotated[Path, typer.Argument(help="The experiment file.")],
    overrides: Overrides = None,
    probe: Annotated[
        int, typer.Option(min=0, help="Sample this many prompts to see whether there is signal.")
    ] = 0,
    calls: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Requests to a helper model for each completion; else those of earlier runs.",
        ),
    ] = None,
) -> Outcome:
    """Check an experiment without training: data, gold answers, leakage, lengths, memory, time."""
    from assay.judge.findings import filled
    from assay.library.actions import check as check_spec
    from assay.report.command_tables.check_tables import check_tables

    found = check_spec(file, overrides=overrides or (), root=root, probe=probe, calls=calls)
    counted = {"file": file, "errors": found.counts["error"], "warnings": found.counts["warning"]}
    words = filled("{file}: {errors:errors}, {warnings:warnings}", counted)
    result = {"counts": found.counts, "numbers": found.numbers, "histograms": found.histograms}
    shown = [*check_tables(found.numbers, found.histograms), words]
    return Outcome(result, shown, found.findings, exit_code=2 if found.failed else 0)
