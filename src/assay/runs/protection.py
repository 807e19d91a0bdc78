"""Decides what must not be deleted or overwritten: what is referenced or marked as protected.

A checkpoint is referenced by runs that start from it, by evaluation records that measured it and by
sweeps that chose it. References from inside the deleted folder do not count.
"""

import json
from pathlib import Path

from assay.data.files import PART, atomic_write_text, remove_parts
from assay.errors import InputError
from assay.runs.registry import (
    PROTECTED,
    forget_run,
    note_run,
    protected_paths,
    read_protected,
    rebuild_index,
    references,
)
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import checkpoint_directory, find_run, read_run_name
from assay.runs.status import hold_run
from assay.runs.trial_ledger import note_deleted
from assay.runs.winner_file import chosen_checkpoints


def mark_protected(run: RunDirectory, path: Path, why: str) -> None:
    """Protect a file or folder of a run, or all of it, from every command, with the reason."""
    marked = read_protected(run) | {path.relative_to(run.path).as_posix(): why}
    atomic_write_text(run.path / PROTECTED, json.dumps(marked, indent=2) + "\n")
    note_run(run)


def guard_delete(root: Path, path: Path, within: Path | None = None) -> None:
    """Raise InputError if `path`, its content or a folder around it is protected.

    References from inside `within`, by default `path` itself, do not count.
    """
    # A deletion cannot be taken back, so it is judged by the folders and not by an old index.
    rebuild_index(root)
    here = _lab_path(root, path)
    inner = _lab_path(root, within or path)
    for target, why in protected_paths(root).items():
        if _touch(here, target):
            raise InputError(f"{target} is protected: {why}", file=path)
    for source, target in references(root):
        if _touch(here, target) and not _inside(source, inner):
            fix = f"delete {source} first, if nobody needs it"
            raise InputError(f"{source} refers to {target}", file=path, fix=fix)
    for file, target in chosen_checkpoints(root):
        if _touch(here, target):
            fix = f"delete {_lab_path(root, file)} first, if nobody needs the winner"
            raise InputError(f"the sweep {file.parent.name!r} chose it", file=path, fix=fix)


def is_marked(run: RunDirectory, path: Path) -> bool:
    """Whether a file or folder of a run was marked protected, or something in it or around it."""
    here = path.relative_to(run.path).as_posix()
    return any(_touch(here, marked) for marked in read_protected(run))


def delete_run(run: RunDirectory) -> None:
    """Delete a run. Raises InputError, and RunBusy while a process executes it."""
    with hold_run(run.path):
        guard_delete(run.root, run.path)
        note_deleted(run)
        remove_run(run)


def remove_run(run: RunDirectory) -> None:
    """Take a run that nobody needs, and that nobody else executes, out of every listing at once;
    what is left of it after a kill is only rubbish."""
    rubbish = run.path.with_name(f".{run.id}{PART}")
    run.path.rename(rubbish)
    forget_run(run)
    remove_parts(rubbish.parent)


def delete_checkpoint(run: RunDirectory, stage: str, step: int) -> None:
    """Delete one checkpoint. Raises InputError, and RunBusy while a process executes the run."""
    with hold_run(run.path):
        checkpoint = run.checkpoint(stage, step)
        guard_delete(run.root, checkpoint)
        checkpoint.rename(checkpoint.with_name(f".{checkpoint.name}{PART}"))
        remove_parts(checkpoint.parent)


def protect_named(root: Path, name: str, why: str) -> Path:
    """Protect what a name means, a run or a checkpoint; returns its folder. Raises RunNotFound."""
    run, path = _named(root, name)
    mark_protected(run, path, why)
    return path


def delete_named(root: Path, name: str) -> Path:
    """Delete what a name means, a run or a checkpoint; returns what was its folder.

    Raises RunNotFound, InputError, RunBusy.
    """
    run, path = _named(root, name)
    if path == run.path:
        delete_run(run)
    else:
        delete_checkpoint(run, path.parent.name, int(path.name.removeprefix("step-")))
    return path


def _named(root: Path, name: str) -> tuple[RunDirectory, Path]:
    reference = read_run_name(root, name)
    run = find_run(root, reference)
    if reference.checkpoint is None:
        return run, run.path
    return run, checkpoint_directory(run, reference.checkpoint)


def _lab_path(root: Path, path: Path) -> str:
    return path.resolve().relative_to(root.resolve()).as_posix()


def _touch(one: str, other: str) -> bool:
    return _inside(one, other) or _inside(other, one)


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/") or folder == "."
