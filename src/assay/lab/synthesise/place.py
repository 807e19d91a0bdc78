"""Where a made set lies, and whether it was judged by the settings that a file has now."""

import json
from pathlib import Path

from assay.data.files import atomic_write_text
from assay.errors import InputError
from assay.experiment.synthesise_table import SynthesiseSpec
from assay.runs.run_files import read_json

FOLDER = "synthesised"
"""The folder below the lab's root in which made sets lie."""
ROWS, REFUSED, SETTINGS = "rows.jsonl", "refused.jsonl", "settings.json"


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
