"""Keeps the code of a notebook in the run that uses it, as files that experiments name by path.

The files lie in `runs/.code` of the lab, under names that hold their sha256, so that runs with one
reward have one path. A run has copies of its own, from which one that is missing is restored.
"""

import re
from pathlib import Path

from assay.data.files import atomic_write_text, sha256_text
from assay.errors import InputError
from assay.runs.run_directory import RUNS, RunDirectory
from assay.runs.run_files import check_listed, write_listed

STORE = f"{RUNS}/.code"
COPIES = "code"
_NAMED = re.compile(rf"{re.escape(STORE)}/([\w-]+-([0-9a-f]{{12}})\.py)")


def store_text(root: Path, name: str, text: str, ending: str) -> str:
    """Write a text of a notebook into the lab; its path from the root."""
    path = f"{STORE}/{name}-{sha256_text(text)[:12]}{ending}"
    if not (root / path).is_file():
        (root / STORE).mkdir(parents=True, exist_ok=True)
        atomic_write_text(root / path, text)
    return path


def keep_code(run: RunDirectory) -> None:
    """Copy the stored code that the run's experiment names into the run."""
    for name, _ in dict.fromkeys(_NAMED.findall(run.spec.read_text(encoding="utf-8"))):
        text = (run.root / STORE / name).read_text(encoding="utf-8")
        (run.path / COPIES).mkdir(exist_ok=True)
        write_listed(run.path, run.path / COPIES / name, text)


def restore_code(run: RunDirectory) -> None:
    """Put copies of the run where the lab has no such file.

    Raises InputError for code that is not what its name says: what runs is what was stored.
    """
    for name, sha256 in dict.fromkeys(_NAMED.findall(run.spec.read_text(encoding="utf-8"))):
        file, copy = run.root / STORE / name, run.path / COPIES / name
        if not file.is_file() and copy.is_file():
            check_listed(copy, sha256_text(text := copy.read_text(encoding="utf-8")))
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_text(file, text)
        if file.is_file() and sha256_text(file.read_text(encoding="utf-8"))[:12] != sha256:
            fix = f"delete it: {run} holds a copy"
            raise InputError("is not the code that the run stored", file=file, fix=fix)
