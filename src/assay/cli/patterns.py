"""`assay patterns RUN`: which workflow programs earn more, and how operators are chosen."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome
from assay.cli.resume import RunName


def patterns(
    root: Path,
    run: RunName,
    stage: Annotated[
        str | None, typer.Option(help="The stage whose samples are read; else the last one.")
    ] = None,
    first: Annotated[
        int | None, typer.Option("--from", min=1, help="Only samples of this step and later.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", min=1, help="Only samples of this step and earlier.")
    ] = None,
    evaluation: Annotated[
        str | None, typer.Option(metavar="NAME", help="The answers of an evaluation instead.")
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Of the evaluation; else the last one measured.")
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the page: en or zh.")] = "en",
) -> Outcome:
    """Set patterns of high- and low-reward programs side by side, and write their page."""
    from assay.lab.patterns.find_patterns import find_patterns
    from assay.lab.patterns.recorded_programs import PatternRequest
    from assay.pages.patterns.patterns_page import patterns_shown, write_patterns
    from assay.runs.run_names import find_run, parse_run_name

    where = find_run(root, parse_run_name(run))
    found = find_patterns(where, PatternRequest(stage, first, last, evaluation, checkpoint))
    page = write_patterns(found, where, lang)
    return Outcome({"page": page, "patterns": found}, [*patterns_shown(found, lang), f"{page}"])
