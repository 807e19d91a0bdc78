"""`assay report RUN`: shows a run's results and writes its page.

`assay report FILE` shows the scores in a file of results.
"""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.compare import Item, Repeat, Score, Where
from assay.cli.output import Outcome
from assay.cli.resume import RunName
from assay.cli.run import Full


def report(
    root: Path,
    run: RunName,
    stage: Annotated[
        str | None, typer.Option(help="The stage whose progress is shown; else the last one.")
    ] = None,
    first: Annotated[
        int | None,
        typer.Option("--from", min=1, help="Progress since this step; else since the last report."),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", min=1, help="Progress until this step; else until now.")
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the page: en or zh.")] = "en",
    metric: Annotated[str | None, typer.Option(help="The only score to show of a file.")] = None,
    format: Annotated[str | None, typer.Option(help="The format of a file.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="KEY", help="What names the source of a file's items.")
    ] = None,
    item: Item = None,
    score: Score = None,
    repeat: Repeat = None,
    where: Where = None,
    bfcl: Annotated[
        Path | None,
        typer.Option(help="Write the run's BFCL scores as CSV files into this folder."),
    ] = None,
    full: Full = False,
) -> Outcome:
    """Show a run's results and progress and write its page, or show the scores in a file."""
    from assay.cli.results import bfcl_results, file_results, run_result, runs_shown
    from assay.compare.foreign_arms import is_file, read_options

    if bfcl is None and is_file(run):
        columns = {"item": item, "score": score, "repeat": repeat, "where": where or ()}
        return file_results(run, read_options(format, metric, cluster, **columns), lang)
    from assay.lab.monitor.report_journal import note_asked
    from assay.library.actions import open_run
    from assay.pages.run_page.page import Span, write_report
    from assay.pages.words import words

    found = open_run(run, root=root, lang=lang)
    if bfcl is not None:
        return Outcome(*bfcl_results(found.directory, bfcl))
    span = Span(stage, first, last)
    write_report(found.directory, lang, span)
    asked = span != Span()
    state = words(lang)(f"status.{found.status}")
    progressing = asked or full or found.status != "finished"
    shown = runs_shown([found], [state], full, span if progressing else None)
    result = run_result(found, span)
    if not asked:
        note_asked(found.directory)
    return Outcome(result, shown, lang=lang)
