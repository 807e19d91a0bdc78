"""`assay compare RUN RUN...`: compares checkpoints of several runs item by item.

A run may also be a file of results that another tool wrote. Unfair comparisons are refused.
"""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome, run_names

Runs = Annotated[
    list[str],
    typer.Argument(
        help="NAME[@CHECKPOINT] or FILE[@RUN], two or more; the first is the control. A bare "
        "NAME means all its seeds where every run has several.",
        autocompletion=run_names,
    ),
]
On = Annotated[
    str | None, typer.Option(help="Evaluation or benchmark; else the first that all have.")
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
    margin: Margin = None,
    non_inferior: NonInferior = None,
) -> Outcome:
    """Compare runs on the same items, refuse what is not fair, and write the page of it."""
    from assay.cli.results import table_result
    from assay.library.actions import compare as compare_runs
    from assay.report.comparison_terminal import comparison_shown
    from assay.report.words import translated, words

    found = compare_runs(
        *runs,
        root=root,
        on=on,
        control=control,
        allow=allow or (),
        margin=margin,
        non_inferior=non_inferior,
        metric=metric,
        format=format,
        cluster=cluster,
        page=page,
        lang=lang,
    )
    table, w = found.table, words(lang)
    shown = [*comparison_shown(table, lang, flips), w("terminal.page", file=found.page)]
    result = {**table_result(table), "page": found.page}
    findings = [translated(each, w) for each in found.findings]
    return Outcome(result, shown, findings, exit_code=2 if table.left_out else 0, lang=lang)
