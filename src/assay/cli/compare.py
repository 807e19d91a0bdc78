"""`assay compare RUN RUN...`: compares checkpoints of several runs item by item.

A run may also be a file of results that another tool wrote. Unfair comparisons are refused.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.output import Outcome, run_names

if TYPE_CHECKING:  # records load pyarrow, which help must do without
    from assay.compare.table import Table
    from assay.library.typed_results import BenchmarksComparison

Runs = Annotated[
    list[str],
    typer.Argument(
        help="NAME[@CHECKPOINT] or FILE[@RUN], two or more; the first is the control. A bare "
        "NAME means all its seeds where every run has several.",
        autocompletion=run_names,
    ),
]
On = Annotated[
    list[str] | None,
    typer.Option(
        help="Evaluation or benchmark; else the first that all have. Repeated: one table of all, "
        "with the harmonic mean of the ratios to the control."
    ),
]
RatiosTo = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SCORE",
        help="A given baseline of an evaluation or benchmark, such as gsm8k=0.716, for each of "
        "several.",
    ),
]
Control = Annotated[
    str | None,
    typer.Option(
        metavar="RUN",
        help="What the others are compared with; else the run that their files name, else the "
        "first.",
        autocompletion=run_names,
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="Accept an undeclared difference; may be repeated."),
]
Flips = Annotated[
    bool, typer.Option("--flips", help="List the items gained and lost, for 'assay show'.")
]
Page = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Where the page goes; else under comparisons/ in the lab's root."
    ),
]
Lang = Annotated[str, typer.Option(help="Language of table and page: en or zh.")]
Metric = Annotated[str | None, typer.Option(help="The score to take from files that have several.")]
Format = Annotated[
    str | None, typer.Option(help="The format of the files; else the one recognised.")
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Column or metadata key that names the source of an item; else 'cluster', where "
        "the files have it.",
    ),
]
Item = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Any tool's JSONL, JSON, CSV or parquet: what names the item, such as doc.id; @key: "
        "its place.",
    ),
]
Score = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="With --item: the score, or COLUMN=TEXT that means 1."),
]
Repeat = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="With --item: the number of the pass; else an item that comes again is a repeat.",
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=TEXT", help="With --item: only rows that have it; may be repeated."
    ),
]
Higher = Annotated[
    bool | None,
    typer.Option(
        "--higher-is-better/--lower-is-better",
        help="Which way the metric goes, where neither file nor name says it.",
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(
        min=0.0, metavar="POINTS", help="How close two scores are equivalent; else 2 points."
    ),
]
NonInferior = Annotated[
    float | None,
    typer.Option(
        "--non-inferior",
        min=0.0,
        metavar="POINTS",
        help="Ask whether the others are at most so many points worse than the control.",
    ),
]
Sequential = Annotated[
    bool,
    typer.Option(
        "--sequential",
        help="Use a test that keeps its level however often you compare while items are added; "
        "the looks are recorded.",
    ),
]

GATE_FAILED = 3
"""The exit code of a comparison that `--fail-on` does not let pass."""


class FailOn(StrEnum):
    """What ends with GATE_FAILED; "undecided" includes "worse"."""

    worse = "worse"
    undecided = "undecided"


Failing = Annotated[
    FailOn | None,
    typer.Option(
        "--fail-on",
        help="End with exit code 3 where a run is worse than the control (undecided: or may be), "
        "or cannot be compared; with --non-inferior, where that is not shown.",
    ),
]


def compare(
    root: Path,
    runs: Runs,
    on: On = None,
    control: Control = None,
    allow: Allow = None,
    flips: Flips = False,
    page: Page = None,
    lang: Lang = "en",
    metric: Metric = None,
    format: Format = None,
    cluster: Cluster = None,
    item: Item = None,
    score: Score = None,
    repeat: Repeat = None,
    where: Where = None,
    higher_is_better: Higher = None,
    margin: Margin = None,
    non_inferior: NonInferior = None,
    ratios_to: RatiosTo = None,
    sequential: Sequential = False,
    fail_on: Failing = None,
) -> Outcome:
    """Compare runs on the same items, refuse what is not fair, and write the page of it."""
    if ratios_to or len(on or ()) > 1:
        from assay.errors import InputError
        from assay.library.actions import compare_benchmarks

        of_files = (metric, format, cluster, item, score, repeat, where)
        of_two = non_inferior is not None or flips or sequential
        if any(of_files) or of_two or higher_is_better is not None:
            fix = "leave --metric, --format, --cluster, --item, --score, --repeat, --where, "
            fix += "--lower-is-better, --non-inferior, --flips and --sequential out"
            raise InputError("several benchmarks are compared in the lab alone", fix=fix)
        found = compare_benchmarks(
            *runs,
            on=on or (),
            ratios_to=figures_of(ratios_to or ()),
            root=root,
            control=control,
            allow=allow or (),
            margin=margin,
            page=page,
            lang=lang,
        )
        return _gated(_several(found), found.table.tables, fail_on)
    from assay.cli.results import table_result
    from assay.library.actions import compare as compare_runs
    from assay.pages.comparison.comparison_page import comparison_shown
    from assay.pages.words import worded, words

    found = compare_runs(
        *runs,
        root=root,
        on=on[0] if on else None,
        control=control,
        allow=allow or (),
        margin=margin,
        non_inferior=non_inferior,
        sequential=sequential,
        metric=metric,
        format=format,
        cluster=cluster,
        item=item,
        score=score,
        repeat=repeat,
        where=where or (),
        higher_is_better=higher_is_better,
        page=page,
        lang=lang,
    )
    table, w = found.table, words(lang)
    shown = [*comparison_shown(table, lang, flips), w("terminal.page", file=found.page)]
    result = {**table_result(table), "page": found.page}
    findings = [worded(each, w) for each in found.findings]
    outcome = Outcome(result, shown, findings, exit_code=2 if table.left_out else 0, lang=lang)
    return _gated(outcome, [table], fail_on)


def _gated(outcome: Outcome, tables: "Sequence[Table]", fail_on: FailOn | None) -> Outcome:
    """The outcome with the exit code and the line of a gate that does not let it pass."""
    if fail_on is None:
        return outcome
    from assay.compare.table import failures

    found = failures(tables, fail_on.value)
    result = {**outcome.result, "gate": {"fail_on": fail_on.value, "failed": found}}
    code = outcome.exit_code or (GATE_FAILED if found else 0)
    return replace(outcome, result=result, exit_code=code, failed="; ".join(found))


def _several(found: "BenchmarksComparison") -> Outcome:
    """Several benchmarks for programs and for people."""
    from assay.cli.results import benchmarks_result
    from assay.pages.comparison.benchmarks_content import benchmarks_shown, findings_of
    from assay.pages.words import worded, words

    w = words(found.lang)
    shown = [*benchmarks_shown(found.table, w), w("terminal.page", file=found.page)]
    result = {**benchmarks_result(found.table), "page": found.page}
    findings = [worded(each, w) for each in findings_of(found.table)]
    damaged = any(table.left_out for table in found.table.tables)
    return Outcome(result, shown, findings, exit_code=2 if damaged else 0, lang=found.lang)


def figures_of(texts: Sequence[str]) -> dict[str, float]:
    """`NAME=SCORE`, the score as a share. Raises InputError."""
    from assay.errors import InputError

    figures = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        try:
            figures[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InputError(f"{text!r} is not NAME=SCORE", field="--ratios-to", fix="gsm8k=0.716")
    return figures
