"""The command that fills each empty cell of a matrix, as a user may run it in this folder.

A cell that no command fills has none: a checkpoint that was not kept, a record that is damaged.
"""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from assay.lab.sweep.matrix.model import Cell, Matrix, State
from assay.runs.run_directory import lab_root

BEGUN: tuple[State, ...] = ("interrupted", "failed")


def with_commands(matrix: Matrix, command: Callable[[Cell], str]) -> Matrix:
    """The matrix with a command in each cell that is empty or lacks seeds."""
    cells = {
        place: cell if is_whole(cell) else replace(cell, run=run_of(cell), command=command(cell))
        for place, cell in matrix.cells.items()
    }
    return replace(matrix, cells=cells)


def is_whole(cell: Cell) -> bool:
    """Whether the cell shows all that it is meant to."""
    return cell.state == "measured" and not (cell.unit and cell.unit.seeds_missing)


def fill_command(root: Path, file: Path, cell: Cell) -> str:
    """What makes the run of a cell of a sweep, or the records that it lacks."""
    if cell.state in ("running", "damaged", "no checkpoint", "not in the search"):
        return ""
    return said(root, "fill", str(file), "--only", run_of(cell)) if run_of(cell) else ""


def resume_command(root: Path, cell: Cell) -> str:
    """What continues the run of a cell, where the runs are no sweep."""
    return said(root, "resume", run_of(cell)) if cell.state in BEGUN and run_of(cell) else ""


def run_of(cell: Cell) -> str:
    """The name of the run that belongs into a cell; "" where that is not known."""
    return cell.run or cell.name.partition("@")[0]


def said(root: Path, *words: str) -> str:
    """The command, with the lab's root where it is not the one that is taken by itself."""
    lab = [] if lab_root(None).resolve() == root.resolve() else ["--lab", str(root)]
    return shlex.join(["assay", *words, *lab])
