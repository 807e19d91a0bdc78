"""What `metrics.jsonl` held when a checkpoint was made: a run goes on only from all of that.

Every checkpoint says so in a file of its own, and the lines are on the disk before it is.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.data.files import atomic_write_bytes, sha256_file, sync
from assay.errors import InputError
from assay.runs.json_files import as_entry, read_json
from assay.runs.metrics import read_metrics, truncate_metrics
from assay.runs.run_directory import RunDirectory

HISTORY = "history.json"


class HistoryLost(InputError):
    """The metrics hold less than when a checkpoint was made, or something else."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The beginning of `metrics.jsonl` that belongs to a checkpoint."""

    lines: int
    bytes: int
    sha256: str


def keep_history(metrics: Path, checkpoint: Path) -> None:
    """Put the lines so far on the disk, and what they are into a checkpoint's folder."""
    sync(metrics)
    sync(metrics.parent)
    content = metrics.read_bytes()
    found = Recorded(content.count(b"\n"), len(content), sha256_file(metrics))
    (checkpoint / HISTORY).write_text(json.dumps(asdict(found)) + "\n", encoding="utf-8")


def cut_history(run: RunDirectory, stage: str, step: int) -> None:
    """Leave of the metrics what they were at a checkpoint, whatever stands behind it."""
    file = run.checkpoint(stage, step) / HISTORY
    if not file.exists():
        truncate_metrics(run.metrics, stage, step)
        return
    recorded = as_entry(Recorded, read_json(file, dict), file)
    atomic_write_bytes(run.metrics, run.metrics.read_bytes()[: recorded.bytes])


def check_history(run: RunDirectory, stage: str, step: int) -> None:
    """Raise HistoryLost unless the metrics begin with what they were at a checkpoint.

    One of an older version does not say it: the stage's steps up to it must be there.
    """
    problem = lost_history(run, stage, step)
    if problem:
        fix = f"restore it, or start the stage over: assay resume {run} --from {stage}.step-N"
        raise HistoryLost(problem, file=run.metrics, fix=fix)


def lost_history(run: RunDirectory, stage: str, step: int) -> str:
    """What the metrics lack or have otherwise than at a checkpoint; "" where nothing."""
    name = f"{stage}.step-{step:06d}"
    file = run.checkpoint(stage, step) / HISTORY
    if not file.exists():
        return _missing_steps(run, stage, step)
    recorded = as_entry(Recorded, read_json(file, dict), file)
    content = run.metrics.read_bytes() if run.metrics.exists() else b""
    if len(content) < recorded.bytes:
        lines = content.count(b"\n")
        return f"has {lines} lines and had {recorded.lines} when {name} was made"
    if hashlib.sha256(content[: recorded.bytes]).hexdigest() != recorded.sha256:
        return f"its first {recorded.lines} lines are not what they were when {name} was made"
    return ""


def _missing_steps(run: RunDirectory, stage: str, step: int) -> str:
    recorded = {line["step"] for line in read_metrics(run.metrics) if line["stage"] == stage}
    missing = [str(n) for n in range(1, step + 1) if n not in recorded]
    if not missing:
        return ""
    more = f" and {len(missing) - 1} more" if missing[1:] else ""
    return f"has no line for step {missing[0]}{more} of {stage}, whose checkpoint is of step {step}"
