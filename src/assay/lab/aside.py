"""Puts what a run no longer goes on from into a folder of its own: nothing is deleted or mixed.

Checkpoints go with all that was measured of them. The manifest says what went where and why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from assay.lab.manifest_file import PUT_ASIDE, read_manifest, write_manifest
from assay.lab.protection import guard_delete
from assay.lab.run_directory import RunDirectory
from assay.train.checkpoint import step_name

ASIDE = "aside"


@dataclass(frozen=True, slots=True)
class Place:
    """A step of a stage; step 0 is its start."""

    stage: str
    step: int

    def __str__(self) -> str:
        return f"{self.stage}.{step_name(self.step)}"


def put_aside(
    run: RunDirectory,
    checkpoints: Sequence[Place],
    start: Place,
    damage: str = "",
    also: Sequence[Path] = (),
) -> Path:
    """Move checkpoints, their records and the files `also`; returns the folder that holds them.

    `start` is what the run goes on from, `damage` the file for whose damage it does. Raises
    ProtectedPath, before anything moves, where one is protected or other runs need it.
    """
    folders = [run.checkpoint(place.stage, place.step) for place in checkpoints]
    for folder in folders:
        guard_delete(run.root, folder, within=run.path)
    aside = _next_folder(run)
    _note(run, aside, checkpoints, start, damage)
    # A checkpoint goes after what was measured of it, so that after a kill none has records that
    # are another's, and the last one first, so that none is left without those before it.
    records = [file for place in checkpoints for file in records_of(run, place)]
    for path in (*records, *also, *reversed(folders)):
        _move(run, path, aside)
    return aside


def records_of(run: RunDirectory, place: Place) -> list[Path]:
    """Evaluation records of a checkpoint, finished and begun."""
    return sorted(run.evaluations.glob(f"*/{place}.part*"))


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


def _move(run: RunDirectory, path: Path, aside: Path) -> None:
    if path.exists():
        target = aside / path.relative_to(run.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
