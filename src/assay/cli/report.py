"""`assay report RUN`: writes the run's page again. `assay report FILE`: another tool's scores."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome
from assay.cli.resume import RunName


def report(
    root: Path,
    run: RunName,
    lang: Annotated[str, typer.Option(help="Language of the page: en or zh.")] = "en",
    metric: Annotated[str | None, typer.Option(help="The only score to show of a file.")] = None,
    format: Annotated[str | None, typer.Option(help="The format of a file.")] = None,
) -> Outcome:
    """Show a run's results and write its page, or show the scores in another tool's file."""
    from assay.cli.foreign import any_file, report_file

    if any_file([run]):
        return report_file(run, lang, metric, format)
    from assay.cli.results import run_results
    from assay.lab.run_names import find_run, parse_run_name

    result, shown = run_results(find_run(root, parse_run_name(run)), lang)
    return Outcome(result, shown)
