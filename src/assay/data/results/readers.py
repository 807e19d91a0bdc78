"""Chooses the reader of a results file, by the columns named or by the file's first object.

A reader is a function from a path and the key of clusters to results. To add a format, write its
file and one line here. Readers are never tried one after the other.
"""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from assay.data.files import whole_text
from assay.data.json_files import HEAD_BYTES
from assay.data.loaded import DataError
from assay.data.results import bfcl_files, inspect_ai, lm_eval
from assay.data.results.column_mapping import Columns, read_mapped, read_table, table_rows
from assay.data.results.foreign_result import Result, read_document
from assay.errors import InputError

Reader = Callable[[Path, str | None], list[Result]]

READERS: Mapping[str, tuple[Reader, tuple[frozenset[str], ...]]] = {
    "lm-eval": (lm_eval.read, (lm_eval.KEYS,)),
    "inspect-ai": (inspect_ai.read, (inspect_ai.KEYS,)),
    "bfcl": (bfcl_files.read, (bfcl_files.SCORE_KEYS, bfcl_files.RESULT_KEYS)),
    "table": (read_table, (frozenset({"item"}),)),
}
"""With the columns by which each format is known; the first that fits counts."""

LONGEST_NAME = 4096
"""Of a run, a benchmark or a metric of another tool; they hold settings and paths."""

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".eval")


def read_results(
    path: str | Path, cluster: str | None = None, columns: Columns | None = None
) -> list[Result]:
    """Everything in a file of results, by the columns named, else by
    the one that fits.

    `cluster` is where the sources of items are named, else CLUSTER where the file has that.

    Raises InputError, and DataError where the file is not what it seems.
    """
    path = Path(path)
    if columns is None and lm_eval.sample_logs(path):
        return lm_eval.read_folder(path, cluster)
    if path.is_dir():
        raise InputError("is a folder", file=path, fix="name the files in it")
    if not path.is_file():
        raise DataError("no such file", file=path)
    if path.stat().st_size == 0:
        raise DataError("is empty", file=path)
    if columns is not None:
        results = read_mapped(path, columns, cluster)
    else:
        read, _ = READERS[recognise(path)]
        results = read(path, cluster)
    for result in results:
        check_names(result, path)
    return results


def check_names(result: Result, path: Path) -> None:
    """Raise DataError for a name that no table or page can hold; escape codes are shown as such."""
    for field in ("run", "benchmark", "metric", "checker"):
        name = getattr(result, field)
        if len(name) > LONGEST_NAME:
            problem, fix = f"a name of {len(name)} characters", f"at most {LONGEST_NAME}"
            raise DataError(problem, file=path, field=field, fix=fix)
        if "\0" in name or whole_text(name) != name:
            problem = f"{name!a} holds characters that no file can"
            raise DataError(problem, file=path, field=field, fix="name it otherwise")


def recognise(path: Path) -> str:
    """The name of the format of a file. Raises InputError with the known ones, DataError."""
    if zipfile.is_zipfile(path) or path.suffix == ".eval":
        return "inspect-ai"
    if path.suffix == ".csv":
        return "table"
    if path.suffix not in SUFFIXES and b"\0" in path.read_bytes()[:HEAD_BYTES]:
        fix = "name a file of " + ", ".join(SUFFIXES)
        raise InputError("is a binary file of no known format", file=path, fix=fix)
    columns = _columns(path)
    for name, (_, marks) in READERS.items():
        if any(mark <= columns for mark in marks):
            return name
    columns_text = ", ".join(sorted(columns)[:8]) or "nothing"
    fix = "name its columns with --item and --score; known are " + ", ".join(READERS)
    raise InputError(f"no known format of results has {columns_text}", file=path, fix=fix)


def _columns(path: Path) -> frozenset[str]:
    """The names in the first object of a file."""
    if path.suffix == ".json" and (document := read_document(path)) is not None:
        return frozenset(document)
    first = next(table_rows(path), None)
    if first is None:
        raise DataError("holds no rows", file=path)
    return frozenset(first.value)
