"""`assay protect`: keeps a run or a checkpoint from being deleted by any command."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome, run_names


def protect(
    root: Path,
    name: Annotated[
        str, typer.Argument(help="NAME or NAME@STAGE.step-N.", autocompletion=run_names)
    ],
    why: Annotated[str, typer.Option(help="The reason, shown to whoever tries to delete it.")],
) -> Outcome:
    """Protect a run, or one of its checkpoints, from every command."""
    from assay.runs.protection import protect_named

    path = protect_named(root, name, why)
    return Outcome({"protected": str(path), "why": why}, [f"protected {path}: {why}"])
