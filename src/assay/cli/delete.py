"""`assay delete`: deletes a run or checkpoint, unless something refers to it or it is protected."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.output import Outcome, run_names


def delete(
    root: Path,
    name: Annotated[
        str, typer.Argument(help="NAME or NAME@STAGE.step-N.", autocompletion=run_names)
    ],
) -> Outcome:
    """Delete a run or a checkpoint; refused where another run or a record refers to it."""
    from assay.runs.protection import delete_named

    path = delete_named(root, name)
    return Outcome({"deleted": str(path)}, [f"deleted {path}"])
