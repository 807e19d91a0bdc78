"""`sweeps/NAME/winner.json` and `points.json`: the run that a sweep chose, and what it runs.

The choice is made in `lab.sweep.matrix.recommendation`; here it is written, read and, where there
is none yet, explained.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from assay.errors import InputError, nearest
from assay.runs.run_directory import runs_of
from assay.runs.run_files import FIX, DamagedFile, as_entry, read_json, write_json
from assay.runs.status import read_status

SWEEPS = "sweeps"
WINNER, POINTS = "winner.json", "points.json"


@dataclass(frozen=True, slots=True)
class Chosen:
    """One run of the winning point."""

    run: str
    """NAME/ID."""
    checkpoint: str
    """As records name it: `base` or `sft.step-000040`."""


@dataclass(frozen=True, slots=True)
class Winner:
    """The winning point of a sweep with the evidence for it."""

    sweep: str
    runs: Mapping[str, Chosen]
    """By training seed; the first is what `SWEEP@winner` means."""
    setting: Mapping[str, Any]
    """Its values on the axes of the table."""
    points: int
    """Points that it is the best of."""
    rule: str
    evidence: Mapping[str, Any]
    chosen: str
    """When, in UTC."""
    earlier: Sequence[Mapping[str, Any]] = field(default_factory=list)
    """Winners that it took the place of: their runs, points and time."""

    def chosen_run(self, seed: int | None = None) -> Chosen | None:
        """The run of a training seed, or of the first."""
        return self.runs.get(str(seed)) if seed is not None else next(iter(self.runs.values()))


def write_winner(root: Path, winner: Winner) -> Path:
    """Store the winner of a sweep, whole or not at all; returns the file."""
    file = root / SWEEPS / winner.sweep / WINNER
    write_json(file, {"schema": 1, **asdict(winner)})
    return file


def read_winner(root: Path, sweep: str) -> Winner | None:
    """The recorded winner of a sweep; None before there is one. Raises DamagedFile."""
    file = root / SWEEPS / sweep / WINNER
    if not file.exists():
        return None
    values = read_json(file, dict)
    values.pop("schema", None)
    found = as_entry(Winner, values, file)
    if not found.runs:
        raise DamagedFile("cannot be read: it names no runs", file=file, fix=FIX)
    _check_sweep(file, found.sweep)
    return found


def _check_sweep(file: Path, sweep: str) -> None:
    """Raise DamagedFile where a file in the folder of a sweep is another sweep's."""
    if sweep != file.parent.name:
        raise DamagedFile(f"is of the sweep {sweep}", file=file, fix=FIX)


def chosen_checkpoints(root: Path) -> Iterator[tuple[Path, str]]:
    """The file of every recorded winner with each of its checkpoints, by path in the lab.

    Raises DamagedFile.
    """
    for file in sorted((root / SWEEPS).glob(f"*/{WINNER}")):
        winner = read_winner(root, file.parent.name)
        for chosen in winner.runs.values() if winner else ():
            stage, _, step = chosen.checkpoint.partition(".")
            inner = f"/checkpoints/{stage}/{step}" if step else ""
            yield file, f"runs/{chosen.run}{inner}"


def write_points(root: Path, sweep: str, table: Mapping[str, Any]) -> Path:
    """Store what a sweep runs: `points`, each with the `run` of its name, and `seeds`."""
    file = root / SWEEPS / sweep / POINTS
    write_json(file, {"sweep": sweep, **table})
    return file


def winner_of(root: Path, sweep: str) -> Winner:
    """The recorded winner. Raises InputError, which says how much of the sweep is missing."""
    found = read_winner(root, sweep)
    if found is not None:
        return found
    file = root / SWEEPS / sweep / POINTS
    if not file.exists():
        folder = root / SWEEPS
        known = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
        fix = nearest(sweep, known) if known else "run 'assay fill' on its sweep file"
        raise InputError(f"no sweep {sweep!r} has chosen a winner", fix=fix)
    planned = read_json(file, dict)
    _check_sweep(file, planned.get("sweep", sweep))
    points = [point for point in planned.get("points", []) if "run" in point]
    states = ({read_status(run.path).status for run in runs_of(root, p["run"])} for p in points)
    missing = sum("finished" not in each for each in states)
    left = f"{missing} of {len(points)} points are not finished" if missing else "none was chosen"
    fix = "'assay fill' its file, or see 'assay matrix' on it"
    raise InputError(f"the sweep {sweep!r} has no winner yet: {left}", fix=fix)
