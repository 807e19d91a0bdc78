"""`assay check FILE`: everything about an experiment that can be known before it is run."""

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
    from assay.lab.check import check_experiment

    findings = check_experiment(file, overrides or (), root, probe)
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = sum(finding.severity == "warning" for finding in findings)
    result = {"errors": errors, "warnings": warnings, "notes": len(findings) - errors - warnings}
    words = f"{file}: {errors} errors, {warnings} warnings"
    return Outcome(result, [words], findings, exit_code=2 if errors else 0)
