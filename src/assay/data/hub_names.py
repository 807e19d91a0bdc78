"""Reads a bare `OWNER/NAME` as what the Hugging Face hub calls so; no network is asked."""

import re
from pathlib import Path

from assay.errors import InputError

BARE = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
FILES = (".csv", ".gguf", ".json", ".jsonl", ".md", ".parquet", ".toml", ".txt", ".yaml")


def with_scheme(text: str, root: Path = Path()) -> str:
    """`hf:OWNER/NAME` of a bare name; any other source as it is.

    Raises InputError where a file or folder of that name lies in `root`.
    """
    if BARE.fullmatch(text) is None:
        return text
    if (root / text).exists():
        problem = f"{text!r} lies here and could be a name of the hub"
        raise InputError(problem, fix=f"write path:{text} or hf:{text}")
    return text if text.lower().endswith(FILES) else f"hf:{text}"
