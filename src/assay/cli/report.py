"""`assay report RUN`: writes the run's page again, also in another language."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome
from assay.cli.resume import RunName


def report(
    root: Path,
    run: RunName,
    lang: Annotated[str, typer.Option(help="Language of the page: en or zh.")] = "en",
) -> Outcome:
    """Show a run's results and write its page (HTML and Markdown)."""
    from assay.cli.results import run_results
    from assay.lab.run_names import find_run, parse_run_name

    result, shown = run_results(find_run(root, parse_run_name(run)), lang)
    return Outcome(result, shown)
