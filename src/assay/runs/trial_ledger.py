"""The ledger of trials: how often a lab looked at the items of a benchmark, over all of its runs.

Every checkpoint after training that was measured is one trial. They are counted from the evaluation
records of the runs; those of deleted runs are kept in `deleted_trials.jsonl`, so that a deletion
does not lower the count. What a count means for a verdict is decided in `judge.verdict`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.data.files import append_line, kept
from assay.judge.verdict import Looks
from assay.runs.run_directory import RunDirectory, all_runs
from assay.runs.run_files import DamagedFile, as_entry, read_json, whole_lines

DELETED = "deleted_trials.jsonl"
"""In the lab's root: the trials of runs that are gone, a JSON object in a line."""
BASE = "base"
"""The checkpoint before training is what others are compared with, no trial of its own."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One evaluation of a run: the checkpoints that looked at some items."""

    run: str
    """NAME/ID."""
    evaluation: str
    """The folder of its records."""
    benchmark: str
    checkpoints: tuple[str, ...]
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The trials of a lab."""

    kept: tuple[Trial, ...]
    deleted: tuple[Trial, ...]
    """Of runs that were deleted."""
    unknown: tuple[str, ...]
    """Runs that are damaged, or gone without a command of the lab."""


_known: ContextVar[dict[Path, Ledger] | None] = ContextVar("ledgers", default=None)


@contextmanager
def reading_once() -> Iterator[None]:
    """Within it the ledger of a lab is read once, however many verdicts stand beside it."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def read_ledger(root: Path) -> Ledger:
    """All trials of a lab. Raises DamagedFile for a file of deleted trials that cannot be read."""
    known = _known.get()
    if known is None:
        return _read_ledger(root)
    if root not in known:
        known[root] = _read_ledger(root)
    return known[root]


def _read_ledger(root: Path) -> Ledger:
    found: list[Trial] = []
    unknown: list[str] = []
    for run in all_runs(root):
        try:
            found += trials_of(run)
        except DamagedFile:
            unknown.append(str(run))
    deleted: dict[tuple[str, str], Trial] = {}
    for each in _deleted(root):
        # A run that a kill kept from being deleted still counts by itself.
        if (root / "runs" / (each if isinstance(each, str) else each.run)).exists():
            continue
        if isinstance(each, str):
            unknown.append(each)
        else:  # a deletion that a kill ended is noted twice
            deleted[each.run, each.evaluation] = each
    return Ledger(tuple(found), tuple(deleted.values()), tuple(dict.fromkeys(unknown)))


def trials_of(run: RunDirectory) -> Iterator[Trial]:
    """What a run looked at after training. Raises DamagedFile for a damaged record."""
    for file in sorted(run.evaluations.glob("*/evaluation.json")):
        benchmark, items = _asked(file)
        # Listed anew: a folder's time is too coarse to tell two records apart.
        names = sorted(p.stem for p in file.parent.glob("[!.]*.parquet") if p.stem != BASE)
        if names:
            yield Trial(str(run), file.parent.name, benchmark, tuple(names), items)


@kept(1 << 14)
def _asked(file: Path) -> tuple[str, tuple[str, ...]]:
    """Benchmark and items of an evaluation."""
    values = read_json(file, dict)
    benchmark, items = values.get("benchmark"), values.get("items")
    if not isinstance(benchmark, str) or not isinstance(items, list):
        raise DamagedFile("cannot be read: no benchmark or no items", file=file)
    return benchmark, tuple(map(str, items))


def _deleted(root: Path) -> Iterator[Trial | str]:
    """The trials of deleted runs; of one whose trials are not known, its name."""
    file = root / DELETED
    for number, line in enumerate(whole_lines(file) if file.exists() else (), 1):
        alone = line.keys() == {"run"} and isinstance(line["run"], str)
        yield line["run"] if alone else as_entry(Trial, line, file, number)


def note_deleted(run: RunDirectory) -> None:
    """Keep the trials of a run that is about to be deleted."""
    try:
        lines: list[Mapping[str, Any]] = [asdict(trial) for trial in trials_of(run)]
    except DamagedFile:
        lines = [{"run": str(run)}]
    _append(run.root, lines)


def note_gone(runs: Iterable[RunDirectory]) -> None:
    """Note runs whose folder is gone, and with it what they had looked at."""
    for run in runs:
        _append(run.root, [{"run": str(run)}])


def _append(root: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    for line in lines:
        append_line(root / DELETED, json.dumps(line, ensure_ascii=False))


def looks_at(root: Path, benchmark: str, items: Iterable[str]) -> Looks:
    """The looks of a lab at a benchmark: of trials on some of these items. Raises DamagedFile."""
    return _looks(read_ledger(root), benchmark, items)


def _looks(ledger: Ledger, benchmark: str, items: Iterable[str]) -> Looks:
    asked = frozenset(items)
    kept, deleted = (
        [t for t in trials if t.benchmark == benchmark and not asked.isdisjoint(t.items)]
        for trials in (ledger.kept, ledger.deleted)
    )
    gone = sum(len(trial.checkpoints) for trial in deleted)
    return Looks(
        benchmark=benchmark,
        looks=gone + sum(len(trial.checkpoints) for trial in kept),
        runs=len({trial.run for trial in (*kept, *deleted)}),
        deleted=gone,
        unknown=len(ledger.unknown),
    )


def looks_by_benchmark(root: Path) -> dict[str, Looks]:
    """The looks of a lab at every benchmark, by name. Raises DamagedFile."""
    ledger = read_ledger(root)
    items: dict[str, set[str]] = {}
    for trial in (*ledger.kept, *ledger.deleted):
        items.setdefault(trial.benchmark, set()).update(trial.items)
    return {name: _looks(ledger, name, items[name]) for name in sorted(items)}
