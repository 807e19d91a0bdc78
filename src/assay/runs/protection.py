"""Decides what must not be deleted or overwritten: what is referenced or marked as protected.

A checkpoint is referenced by runs that start from it, by evaluation records that measured it and by
sweeps that chose it. References from inside the deleted folder do not count.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from assay.data.files import PART, remove_parts
from assay.errors import InputError
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.runs.registry import note_deleted, remove_run
from assay.runs.run_directory import RUNS, RunDirectory, all_runs, hold_run, read_manifest
from assay.runs.run_files import FIX, DamagedFile, read_json, write_json
from assay.runs.run_names import (
    RunNotFound,
    checkpoint_directory,
    chosen_checkpoints,
    find_run,
    read_run_name,
)

PROTECTED = "protected.json"
Reference = tuple[str, str]
"""What needs something, and what it needs, as paths from the lab's root."""


def references(runs: Iterable[RunDirectory]) -> list[Reference]:
    """What the runs of a lab need."""
    return sorted({each for run in runs for each in _references_of(run)})


def _references_of(run: RunDirectory) -> set[Reference]:
    """The checkpoints that the run's model and helper models are, that its stages start from in
    other runs, that its records measured, and that its adapters stand on; all runs of the lab where
    its manifest cannot be read."""
    here = _inner(run, run.manifest)
    references = set(_measured(run))
    try:
        manifest = read_manifest(run)
        stages = manifest.get("stages", {})
        models = [manifest.get("base_weights", {}), *manifest.get("helpers", {}).values()]
        for each in (*models, *(stage.get("from", {}) for stage in stages.values())):
            if "checkpoint" in each:
                references.add((here, each["checkpoint"]))
        for name, stage in stages.items():
            if stage.get("adapt", {}).get("kind") == "lora":
                references |= set(_adapter_starts(run, name, stage.get("start", "base")))
    except InputError:
        references.add((_inner(run, run.path), RUNS))
    return references


def _measured(run: RunDirectory) -> Iterator[Reference]:
    """The checkpoints that the run's records measured."""
    for record in run.evaluations.glob("*/[!.]*.parquet"):
        reference = parse_checkpoint(record.stem)
        if reference is not None and reference.stage and reference.step is not None:
            checkpoint = run.checkpoint(reference.stage, reference.step)
            yield _inner(run, record), _inner(run, checkpoint)


def _adapter_starts(run: RunDirectory, stage: str, start: str) -> Iterator[Reference]:
    """What the LoRA checkpoints of a stage stand on; nothing where that is the base, or gone."""
    reference = parse_checkpoint(start)
    if reference is None or reference.stage is None:
        return
    try:
        folder = checkpoint_directory(run, reference)
    except RunNotFound:
        return
    for step in run.checkpoint_steps(stage):
        yield _inner(run, run.checkpoint(stage, step)), _inner(run, folder)


def _inner(run: RunDirectory, path: Path) -> str:
    return path.relative_to(run.root).as_posix()


def read_protected(run: RunDirectory) -> dict[str, str]:
    """Protected paths inside the run, with the reasons. Raises DamagedFile."""
    file = run.path / PROTECTED
    marked = read_json(file, dict) if file.exists() else {}
    for path, why in marked.items():
        if not isinstance(why, str) or "\0" in path:
            raise DamagedFile(f"cannot be read: {path[:80]!r} has no reason", file=file, fix=FIX)
    return marked


def protected_paths(runs: Iterable[RunDirectory]) -> dict[str, str]:
    """Protected paths from the lab's root, with the reasons; all of a run whose list of them cannot
    be read."""
    reasons: dict[str, str] = {}
    for run in runs:
        try:
            marked = read_protected(run)
        except InputError as error:
            marked = {".": f"what of it was protected cannot be read: {error}"}
        reasons |= {_inner(run, run.path / path): why for path, why in marked.items()}
    return reasons


def mark_protected(run: RunDirectory, path: Path, why: str) -> None:
    """Protect a file or folder of a run, or all of it, from every command, with the reason."""
    marked = read_protected(run) | {path.relative_to(run.path).as_posix(): why}
    write_json(run.path / PROTECTED, marked)


def guard_delete(root: Path, path: Path, within: Path | None = None) -> None:
    """Raise InputError if `path`, its content or a folder around it is protected.

    References from inside `within`, by default `path` itself, do not count.
    """
    here = _lab_path(root, path)
    inner = _lab_path(root, within or path)
    runs = all_runs(root)
    for target, why in protected_paths(runs).items():
        if _touch(here, target):
            raise InputError(f"{target} is protected: {why}", file=path)
    for source, target in references(runs):
        if _touch(here, target) and not _inside(source, inner):
            fix = f"delete {source} first, if nobody needs it"
            raise InputError(f"{source} refers to {target}", file=path, fix=fix)
    for file, target in chosen_checkpoints(root):
        if _touch(here, target):
            fix = f"delete {_lab_path(root, file)} first, if nobody needs the winner"
            raise InputError(f"the sweep {file.parent.name!r} chose it", file=path, fix=fix)


def delete_run(run: RunDirectory) -> None:
    """Delete a run. Raises InputError, also while a process executes it."""
    with hold_run(run.path):
        guard_delete(run.root, run.path)
        note_deleted(run)
        remove_run(run)


def delete_checkpoint(run: RunDirectory, stage: str, step: int) -> None:
    """Delete one checkpoint. Raises InputError, also while a process executes the run."""
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

    Raises RunNotFound, InputError.
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
