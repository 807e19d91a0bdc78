"""Puts what a run no longer goes on from into a folder of its own: nothing is deleted or mixed.

Checkpoints go with all that was measured of them. The manifest says what went where and why.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from assay.runs.checkpoints import step_name
from assay.runs.manifest_file import PUT_ASIDE, read_manifest, write_manifest
from assay.runs.protection import guard_delete
from assay.runs.run_directory import RunDirectory

ASIDE = "aside"


@dataclass(frozen=True, slots=True)
class Place:
    """A step of a stage; step 0 is its start."""

    stage: str
    step: int

    def __str__(self) -> str:
        return f"{self.stage}.{step_name(self.step)}"


def put_aside(
    run: RunDirectory, checkpoints: Sequence[Place], start: Place, damage: str = ""
) -> Path:
    """Move checkpoints and what was measured of them; returns the folder that holds them.

    See `begin_aside`, which raises ProtectedPath before anything moves.
    """
    aside = begin_aside(run, checkpoints, start, damage)
    move_checkpoints(run, checkpoints, aside)
    return aside


def begin_aside(
    run: RunDirectory, checkpoints: Sequence[Place], start: Place, damage: str = ""
) -> Path:
    """Say in the manifest what is put aside; returns the folder that it is moved to.

    `start` is what the run goes on from, `damage` the file for whose damage it does. Raises
    ProtectedPath where a checkpoint is protected or other runs need it.
    """
    for place in checkpoints:
        guard_delete(run.root, run.checkpoint(place.stage, place.step), within=run.path)
    aside = _next_folder(run)
    _note(run, aside, checkpoints, start, damage)
    return aside


def move_checkpoints(run: RunDirectory, checkpoints: Sequence[Place], aside: Path) -> None:
    """Move checkpoints, and their records before them.

    So none has records that are another's after a kill. The last one goes first, so that none is
    left without those before it.
    """
    for place in reversed(checkpoints):
        for path in (*records_of(run, place), run.checkpoint(place.stage, place.step)):
            move_aside(run, path, aside)


def records_of(run: RunDirectory, place: Place) -> list[Path]:
    """Evaluation records of a checkpoint, finished and begun."""
    return sorted(run.evaluations.glob(f"*/{place}.*"))


def _next_folder(run: RunDirectory) -> Path:
    taken = [int(p.name) for p in (run.path / ASIDE).glob("[0-9]*") if p.name.isdigit()]
    return run.path / ASIDE / f"{max(taken, default=0) + 1:03d}"


def _note(
    run: RunDirectory, aside: Path, checkpoints: Sequence[Place], start: Place, damage: str
) -> None:
    manifest = read_manifest(run)
    entry = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "checkpoints": [str(place) for place in checkpoints],
        "start": str(start),
        "damage": damage,
        "folder": aside.relative_to(run.path).as_posix(),
    }
    manifest.setdefault("time", {}).setdefault(PUT_ASIDE, []).append(entry)
    write_manifest(run, manifest)


def move_aside(run: RunDirectory, path: Path, aside: Path) -> None:
    """Move a file or folder of the run, if it is there."""
    if path.exists():
        path.rename(_room(run, path, aside))


def copy_aside(run: RunDirectory, file: Path, aside: Path) -> None:
    """Keep a file of the run as it is, if it is there, before it is written anew."""
    if file.exists():
        shutil.copy2(file, _room(run, file, aside))


def _room(run: RunDirectory, path: Path, aside: Path) -> Path:
    target = aside / path.relative_to(run.path)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target
