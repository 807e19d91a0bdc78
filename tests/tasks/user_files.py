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
    user_code.installed_tasks.cache_clear()
    try:
        yield
    finally:
        sys.path[:] = path
        for name in {*sys.modules} - modules:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
        user_code._loaded.clear()
        user_code.installed_tasks.cache_clear()


def write(folder: Path, name: str, text: str) -> Path:
    """A file with a text, its folders made."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="latin-1")
    return folder / name


def install(folder: Path, package: str, points: str, version: str = "1.2") -> None:
    """A distribution in a folder of the import path: its metadata with entry points."""
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    write(folder, f"{package}-{version}.dist-info/METADATA", metadata)
    write(folder, f"{package}-{version}.dist-info/entry_points.txt", f"[assay.tasks]\n{points}\n")
