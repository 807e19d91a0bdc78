"""A folder of what is made for data sets: what it is made of is written down, and checked later."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.data.files import atomic_write_text
from assay.errors import InputError

MADE_OF = "made_of.json"
"""What the contents of a folder are made of."""


def note_made_of(folder: Path, made_of: Mapping[str, Any], what: str) -> None:
    """Write down what a folder's contents, `what` in words, are made of, or check it. Raises
    InputError where they were made of something else."""
    file = folder / MADE_OF
    if not file.exists():
        atomic_write_text(file, json.dumps(made_of, indent=2, ensure_ascii=False) + "\n")
        return
    before = json.loads(file.read_text(encoding="utf-8"))
    for key, value in json.loads(json.dumps(made_of)).items():
        if before.get(key) != value:
            problem = f"its {what} were made of other {key.removesuffix('_sha256')}"
            raise InputError(problem, file=folder, fix="delete the folder to make them again")
