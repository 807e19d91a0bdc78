"""`assay run FILE`: runs an experiment, then shows its results."""

from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.output import Outcome, executing

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Replace a value; may be repeated."),
]
Despite = Annotated[
    str | None,
    typer.Option(metavar="REASON", help="Go on although checks end with errors; marks the pages."),
]


def run(
    root: Path,
    file: Annotated[Path, typer.Argument(help="The experiment file.")],
    overrides: Overrides = None,
    new: Annotated[
        bool, typer.Option("--new", help="Start another run of a name that has runs.")
    ] = False,
    or_resume: Annotated[
        bool, typer.Option("--or-resume", help="Resume an unfinished run; leave a finished one.")
    ] = False,
    despite: Despite = None,
    lang: Annotated[str, typer.Option(help="Language of the page: en or zh.")] = "en",
) -> Outcome:
    """Check an experiment file, train its stages, measure its checkpoints, write the page."""
    from assay.cli.live_display import progress
    from assay.cli.results import run_results
    from assay.errors import InputError
    from assay.lab.run.launch import launch, launch_or_resume
    from assay.lab.setup.validate import read_whole
    from assay.report.page import Reporting

    if new and or_resume:
        raise InputError("--new and --or-resume exclude each other", fix="choose one")
    name = read_whole(file, overrides or (), root).name
    with executing(root, name):
        with progress() as shown_live:
            observer = Reporting(shown_live, lang)
            given: dict[str, Any] = {"root": root, "observer": observer, "despite": despite}
            if or_resume:
                launched = launch_or_resume(file, overrides or (), **given)
            else:
                launched = launch(file, overrides or (), new=new, **given)
        results, shown = [], []
        for each in launched:
            result, tables = run_results(each.run, lang)
            results.append({**result, "did": each.did})
            shown += [f"{each.run}: {WORDS[each.did]}", *tables]
    return Outcome({"runs": results}, shown)


WORDS = {
    "started": "finished",
    "resumed": "resumed and finished",
    "measured": "was finished already; measured on what was added, and nothing was trained again",
    "left alone": "was finished already; nothing was trained again",
}
