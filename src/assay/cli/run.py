"""`assay run FILE`: runs an experiment, then shows its results."""

from pathlib import Path
from typing import Annotated

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

Full = Annotated[bool, typer.Option("--full", help="Show all tables and examples here too.")]


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
    full: Full = False,
) -> Outcome:
    """Check an experiment file, train its stages, measure its checkpoints, write the page."""
    from assay.cli.results import run_result, runs_shown
    from assay.errors import InputError
    from assay.lab.setup.validate import read_whole
    from assay.library.actions import run_seeds

    if new and or_resume:
        raise InputError("--new and --or-resume exclude each other", fix="choose one")
    with executing(root, read_whole(file, overrides or (), root).name):
        made = run_seeds(
            file,
            overrides=overrides or (),
            root=root,
            new=new,
            or_resume=or_resume,
            despite=despite,
            lang=lang,
        )
        results = [{**run_result(each), "did": each.did} for each in made]
        shown = runs_shown(made, [WORDS[each.did] for each in made], full)
    return Outcome({"runs": results}, shown, lang=lang)


WORDS = {
    "started": "finished",
    "resumed": "resumed and finished",
    "measured": "was finished already; measured on what was added, and nothing was trained again",
    "left alone": "was finished already; nothing was trained again",
}
