"""Where a made set lies, whether it was judged by the settings that a file has now, and what there
is to say of it; `make` makes it."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from assay.data.files import atomic_write_text
from assay.data.row import Row
from assay.errors import Finding, InputError
from assay.experiment.selection_tables import SynthesiseSpec
from assay.lab.monitor.run_costs import CostLine
from assay.runs.run_files import read_json

FOLDER = "synthesised"
"""The folder below the lab's root in which made sets lie."""
ROWS, REFUSED, SETTINGS = "rows.jsonl", "refused.jsonl", "settings.json"


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that is not in the set, or an answer without rows, with the reason."""

    id: str
    seed: str
    sample: int
    reason: str
    """One of `REASONS`."""
    why: str
    text: str = ""
    """What the teacher wrote."""
    row: Row | None = None


REASONS = (*("unanswered", "unreadable", "form", "calls", "leaked", "gold", "empty", "same"),)
"""Why a row is refused: the teacher failed; no row of the format; not to be trained on; calls that
their tools do not describe; shared with a test; the gold answer or an empty one fails; a question
that another row or a seed asks."""


@dataclass(frozen=True, slots=True)
class MadeSet:
    """One table's rows."""

    table: str
    file: Path
    spec: SynthesiseSpec
    teacher: str
    """The source of the helper model."""
    fingerprint: str
    rows: tuple[Row, ...]
    refused: tuple[Refused, ...]
    questions: int
    """Questions to the teacher that are answered, or failed."""
    not_needed: int
    """Answers behind the last row that was wanted."""
    held_out: tuple[str, ...]
    """Benchmarks and data sets that no row shares a question with."""
    total: CostLine | None
    """None where nothing was asked."""
    stopped: str
    """Why fewer rows are there than wanted; "" for a whole set."""
    findings: tuple[Finding, ...]

    @property
    def reasons(self) -> Counter[str]:
        """Refused rows by reason."""
        return Counter(each.reason for each in self.refused)

    @property
    def cost_per_row(self) -> float | None:
        """Of a verified row, everything that was paid for counted; None where a cost is not known
        or no row is there."""
        if self.total is None or self.total.cost is None or not self.rows:
            return None
        return self.total.cost / len(self.rows)


def made_folder(root: Path, experiment: str, table: str) -> Path:
    """The folder of a table of an experiment."""
    return root / FOLDER / experiment / table


def note_settings(folder: Path, spec: SynthesiseSpec) -> None:
    """Write down the settings that the rows of a folder were judged by."""
    value = {"schema": 1, "settings": spec.model_dump(mode="json", exclude_none=True)}
    atomic_write_text(folder / SETTINGS, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def made_rows_file(root: Path, experiment: str, table: str, spec: SynthesiseSpec) -> Path:
    """The file of a table's rows. Raises InputError where they are not made, or were judged by
    other settings."""
    folder = made_folder(root, experiment, table)
    fix = "assay synthesise FILE makes them"
    if not (folder / ROWS).exists():
        raise InputError(f"the rows {table!r} are not made: no file {folder / ROWS}", fix=fix)
    judged = read_json(folder / SETTINGS, dict).get("settings")
    if judged != spec.model_dump(mode="json", exclude_none=True):
        fix = "assay synthesise FILE judges them again; what is paid for is not asked again"
        raise InputError(f"the rows {table!r} were judged by other settings", fix=fix)
    return folder / ROWS
