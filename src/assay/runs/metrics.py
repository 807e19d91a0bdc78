"""`metrics.jsonl`: one JSON object a line per step, appended; cut back when a run resumes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.data.files import atomic_write_bytes
from assay.runs.json_files import FIX, DamagedFile, parse_line


def append_metrics(file: Path, stage: str, step: int, seconds: float, **numbers: Any) -> None:
    """Add one line. A number that is not finite is written as null, because JSON has no other."""
    values = {"stage": stage, "step": step, "seconds": seconds, **numbers}
    line = json.dumps({key: _finite(value) for key, value in values.items()}, allow_nan=False)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """All whole lines; a last line without its end was torn by a kill and does not count.

    Raises DamagedFile.
    """
    return _parsed(file, _whole_lines(file))


def truncate_metrics(file: Path, stage: str, step: int) -> None:
    """Keep what was written up to and including `step` of `stage`, where the run resumes.

    Lines of stages before it stay; lines of later steps and later stages go.
    """
    lines = _whole_lines(file)
    places = [_place(line) for line in _parsed(file, lines)]
    end = _kept(places, stage, step)
    atomic_write_bytes(file, b"".join(lines[:end]))


def _parsed(file: Path, lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """The lines as they were written. Raises DamagedFile."""
    found = []
    for number, text in enumerate(lines, 1):
        line = parse_line(text, file, number)
        if not (isinstance(line.get("stage"), str) and isinstance(line.get("step"), int)):
            raise DamagedFile("is no step of a stage", file=file, line=number, fix=FIX)
        found.append(line)
    return found


def _kept(places: list[tuple[str, int]], stage: str, step: int) -> int:
    """How many lines stay: through the last one at or before the place, or before the stage."""
    reached = [i + 1 for i, (s, n) in enumerate(places) if s == stage and n <= step]
    begun: Iterable[int] = (i for i, (s, _) in enumerate(places) if s == stage)
    return reached[-1] if reached else next(iter(begun), len(places))


def _place(record: Mapping[str, Any]) -> tuple[str, int]:
    return record["stage"], record["step"]


def _whole_lines(file: Path) -> list[bytes]:
    if not file.exists():
        return []
    lines = file.read_bytes().splitlines(keepends=True)
    return lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not abs(value) < float("inf") else value
