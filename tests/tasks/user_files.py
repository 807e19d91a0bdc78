"""Writes users' files for tests, and forgets them afterwards."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.tasks import user_code

TASK = """\
from assay.tasks.task import BaseTask


def exact(prompt, completion, row):
    return completion == row.gold


class Sums(BaseTask):
    name = "sums"
    rewards = {"exact": exact}
"""


@contextmanager
def forgotten(folder: Path) -> Iterator[None]:
    """What a test loads from below a folder is not seen by the next test."""
    path, modules = [*sys.path], {*sys.modules}
    try:
        yield
    finally:
        sys.path[:] = path
        for name in {*sys.modules} - modules:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
        user_code._loaded.clear()


def write(folder: Path, name: str, text: str) -> Path:
    """A file with a text, its folders made."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="latin-1")
    return folder / name
