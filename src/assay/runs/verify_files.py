"""Compares every file of a run with its checksum, and lists damaged, missing and unknown files.

Reads only, repairs nothing.
"""

import glob
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.data.files import (
    CHECKSUMS,
    PART,
    Damage,
    find_damage,
    recorded_checksums,
    sha256_file,
)
from assay.errors import InputError
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.runs.cost_ledger import LEDGER, LedgerUnusable, lost_calls, read_calls
from assay.runs.history import read_description
from assay.runs.judgement_journal import FOLDER, read_file
from assay.runs.metrics import lost_history, read_metrics
from assay.runs.records import check_record
from assay.runs.run_directory import OPTIMIZER, RunDirectory, is_held, misplaced, stored_status
from assay.runs.run_files import LIST, check_listed, listed_files, whole_lines

CHANGING = re.compile(
    r"status\.json|sinks\.json|now\.json|lock|metrics\.jsonl|protected\.json|checksums\.jsonl"
    r"|report\.(\w+\.)?(html|md)|reports/[^/]+/step-\d+\.md|traceback-[^/]+\.txt"
    r"|evaluations/[^/]+/[^/]+\.parts/[^/]+|(agreement/|judgements-)[^/]+\.jsonl|trainers/.+"
    r"|costs\.sqlite(-wal|-shm)?(-mark|-unreadable)?"
)
"""Files that are rewritten, or are meant for people; they have no checksum."""
JOURNAL = re.compile(r"(agreement/|judgements-|evaluations/.+\.parts/)[^/]+\.jsonl")
"""Those of them whose lines say where they belong."""
WRITTEN = re.compile(
    r"spec\.toml|manifest\.json|costs\.json|selection\.json|guards\.json|samples/[^/]+/step-\d+\.parquet"
    r"|evaluations/[^/]+/(evaluation\.json|[^/]+\.parquet)|agreement/[^/]+\.json"
    r"|code/[^/]+\.py"
)
"""Files that the run's own list of checksums has."""
IN_CHECKPOINT = re.compile(r"^(.*/)?checkpoints/[^/]+/step-\d+/")
ASIDE = "aside/"

Kind = Literal["damaged", "missing", "unknown"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that differs from what the run wrote."""

    kind: Kind
    file: str
    """Its path inside the run."""
    problem: str


@dataclass(frozen=True, slots=True)
class Verified:
    """The state of a run's files."""

    compared: int
    """Files that have their checksum."""
    faults: tuple[Fault, ...]
    """By path."""
    without: tuple[str, ...]
    """Files and checkpoints for which no checksum was recorded."""


def verify_run(run: RunDirectory) -> Verified:
    """Check every file of a run."""
    names = _names(run)
    faults = [] if (run.path / LIST).exists() else [Fault("missing", LIST, "is missing")]
    faults += _raised(run, lambda: listed_files(run.path))
    listed = {} if faults else listed_files(run.path)
    faults += _raised(run, lambda: stored_status(run.path))
    checkpoints = sorted({m[0].rpartition("/")[0] for m in map(IN_CHECKPOINT.search, names) if m})
    own = [name for name in names if not IN_CHECKPOINT.search(name)]
    written = [name for name in own if name in listed]
    unlisted = [n for n in own if n not in written and WRITTEN.fullmatch(n)]
    known = {*written, *unlisted, *(n for n in own if CHANGING.fullmatch(n))}
    faults += [
        *(f for name in sorted(known) for f in _raised(run, lambda name=name: _read(run, name))),
        *(fault for name in checkpoints for fault in _checkpoint_faults(run, name)),
        *_missing(run, listed, set(written)),
        *_metrics_faults(run),
        *_ledger_faults(run),
        *(_unknown(n) for n in own if n not in known and not (PART in n and is_held(run.path))),
    ]
    recorded = [recorded_checksums(run.path / name) for name in checkpoints]
    without = [n for n, record in zip(checkpoints, recorded, strict=True) if record is None]
    compared = len(written) + sum(
        (run.path / checkpoint / name).is_file()
        for checkpoint, record in zip(checkpoints, recorded, strict=True)
        if not isinstance(record, Damage)
        for name in record or ()
    )
    ordered = tuple(sorted(dict.fromkeys(faults), key=lambda fault: fault.file))
    return Verified(compared, ordered, (*sorted(unlisted), *without))


def _names(run: RunDirectory) -> list[str]:
    """The files of a run by path; not those that were put aside because they are damaged."""
    names = (p.relative_to(run.path).as_posix() for p in run.path.rglob("*") if p.is_file())
    return [name for name in names if not name.startswith(ASIDE)]


def _fault(run: RunDirectory, file: Path, problem: str) -> Fault:
    kind: Kind = "missing" if problem == "is missing" else "damaged"
    return Fault(kind, file.relative_to(run.path).as_posix(), problem)


def _raised(run: RunDirectory, read: Callable[[], object]) -> list[Fault]:
    """What is wrong with a file by the error of its reader."""
    try:
        read()
    except InputError as error:
        return [_fault(run, Path(error.file or run.path), error.problem)]
    return []


def _read(run: RunDirectory, name: str) -> None:
    """Raise InputError where a file differs from what the run wrote under its name, by its checksum
    and by what it says of itself."""
    file = run.path / name
    if file.suffix == ".parquet":
        check_record(file)
    elif file.name == "evaluation.json":
        read_description(file)
    elif file.match(f"{FOLDER}/*.json"):
        read_file(file)
    elif JOURNAL.fullmatch(name):
        whole_lines(file)
    else:
        check_listed(file, sha256_file(file))


def _checkpoint_faults(run: RunDirectory, name: str) -> Iterator[Fault]:
    """The differences of a checkpoint from its own checksums."""
    folder = run.path / name
    if other := misplaced(folder):
        yield _fault(run, other.file, other.problem)
        return
    for damage in find_damage(folder):
        # Optimizer states are removed later; one that exists must be complete.
        if damage.problem != "is missing" or damage.file.name != OPTIMIZER:
            yield _fault(run, damage.file, damage.problem)
    recorded = recorded_checksums(folder)
    if recorded is None or isinstance(recorded, Damage):
        return
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        if file.relative_to(folder).as_posix() not in (*recorded, CHECKSUMS):
            yield _unknown(file.relative_to(run.path).as_posix())


def _missing(
    run: RunDirectory, listed: Mapping[str, Sequence[str]], there: set[str]
) -> Iterator[Fault]:
    for name in listed.keys() - there:
        # A kill after the checksum is recorded leaves the file under its temporary name.
        file = run.path / name
        if not any(file.parent.glob(f".{glob.escape(file.name)}.*{PART}")):
            yield Fault("missing", name, "is missing")
    for record in run.evaluations.glob("*/[!.]*.parquet"):
        reference = parse_checkpoint(record.stem)
        if reference is None or reference.stage is None or reference.step is None:
            continue
        folder = run.checkpoint(reference.stage, reference.step)
        if not folder.is_dir():
            place = folder.relative_to(run.path).as_posix()
            yield Fault("missing", place, f"is missing; {record.parent.name} has measured it")


def _metrics_faults(run: RunDirectory) -> list[Fault]:
    """The first thing that is wrong with the metrics."""
    name = run.metrics.name
    stages = sorted(p.name for p in run.path.glob("checkpoints/*") if p.is_dir())
    places = [run.checkpoint(s, step) for s in stages for step in run.checkpoint_steps(s)]
    own = [place for place in places if not misplaced(place)]
    lost: list[str] = []

    def read() -> None:
        lost.extend(filter(None, (lost_history(run.metrics, place) for place in own)))
        read_metrics(run.metrics)

    if fault := _raised(run, read):
        return fault
    if not run.metrics.exists() and places:
        return [Fault("missing", name, "is missing")]
    return [Fault("damaged", name, lost[0])] if lost else []


def _ledger_faults(run: RunDirectory) -> list[Fault]:
    """What the cost ledger lacks of what it held before, if anything."""
    try:
        lost = lost_calls(run)
        if not lost:
            read_calls(run.path)
    except LedgerUnusable as error:
        lost = str(error).removeprefix(f"{run.path / LEDGER}: ")
    except InputError as error:  # a costs.json that is compared with its checksum
        lost = f"cannot be compared with {error.file}: {error.problem}"
    kind: Kind = "damaged" if (run.path / LEDGER).exists() else "missing"
    return [Fault(kind, LEDGER, lost)] if lost else []


def _unknown(name: str) -> Fault:
    left = any(part.startswith(".") and part.endswith(PART) for part in name.split("/"))
    why = "was left half written; its run's next work removes it" if left else "no run writes it"
    return Fault("unknown", name, why)
