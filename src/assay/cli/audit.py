"""`assay audit FILE`: checks reported results, their statistics and the claims made of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.output import Outcome

if TYPE_CHECKING:
    from assay.errors import Finding


def audit(
    root: Path,
    file: Annotated[
        Path, typer.Argument(help="Reported results: .toml, .csv or .md; with a model any text.")
    ],
    items: Annotated[
        int | None, typer.Option(min=1, help="Items of the benchmark, where the file has none.")
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the findings: en or zh.")] = "en",
    extract_with: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Let a model (openai:NAME, hf:ID, path:DIR, run:NAME@CHECKPOINT) write FILE's "
            "record to FILE.record.toml; numbers that are not in their cited lines are refused.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Judge the extracted record without a look at it.")
    ] = False,
) -> Outcome:
    """Audit results that others reported: noise, fairness, arithmetic, claims."""
    from assay.pages.words import words

    words(lang)
    if extract_with is None:
        return _judged(file, items, lang)
    seen, record = _extracted(root, file, extract_with, lang)
    if not yes:
        return seen
    judged = _judged(record, items, lang)
    result = {**judged.result, "refused": seen.result["refused"]}
    shown = [*seen.shown, *judged.shown]
    return Outcome(result, shown, [*seen.findings, *judged.findings], lang=lang)


def _judged(file: Path, items: int | None, lang: str) -> Outcome:
    """The findings of a record, or of the tables of a file, and the parts that were not used."""
    from assay.data.reported.read_reported import read_reported
    from assay.judge.audit.rules import audit_all
    from assay.pages.command_tables.audit_findings import audit_findings, summary, unused_lines

    reading = read_reported(file, items)
    flaws = audit_all(reading.records)
    records = [record.model_dump(mode="json") for record in reading.records]
    result = {
        "file": file,
        "reports": records,
        "unused": reading.unused,
        "flaws": [*map(_flaw, flaws)],
    }
    shown = [*unused_lines(reading.unused, lang), summary(file, reading, flaws, lang)]
    return Outcome(result, shown, audit_findings(flaws, lang), lang=lang)


def _flaw(found: "Finding") -> dict[str, Any]:
    """A finding for programs, as the report names its parts."""
    numbers = {k: v for k, v in found.values.items() if k not in ("about", "line")}
    about, line = found.values["about"], found.values["line"]
    shown = {"key": found.code, "severity": found.severity, "about": about}
    return {**shown, "numbers": numbers, "line": line}


def _extracted(root: Path, file: Path, model: str, lang: str) -> tuple[Outcome, Path]:
    """The record that a model extracted, to be seen, and where it is."""
    from assay.lab.evaluate.extraction import extract
    from assay.pages.command_tables.audit_findings import extracted, refused_findings
    from assay.pages.words import visible

    found = extract(root, file, model)
    record = found.file.read_text(encoding="utf-8")
    result = {"file": file, "record": found.file, "text": record, "refused": found.refused}
    shown = [*map(visible, record.splitlines()), extracted(found.file, found.refused, lang)]
    said = refused_findings(found.refused, lang)
    return Outcome(result, shown, said, lang=lang), found.file
