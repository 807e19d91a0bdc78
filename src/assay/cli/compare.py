"""`assay compare RUN RUN...`: checkpoints of several runs, item by item, or not at all.

A run may also be a file of results that another tool wrote; see `foreign_files`.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome, run_names
from assay.errors import InputError


def compare(
    root: Path,
    runs: Annotated[
        list[str],
        typer.Argument(
            help="NAME[@CHECKPOINT] or FILE[@RUN], two or more; the first is the control. A bare "
            "NAME means all its seeds where every run has several.",
            autocompletion=run_names,
        ),
    ],
    on: Annotated[
        str | None, typer.Option(help="Evaluation or benchmark; else the first that all have.")
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="What the others are compared with; else the run that their files name, else the "
            "first.",
            autocompletion=run_names,
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Accept an undeclared difference; may be repeated."),
    ] = None,
    flips: Annotated[
        bool, typer.Option("--flips", help="List the items gained and lost, for 'assay show'.")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where the page goes; else under comparisons/ in the lab's root."
        ),
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of table and page: en or zh.")] = "en",
    metric: Annotated[
        str | None, typer.Option(help="The score to take from files that have several.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="The format of the files; else the one recognised.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Column or metadata key that names the source of an item; else 'cluster', where "
            "the files have it.",
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            min=0.0, metavar="POINTS", help="How close two scores are equivalent; else 2 points."
        ),
    ] = None,
    non_inferior: Annotated[
        float | None,
        typer.Option(
            "--non-inferior",
            min=0.0,
            metavar="POINTS",
            help="Ask whether the others are at most so many points worse than the control.",
        ),
    ] = None,
) -> Outcome:
    """Compare runs on the same items, refuse what is not fair, and write the page of it."""
    from assay.cli.foreign_files import any_file, compare_files
    from assay.cli.results import table_result
    from assay.compare.controls import arrange
    from assay.compare.judged_table import compare_arms
    from assay.compare.seed_arms import arm_named, damaged_seeds
    from assay.compare.table import judged_again
    from assay.judge.verdict import asked_non_inferior, with_margin
    from assay.report.comparison_page import write_comparison
    from assay.report.comparison_terminal import comparison_shown
    from assay.report.words import translated, words
    from assay.runs.run_names import parse_run_name

    if any_file(runs):
        table = compare_files(root, runs, control, on, allow or (), metric, format, cluster)
    else:
        if cluster is not None:
            fix = "records of the lab name the sources of their items themselves"
            raise InputError("is for files of other tools", field="--cluster", fix=fix)
        names = arrange(root, runs, control)
        broken = [each for text in names for each in damaged_seeds(root, parse_run_name(text))]
        first, *others = [arm_named(root, text) for text in names]
        table = compare_arms(first, others, on=on, allow=allow or ())
        table = replace(table, findings=(*dict.fromkeys(broken), *table.findings))
    if margin is not None:
        table = judged_again(table, partial(with_margin, margin=margin / 100))
    if non_inferior is not None:
        table = judged_again(table, partial(asked_non_inferior, margin=non_inferior / 100))
    written = write_comparison(table, root, page, lang)
    shown = [*comparison_shown(table, lang, flips), words(lang)("terminal.page", file=written)]
    result = {**table_result(table), "page": written}
    findings = [translated(each, words(lang)) for each in (*table.left_out, *table.findings)]
    code = 2 if table.left_out else 0
    return Outcome(result, shown, findings, exit_code=code, lang=lang)
