"""`assay patterns RUN`: which programs of a policy earn more, and how operators are chosen."""

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
    from assay.pages.page import Mark, Text
    from assay.pages.words import in_language
    from assay.pages.write_page import write_page
    from assay.runs.history import History, NothingRecorded
    from assay.runs.run_names import find_run, parse_run_name
    from assay.tasks.task import labs, task

    where = find_run(root, parse_run_name(run))
    experiment = History(where).experiment
    own = labs(task(experiment.task, root), experiment.model)
    makers = [lab.tables["patterns"] for lab in own if "patterns" in lab.tables]
    if not makers:
        fix = "patterns are of runs whose completions are programs over operators"
        raise NothingRecorded(f"the samples of {where} hold no programs", fix=fix)
    asked = {"first": first, "last": last, "evaluation": evaluation, "checkpoint": checkpoint}
    found, page = makers[0](where, lang, stage=stage, **asked)
    file = write_page(page, in_language(where.path / "patterns.html", lang))
    shown = [Text(Mark(page.title)), *page.blocks, Text(f"{file}", fit="whole")]
    return Outcome({"page": file, "patterns": found}, shown, lang=lang)
