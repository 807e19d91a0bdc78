"""What all pages of the window share: the labs with their runs, and what was read of them before.

A reading is kept until a file that it depends on is another one. Nothing is written.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Any

from assay.errors import nearest
from assay.pages.facts import RunFacts, gather
from assay.runs.run_directory import RunDirectory, all_runs, check_lab
from assay.runs.run_names import RunNotFound, find_run, parse_run_name
from assay.runs.status import STATUS, is_held
from assay.view.completions import Completions

KEPT = 64
"""Readings of each kind that stay in memory; of completions so many runs as `RUNS_KEPT`."""
RUNS_KEPT = 6


@dataclass
class Kept:
    """The latest readings by what they are of."""

    most: int
    _found: OrderedDict[Hashable, tuple[Hashable, Any]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def get(self, key: Hashable, stamp: Hashable, read: Callable[[], Any]) -> Any:
        """The reading, made again where its stamp is another one."""
        with self._lock:
            known = self._found.get(key)
        if known is None or known[0] != stamp:
            known = stamp, read()
        with self._lock:
            self._found[key] = known
            self._found.move_to_end(key)
            while len(self._found) > self.most:
                self._found.popitem(last=False)
        return known[1]


@dataclass(frozen=True)
class Window:
    """The labs that are shown, by the names that addresses have."""

    labs: Mapping[str, Path]
    _facts: Kept = field(default_factory=lambda: Kept(KEPT))
    _completions: Kept = field(default_factory=lambda: Kept(RUNS_KEPT))
    rows: Kept = field(default_factory=lambda: Kept(KEPT))
    """Rows and items by id, from their sources."""
    closing: Event = field(default_factory=Event)
    """Set when the server stops, so that no stream of events keeps it."""

    def root(self, lab: str) -> Path:
        """The folder of a lab. Raises RunNotFound."""
        if lab not in self.labs:
            raise RunNotFound(f"no lab named {lab!r} is shown", fix=nearest(lab, self.labs))
        return self.labs[lab]

    def run(self, lab: str, name: str) -> RunDirectory:
        """A run by NAME, NAME/ID or NAME#SEED. Raises RunNotFound, InputError."""
        return find_run(self.root(lab), parse_run_name(name))

    def everywhere(self) -> list[tuple[str, RunDirectory]]:
        """The runs of all labs, the latest first."""
        found = [(lab, run) for lab, root in self.labs.items() for run in all_runs(root)]
        return sorted(found, key=lambda pair: pair[1].id, reverse=True)

    def facts(self, run: RunDirectory) -> RunFacts:
        """What a run recorded so far, and whether it still runs, which no file says."""
        stamp = stamp_of(run), is_held(run.path)
        return self._facts.get(run, stamp, lambda: gather(run))

    def completions(self, run: RunDirectory) -> Completions:
        """The completions of a run, which look at their files by themselves."""
        return self._completions.get(run, None, lambda: Completions(run))


def stamp_of(run: RunDirectory) -> Hashable:
    """What changes whenever a run records something."""
    files = [run.metrics, run.path / STATUS, run.path / "selection.json", run.manifest]
    folders = [*run.evaluations.glob("*"), *(run.path / "checkpoints").glob("*")]
    return stamps_of(*files, *sorted(folders))


def stamps_of(*files: Path) -> Hashable:
    """What changes with any of some files."""
    return tuple(map(_stat, files))


def _stat(file: Path) -> tuple[str, int, int]:
    try:
        found = file.stat()
    except FileNotFoundError:
        return str(file), 0, 0
    return str(file), found.st_mtime_ns, found.st_size


def named_labs(roots: Sequence[Path]) -> dict[str, Path]:
    """The labs by the names of their folders, a number behind one that comes again.

    Raises InputError for a folder that is not there.
    """
    named: dict[str, Path] = {}
    for root in dict.fromkeys(root.resolve() for root in roots):
        check_lab(root)
        name, count = root.name or "lab", 2
        while name in named:
            name, count = f"{root.name or 'lab'}-{count}", count + 1
        named[name] = root
    return named
