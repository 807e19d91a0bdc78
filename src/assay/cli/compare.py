"""The verbs that compare: compare, matrix, plan, audit.

A run may also be a file of results that another tool wrote. Unfair comparisons are refused.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from assay.cli.output import Lang, Outcome, run_names, taken
from assay.errors import Finding, InputError

if TYPE_CHECKING:  # records load pyarrow, which help must do without
    from assay.lab.sweep.model import Matrix, SweepCell


Allow = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="Accept an undeclared difference; may be repeated."),
]


def matrix(
    root: Path,
    file: Annotated[Path, typer.Argument(metavar="SWEEP.toml")],
    on: str | None = None,
    allow: Allow = None,
    lang: Lang = "en",
) -> Outcome:
    """Show a sweep as a table with verdicts.

    Writes the page of it.

    file: The sweep file.
    on: A reporting evaluation in place of the file's.
    """
    from assay.lab.sweep.request import make_matrix, settle
    from assay.pages.matrix_page import matrix_shown, note_lines, write_matrix
    from assay.pages.words import words

    catalogue = words(lang)
    table = make_matrix(root, file, on, allow or ())
    page = write_matrix(table, root, lang)
    settled = None if on or allow else settle(root, table)
    shown = [*matrix_shown(table, root, lang), catalogue("terminal.page", file=page)]
    result = {**matrix_result(table), "page": page, "winner": settled.winner if settled else None}
    warnings = note_lines(table.notes, catalogue)
    warnings += [settled.note] if settled and settled.note else []
    return Outcome(result, shown, warnings=warnings, lang=lang)


def matrix_result(table: "Matrix") -> dict[str, Any]:
    """The values of the page by name, without scores of items."""
    cell, choice = table.recommendation.cell, table.recommendation.choice
    return {
        **taken(table, "name", "layout", "on", "ratios_to", "rows", "columns", "layers"),
        "cells": [_cell_result(cell, table) for cell in table.cells.values()],
        "counts": table.tally,
        **taken(table, "controls", "blocks", "trainings"),
        "recommendation": {
            **taken(table.recommendation, "reason", "select", "ratios_to", "points", "missing"),
            "candidate": cell.place if cell else None,
            "model": cell.name if cell else None,
            "dev_score": table.recommendation.dev_scores[cell.place] if cell else None,
            "choice": choice and taken(choice, "comparison", "looks", "optimism", "standings"),
            "rivals": [rival.place for rival in table.recommendation.rivals],
        },
        "notes": [{**taken(note, "code", "severity"), **note.values} for note in table.notes],
    }


def _cell_result(cell: "SweepCell", matrix: "Matrix") -> dict[str, Any]:
    """One cell with the records behind it."""
    names = ("place", "state", "name", "score", "interval", "items", "repeats", "seeds")
    return {
        **taken(cell, *names, "seeds_missing", "is_control", "run"),
        "is_baseline": matrix.baseline in cell.own,
        "dev_score": matrix.recommendation.dev_scores.get(cell.place),
        "mark": matrix.mark(cell),
        "comparison": cell.against.get(matrix.baseline),
        **taken(cell, "against", "same_weights", "alike"),
        "records": [origin.file for origin in cell.origins],
    }


def audit(
    root: Path,
    file: Path,
    items: Annotated[int | None, typer.Option(min=1)] = None,
    column: Annotated[list[str] | None, typer.Option(metavar="ROLE=TITLE")] = None,
    control: Annotated[str, typer.Option(metavar="RUN")] = "",
    lang: Lang = "en",
) -> Outcome:
    """Audit results that others reported.

    Noise, fairness, arithmetic, claims.

    file: Reported results: a record in TOML, .csv or .md.
    items: Items of the benchmark, where the file has none.
    column: A column of the tables: run, benchmark, score, items, right, control, says,
        setting.NAME, score.BENCHMARK; else the titles are these.
    control: The run of the tables that others are compared to.
    """
    from assay.data.reported.read_reported import read_reported
    from assay.judge.audit.rules import audit_all
    from assay.pages.command_tables import audit_findings, summary

    named = [each.partition("=") for each in column or []]
    for role, equals, title in named:
        if not (role and equals and title):
            raise InputError(f"{role + equals!r} is not ROLE=TITLE", field="--column")
    columns = {role: title for role, _, title in named}
    reading = read_reported(file, items, columns, control)
    flaws = audit_all(reading.records)
    records = [record.model_dump(mode="json") for record in reading.records]
    result = {
        "file": file,
        "reports": records,
        "skipped": reading.skipped,
        "flaws": [*map(_flaw, flaws)],
    }
    shown = summary(file, reading, flaws, lang)
    return Outcome(result, shown, audit_findings(flaws, lang), lang=lang)


def _flaw(flaw: "Finding") -> dict[str, Any]:
    """A finding for programs, as the report names its parts."""
    numbers = dict(flaw.values)
    place = {name: numbers.pop(name) for name in ("about", "line")}
    return {"key": flaw.code, "severity": flaw.severity, **place, "numbers": numbers}


def plan(
    root: Path,
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN RUN]", autocompletion=run_names)
    ] = None,
    difference: Annotated[float, typer.Option(metavar="POINTS")] = 3.0,
    on: str | None = None,
    discordance: Annotated[float | None, typer.Option(metavar="SHARE")] = None,
    score: Annotated[float | None, typer.Option(metavar="SHARE")] = None,
    arms: int = 2,
    seeds: int = 1,
    repeats: int = 1,
    power: float = 0.8,
    lang: Lang = "en",
) -> Outcome:
    """Plan the items and seeds that show a difference.

    From a pilot, or from typed numbers.

    runs: A pilot: NAME[@CHECKPOINT] twice, the control first; all seeds of a bare NAME.
    difference: The difference that is to be seen, in points.
    on: Evaluation of the pilot; else the first that both have.
    discordance: Without a pilot: the share of items that change.
    score: Without a pilot: the score of both arms, about.
    arms: Arms in all, the control among them.
    seeds: Trainings of each arm.
    repeats: Passes over the items.
    power: The chance of seeing the difference.
    """
    from assay.compare.compare_names import pilot, plan_from, typed
    from assay.judge.sample_size import Design
    from assay.pages.command_tables import plan_blocks, plan_result

    if runs and (discordance is not None or score is not None):
        problem = "a pilot and typed numbers exclude each other"
        raise InputError(problem, fix="leave out the runs, or --discordance and --score")
    rates = pilot(root, runs, on) if runs else typed(discordance, score)
    planned = plan_from(rates, Design(0, repeats, seeds, arms), difference / 100, power)
    return Outcome(plan_result(rates, planned), plan_blocks(rates, planned, lang), lang=lang)


GATE_FAILED = 3
"""The exit code of a comparison that `--fail-on` does not let pass."""


def compare(
    root: Path,
    runs: Annotated[list[str], typer.Argument(autocompletion=run_names)],
    on: str | None = None,
    control: Annotated[str | None, typer.Option(metavar="RUN", autocompletion=run_names)] = None,
    allow: Allow = None,
    lang: Lang = "en",
    metric: str | None = None,
    cluster: Annotated[str | None, typer.Option(metavar="KEY")] = None,
    item: Annotated[str | None, typer.Option(metavar="COLUMN")] = None,
    score: Annotated[str | None, typer.Option(metavar="COLUMN")] = None,
    higher_is_better: Annotated[
        bool | None, typer.Option("--higher-is-better/--lower-is-better")
    ] = None,
    margin: Annotated[float | None, typer.Option(min=0.0, metavar="POINTS")] = None,
    non_inferior: Annotated[float | None, typer.Option(min=0.0, metavar="POINTS")] = None,
    fail_on: Literal["worse", "undecided"] | None = None,
) -> Outcome:
    """Compare runs item by item; refuse what is not fair.

    Writes the page of it.

    runs: NAME[@CHECKPOINT] or FILE[@RUN], two or more; the first is the control. A bare NAME means
        all its seeds where every run has several.
    on: Evaluation or benchmark; else the first that all have.
    control: What the others are compared with; else the run that their files name, else the first.
    metric: The score to take from files that have several.
    cluster: Column or metadata key that names the source of an item; else 'cluster', where the
        files have it.
    item: Any tool's JSONL, JSON, CSV or parquet: what names the item, such as doc.id.
    score: With --item: the score.
    higher_is_better: Which way the metric goes, where neither file nor name says it.
    margin: How close two scores are equivalent; else 2 points.
    non_inferior: Ask whether the others are at most so many points worse than the control.
    fail_on: End with exit code 3 where a run is worse than the control (undecided: or may be), or
        cannot be compared; with --non-inferior, where that is not shown.
    """
    from assay.cli.results import table_result
    from assay.compare.table import failures
    from assay.library.actions import compare as compare_runs
    from assay.pages.comparison_page import comparison_shown
    from assay.pages.words import worded, words

    comparison = compare_runs(
        *runs,
        root=root,
        on=on,
        control=control,
        allow=allow or (),
        margin=margin,
        non_inferior=non_inferior,
        metric=metric,
        cluster=cluster,
        item=item,
        score=score,
        higher_is_better=higher_is_better,
        lang=lang,
    )
    table, w = comparison.table, words(lang)
    shown = [*comparison_shown(table, lang), w("terminal.page", file=comparison.page)]
    result = {**table_result(table), "page": comparison.page}
    findings = [worded(each, w) for each in (*table.left_out, *table.findings)]
    code, reasons = 2 if table.left_out or table.contradicted else 0, list[str]()
    if fail_on is not None:
        reasons = failures([table], fail_on)
        result["gate"] = {"fail_on": fail_on, "failed": reasons}
        code = code or (GATE_FAILED if reasons else 0)
    failed = "; ".join(reasons)
    return Outcome(result, shown, findings, exit_code=code, lang=lang, failed=failed)
