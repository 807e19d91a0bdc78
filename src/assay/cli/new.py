"""`assay new NAME` writes an experiment that runs as it is: rows, a reward and a test of it."""

import sys
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from assay.cli.output import Outcome
from assay.data.files import new_folder
from assay.errors import InputError, nearest

STARTER = "starter"
"""The folder of a lab that holds them; `.txt` behind a module's name is left out."""


def new(
    root: Path,
    name: str,
    task: str = "chat",
) -> Outcome:
    """Write an experiment with rows, a reward and its test.

    name: The folder to make, and the experiment's name.
    task: The kind: chat, tools, math, demos or workflows.
    """
    if not name.replace("-", "_").isidentifier():
        fix = "letters, digits, - and _, beginning with a letter"
        raise InputError(f"{name!r} is no name of an experiment", field="NAME", fix=fix)
    kinds = starters()
    if task not in kinds:
        raise InputError(f"no kind {task!r}", field="--task", fix=nearest(task, kinds))
    folder, written = root / name, []
    with new_folder(folder) as made:
        for source in sorted(kinds[task].iterdir(), key=lambda file: file.name):
            last = source.name.removesuffix(".txt").replace("experiment.toml", f"{name}.toml")
            (made / last).write_text(source.read_text("utf-8").replace("NAME", name), "utf-8")
            written.append(folder / last)
    file = Path(name) / f"{name}.toml"
    shown = [f"wrote {', '.join(each.name for each in written)} in {folder}"]
    shown += [
        f"next: assay check {file}, assay run {file}; {Path(sys.executable).name} -m pytest {name}"
    ]
    return Outcome([str(each) for each in written], shown)


def starters() -> dict[str, Traversable]:
    """The folders by the name of their lab."""
    labs = files("assay") / "labs"
    return {lab.name: lab / STARTER for lab in labs.iterdir() if (lab / STARTER).is_dir()}
