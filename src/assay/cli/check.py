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
    full: Annotated[
        bool, typer.Option("--full", help="Show every note and all tables of numbers.")
    ] = False,
) -> Outcome:
    """Check an experiment without training: data, gold answers, leakage, lengths, memory, time."""
    from assay.judge.templates import filled
    from assay.library.actions import check as check_spec
    from assay.pages.command_tables.check_tables import check_lines, check_tables, note_lines

    found = check_spec(file, overrides=overrides or (), root=root, probe=probe, calls=calls)
    figures = {"file": file, **{f"{kind}s": count for kind, count in found.counts.items()}}
    words = filled("{file}: {errors:errors}, {warnings:warnings}, {notes:notes}", figures)
    result = {"counts": found.counts, "numbers": found.numbers, "histograms": found.histograms}
    if full:
        shown = [*check_tables(found.numbers, found.histograms), words]
        return Outcome(result, shown, found.findings, exit_code=2 if found.failed else 0)
    notes = [] if probe else [each.what for each in found.findings if each.severity == "note"]
    shown = [*check_lines(found.numbers), *note_lines(notes), words]
    shown += [] if found.failed else [f"next: assay run {file}"]
    shown += [f"everything: assay check {file} --full"]
    # The result of a probe that was asked for is a note.
    counted = () if probe else ("note",)
    code = 2 if found.failed else 0
    return Outcome(result, shown, found.findings, counted=counted, exit_code=code)
