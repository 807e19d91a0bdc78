"""The folder of one run: paths of its files, and how it is created.

The files' contents are read in `status`, `metrics`, `manifest_file` and `records`.
"""

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from assay.data.files import new_folder, remove_parts
from assay.errors import InputError
from assay.runs.run_files import write_listed
from assay.runs.status import STATUS, Status, is_held, write_status

RUNS = "runs"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ID = re.compile(r"[A-Za-z0-9-]+")
_STEP = re.compile(r"step-([0-9]+)")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """`runs/<name>/<id>/` under a lab's root."""

    root: Path
    name: str
    id: str

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.root / RUNS / self.name / self.id

    @property
    def spec(self) -> Path:
        """The resolved experiment."""
        return self.path / "spec.toml"

    @property
    def manifest(self) -> Path:
        """The fingerprints."""
        return self.path / "manifest.json"

    @property
    def metrics(self) -> Path:
        """One line per step."""
        return self.path / "metrics.jsonl"

    def samples(self, stage: str, step: int) -> Path:
        """The completions of one step."""
        return self.path / "samples" / stage / f"step-{step:06d}.parquet"

    def judgements(self, stage: str) -> Path:
        """What judges said of the step that a stage is at."""
        return self.path / f"judgements-{stage}.jsonl"

    def checkpoints(self, stage: str) -> Path:
        """The folder of a stage's checkpoints."""
        return self.path / "checkpoints" / stage

    def checkpoint(self, stage: str, step: int) -> Path:
        """The folder of one checkpoint."""
        return self.checkpoints(stage) / f"step-{step:06d}"

    def checkpoint_steps(self, stage: str) -> list[int]:
        """The steps of the finished checkpoints of a stage, in order."""
        folder = self.checkpoints(stage)
        names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        return sorted(int(m[1]) for name in names if (m := _STEP.fullmatch(name)))

    def trainer(self, stage: str) -> Path:
        """The folder in which another tool trains a stage."""
        return self.path / "trainers" / stage

    @property
    def evaluations(self) -> Path:
        """The folder of all evaluation records."""
        return self.path / "evaluations"

    @property
    def pages(self) -> list[Path]:
        """The pages that exist, `report.html` and `report.md`, then those of other languages."""
        files = [*self.path.glob("report.*html"), *self.path.glob("report.*md")]
        return sorted(files, key=lambda file: (file.name.count("."), file.name))

    def __str__(self) -> str:
        return f"{self.name}/{self.id}"


def lab_root(folder: str | None = None) -> Path:
    """The lab's root: what `--lab` says, else ASSAY_LAB, else the working directory."""
    return Path(folder or os.environ.get("ASSAY_LAB") or ".").resolve()


def check_lab(root: Path) -> None:
    """Raise InputError unless there is a folder that may be a lab."""
    if not root.is_dir():
        problem = "is no folder" if root.exists() else "no such folder"
        raise InputError(problem, file=root, fix="name the root of a lab")


@contextmanager
def drafted_run(
    root: Path, name: str, *, seed: int, spec: str, new: bool = False
) -> Iterator[tuple[RunDirectory, RunDirectory]]:
    """A new run under a hidden id that no listing shows, with its resolved `spec` (TOML) and
    status, and the run that it becomes when the block ends; nothing is left where it raises.

    Raises InputError for a name that has runs, unless `new`.
    """
    if runs_of(root, name) and not new:
        fix = f"continue with 'assay resume {name}', or start another with --new"
        raise InputError(f"a run named {name!r} exists", fix=fix)
    now = datetime.now(UTC)
    run = RunDirectory(root, name, _next_id(runs_of(root, name), now))
    named = run.path.parent
    named.mkdir(parents=True, exist_ok=True)
    remove_parts(named)
    try:
        with new_folder(run.path) as folder:
            draft = RunDirectory(root, name, folder.name)
            write_listed(folder, draft.spec, spec)
            started = now.isoformat(timespec="seconds")
            write_status(folder, Status(seed=seed, started=started, run=str(run)))
            yield draft, run
    finally:
        if named.is_dir() and not any(named.iterdir()):
            named.rmdir()


def create_run(root: Path, name: str, *, seed: int, spec: str, new: bool = False) -> RunDirectory:
    """Create the folder of a new run atomically. See `drafted_run`."""
    with drafted_run(root, name, seed=seed, spec=spec, new=new) as (_, run):
        pass
    return run


def _next_id(earlier: Sequence[RunDirectory], now: datetime) -> str:
    """An id that sorts after those of earlier runs, also within one second and where the clock was
    set back: UTC time and six random hexadecimal digits."""
    fresh = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    last = earlier[-1].id if earlier else ""
    if fresh > last:
        return fresh
    stamp, _, digits = last.partition("-")
    if not re.fullmatch(r"[0-9a-f]{6}", digits) or digits == "f" * 6:
        return f"{last}0"
    above = int(digits, 16) + 1
    # Close above the last one, so that many runs of one second find room.
    return f"{stamp}-{above + secrets.randbelow(min(4096, 0x1000000 - above)):06x}"


def runs_of(root: Path, name: str) -> list[RunDirectory]:
    """The runs of one name, oldest first."""
    folder = root / RUNS / name
    # A folder without a status is no run: something of the user's, or half of a copy.
    ids = [p.name for p in folders_in(folder) if (p / STATUS).is_file() and _ID.fullmatch(p.name)]
    return [RunDirectory(root, name, id_) for id_ in ids]


def begun(root: Path, name: str) -> list[RunDirectory]:
    """The live runs of a name and those with a manifest, oldest first.

    A run that failed before it had a manifest has nothing to resume.
    """
    return [run for run in runs_of(root, name) if has_begun(run)]


def has_begun(run: RunDirectory) -> bool:
    """Whether a run is live or has a manifest."""
    return run.manifest.exists() or is_held(run.path)


BIRTH = re.compile(
    r"spec\.toml|status\.json|lock|checksums\.jsonl|sinks\.json|traceback-.*"
    r"|report\.(\w+\.)?(html|md)|costs\.(json|sqlite(-wal|-shm|-mark)?)|\..*\.part"
)
"""The files of a run before it has a manifest."""


def never_begun(root: Path, name: str) -> list[RunDirectory]:
    """The runs of a name whose process ended before they had a manifest, oldest first; not those
    that hold anything else. The caller holds the lab."""
    runs = (run for run in runs_of(root, name) if not has_begun(run))
    return [run for run in runs if all(BIRTH.fullmatch(p.name) for p in run.path.iterdir())]


def all_runs(root: Path) -> list[RunDirectory]:
    """Every run of a lab, by name and then by age."""
    names = [p.name for p in folders_in(root / RUNS) if _NAME.fullmatch(p.name)]
    return [run for name in names for run in runs_of(root, name)]


def unnameable(root: Path) -> list[str]:
    """Folders that would be runs but for names that no run can have, written as Python text."""
    ids = [p for folder in folders_in(root / RUNS) for p in folders_in(folder)]
    unreadable = [p.relative_to(root / RUNS) for p in ids if (p / STATUS).is_file()]
    return [
        ascii(f"{RUNS}/{path}")
        for path in unreadable
        if not (_NAME.fullmatch(path.parts[0]) and _ID.fullmatch(path.parts[1]))
    ]


def folders_in(folder: Path) -> list[Path]:
    """The folders in a folder by name, without hidden ones; none where it is not there."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
