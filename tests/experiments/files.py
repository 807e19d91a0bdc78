"""The Python files of the shipped experiments, as an experiment file loads them."""

from pathlib import Path
from types import ModuleType

from assay.tasks.user_code import load_file

ROOT = Path(__file__).parents[2]


def shipped(name: str) -> ModuleType:
    """The module of a file below `experiments`."""
    return load_file(f"experiments/{name}", ROOT).module
