"""Takes code blocks out of the manual's pages."""

import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"
EPISODES = (DOCS.parent / "experiments/episodes/lengths.py").read_text(encoding="utf-8")
"""The task that episodes.md describes."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in one language, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [code for found, code in BLOCK.findall(text) if found == language]


def as_module(
    page: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int = 0
) -> ModuleType:
    """A Python block of a page, written to a file and imported from there as `name`."""
    code = EPISODES if page == "episodes.md" else blocks(page, "python")[number]
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return import_module(name)
