"""`assay audit FILE`: what reported results show, and what they do not."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome


def audit(
    root: Path,
    file: Annotated[Path, typer.Argument(help="Reported results: .toml, .csv or .md.")],
    items: Annotated[
        int | None, typer.Option(min=1, help="Items of the benchmark, where the file has none.")
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the findings: en or zh.")] = "en",
) -> Outcome:
    """Audit results that others reported: noise, fairness, arithmetic, claims."""
    from assay.data.reported.read import read_reported
    from assay.judge.audit.rules import audit as judge
    from assay.report.audit import audit_findings, summary
    from assay.report.words import words

    words(lang)
    report = read_reported(file, items)
    flaws = judge(report)
    result = {"file": file, "report": report.model_dump(mode="json"), "flaws": flaws}
    shown = [summary(file, report, flaws, lang)]
    return Outcome(result, shown, audit_findings(flaws, lang))
