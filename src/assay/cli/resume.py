"""`assay resume NAME`: continues an interrupted or failed run, then shows its results.

If a finished run was killed before its page was written, only the page is written.
"""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome, executing, run_names
from assay.cli.run import Despite

RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="NAME, NAME/ID or NAME#SEED.", autocompletion=run_names),
]


def resume(
    root: Path,
    run: RunName,
    past_guard: Annotated[
        bool, typer.Option("--past-guard", help="Go on although a guard stopped the run.")
    ] = False,
    start_from: Annotated[
        str,
        typer.Option("--from", metavar="STAGE.step-N", help="Train again from this checkpoint."),
    ] = "",
    despite: Despite = None,
    lang: Annotated[str, typer.Option(help="Language of the page: en or zh.")] = "en",
) -> Outcome:
    """Continue a run from its last checkpoint, or from an earlier one."""
    from assay.cli.live_display import progress
    from assay.cli.results import run_results
    from assay.data.files import remove_leftovers
    from assay.report.page import Reporting, lacks_page
    from assay.runs.run_names import find_run, parse_run_name
    from assay.runs.status import hold_run

    found = find_run(root, parse_run_name(run))
    if lacks_page(found) and not (start_from or past_guard):
        with hold_run(found.path):
            remove_leftovers(found.path)
        result, shown = run_results(found, lang)
        return Outcome(result, [f"{found}: was finished; its page is written now", *shown])
    with executing(root, found.name):
        from assay.lab.run.runner import resume as resume_run

        with progress() as shown_live:
            observer = Reporting(shown_live, lang)
            resume_run(
                found,
                observer=observer,
                past_guard=past_guard,
                start_from=start_from,
                despite=despite,
            )
        result, shown = run_results(found, lang)
    return Outcome(result, [f"{found}: resumed and finished", *shown])
