"""`assay check FILE`: finds problems of an experiment before it is run. Trains nothing."""

from collections import Counter
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
) -> Outcome:
    """Check an experiment without training: data, gold answers, leakage, lengths, memory, time."""
    from assay.cli.live_display import progress
    from assay.judge.findings import filled
    from assay.lab.check.all_checks import check_experiment
    from assay.report.check_tables import check_tables

    with progress() as observer:
        report = check_experiment(file, overrides or (), root=root, probe=probe, observer=observer)
    found = Counter(finding.severity for finding in report.findings)
    counts = {severity: found[severity] for severity in ("error", "warning", "note")}
    counted = {"file": file, "errors": counts["error"], "warnings": counts["warning"]}
    words = filled("{file}: {errors:errors}, {warnings:warnings}", counted)
    result = {"counts": counts, "numbers": report.numbers, "histograms": report.histograms}
    shown = [*check_tables(report.numbers, report.histograms), words]
    return Outcome(result, shown, report.findings, exit_code=2 if report.failed else 0)
