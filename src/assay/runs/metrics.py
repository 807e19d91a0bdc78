"""Reads, appends and truncates `metrics.jsonl`: one JSON object a line per step.

Each checkpoint stores the size and hash of the lines before it, which are on the disk first. A run
resumes from a checkpoint only if those lines are unchanged.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.data.files import atomic_write_bytes, sha256_file, sync
from assay.errors import InputError
from assay.runs.run_directory import RunDirectory, folders_in, misplaced, step_name, steps_in
from assay.runs.run_files import FIX, DamagedFile, parse_line, read_typed


def append_metrics(file: Path, stage: str, step: int, seconds: float, **numbers: Any) -> None:
    """Add one line. A number that is not finite is written as null, because JSON has no other."""
    values = {"stage": stage, "step": step, "seconds": seconds, **numbers}
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }
    line = json.dumps(finite, allow_nan=False)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """All whole lines; a last line without its end was torn by a kill and does not count.

    Raises DamagedFile, also where they do not begin as each stage's newest checkpoint beside them
    had them.
    """
    lines = _parsed(file, _whole_lines(file))
    for stage in folders_in(file.parent / "checkpoints"):
        newest = [stage / step_name(step) for step in steps_in(stage)[-1:]]
        for checkpoint in newest:
            if not misplaced(checkpoint) and (problem := lost_history(file, checkpoint)):
                raise DamagedFile(problem, file=file, fix=FIX)
    return lines


def metric_columns(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The lines of a stage as columns of one length; None where a step has not the metric."""
    names = dict.fromkeys(name for line in lines for name in line)
    return {name: [line.get(name) for line in lines] for name in names if name != "stage"}


def truncate_metrics(file: Path, stage: str, step: int) -> None:
    """Keep what was written up to and including `step` of `stage`, where the run resumes.

    Lines of stages before it stay; lines of later steps and later stages go.
    """
    lines = _whole_lines(file)
    places = [(line["stage"], line["step"]) for line in _parsed(file, lines)]
    own = [place for place, (name, _) in enumerate(places) if name == stage]
    reached = [place + 1 for place in own if places[place][1] <= step]
    end = reached[-1] if reached else own[0] if own else len(places)
    atomic_write_bytes(file, b"".join(lines[:end]))


def _parsed(file: Path, lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """The lines as they were written. Raises DamagedFile."""
    parsed = []
    for number, text in enumerate(lines, 1):
        line = parse_line(text, file, number)
        if not (isinstance(line.get("stage"), str) and isinstance(line.get("step"), int)):
            raise DamagedFile("is no step of a stage", file=file, line=number, fix=FIX)
        parsed.append(line)
    return parsed


def _whole_lines(file: Path) -> list[bytes]:
    if not file.exists():
        return []
    lines = file.read_bytes().splitlines(keepends=True)
    return lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]


HISTORY = "history.json"


@dataclass(frozen=True, slots=True)
class MetricsBeginning:
    """The beginning of `metrics.jsonl` that belongs to a checkpoint."""

    lines: int
    bytes: int
    sha256: str


def keep_history(metrics: Path, checkpoint: Path) -> None:
    """Sync the metrics to the disk, and store their size and hash in a checkpoint's folder."""
    sync(metrics)
    sync(metrics.parent)
    content = metrics.read_bytes()
    beginning = MetricsBeginning(content.count(b"\n"), len(content), sha256_file(metrics))
    (checkpoint / HISTORY).write_text(json.dumps(asdict(beginning)) + "\n", encoding="utf-8")


def check_history(run: RunDirectory, stage: str, step: int) -> None:
    """Raise InputError unless the metrics begin as they were at a checkpoint."""
    problem = lost_history(run.metrics, run.checkpoint(stage, step))
    if problem:
        fix = "restore it, or start another run with --new"
        raise InputError(problem, file=run.metrics, fix=fix)


def lost_history(metrics: Path, checkpoint: Path) -> str:
    """How the metrics differ from their state at a checkpoint; "" if they do not."""
    name = f"{checkpoint.parent.name}.{checkpoint.name}"
    file = checkpoint / HISTORY
    if not file.exists():
        return ""
    recorded = read_typed(file, MetricsBeginning)
    content = metrics.read_bytes() if metrics.exists() else b""
    if len(content) < recorded.bytes:
        lines = content.count(b"\n")
        return f"has {lines} lines and had {recorded.lines} when {name} was made"
    if hashlib.sha256(content[: recorded.bytes]).hexdigest() != recorded.sha256:
        return f"its first {recorded.lines} lines are not what they were when {name} was made"
    return ""
