"""Reads the journal that `reward.py` of an exported folder keeps of what it judged.

ms-swift and verl write an answer's text alone; the journal has its row, its tokens, and what the
reward said, as Assay sees them. Each process of each attempt has a file of its own.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.trainers.outputs.output import Answer, log_lines

FOLDER = "answers"


def journal_files(folder: Path) -> list[Path]:
    """The files below a tool's output, those of a process by time: RANK-TIME-PROCESS.jsonl."""
    return sorted((folder / FOLDER).glob("*-*-*.jsonl"), key=_process)


def _process(file: Path) -> tuple[int, int]:
    rank, started, _ = file.stem.split("-")
    return int(rank), int(started)


def by_key(folder: Path) -> dict[str, Answer]:
    """The answers by the tool's own names."""
    lines = (line for file in journal_files(folder) for line in log_lines(file))
    return {line["key"]: journalled(line) for line in lines}


def in_order(folder: Path, first: int, last: int) -> list[Answer]:
    """The answers to updates `first` to `last` in the order of processes; of a process that was
    started again, those of its last attempt at them."""
    found: dict[int, list[Answer]] = {}
    for file in journal_files(folder):
        own = [journalled(line) for line in log_lines(file) if first <= line["step"] <= last]
        if own:
            found[_process(file)[0]] = own
    return [answer for own in found.values() for answer in own]


def journalled(line: Mapping[str, Any], advantage: float | None = None) -> Answer:
    """An answer as `reward.py` noted it."""
    return Answer(
        text=line["text"],
        reward=line["value"],
        row=line["id"],
        tokens=tuple(line["tokens"]),
        parts=line["parts"],
        why=line["why"] or "",
        advantage=advantage,
        ended=line["ended"],
    )
