"""`assay resume NAME`: continues an interrupted or failed run, then shows its results.

If a finished run was killed before its page was written, only the page is written.
"""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome, executing, run_names
from assay.cli.run import Despite, Full

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
    log: Annotated[
        list[str] | None,
        typer.Option(metavar="SINK", help="Send metrics to wandb, trackio, mlflow or tensorboard."),
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the page: en or zh.")] = "en",
    full: Full = False,
) -> Outcome:
    """Continue a run from its last checkpoint, or from an earlier one."""
    from assay.cli.results import run_result, runs_shown
    from assay.library.actions import open_run
    from assay.library.actions import resume as resume_run

    found = open_run(run, root=root, lang=lang)
    with executing(root, found.name):
        made = resume_run(
            found,
            root=root,
            past_guard=past_guard,
            start_from=start_from,
            despite=despite,
            log=log or (),
            lang=lang,
        )
        shown = runs_shown([made], [WORDS[made.did]], full)
        return Outcome(run_result(made), shown, lang=lang)


WORDS = {
    "resumed": "resumed and finished",
    "page written": "was finished; its page is written now",
}
