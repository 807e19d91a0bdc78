"""Which checkpoint of each stage a selecting evaluation chose: what `STAGE.best` means."""

import json
from pathlib import Path

from assay.data.files import atomic_write_text

SELECTION = "selection.json"


def write_best(run: Path, stage: str, step: int, *, evaluation: str, score: float) -> None:
    """Note that `evaluation` chose `step` of `stage` in the run folder, and by which score."""
    chosen = _read(run) | {stage: {"step": step, "evaluation": evaluation, "score": score}}
    atomic_write_text(run / SELECTION, json.dumps(chosen, indent=2) + "\n")


def read_best(run: Path, stage: str) -> int | None:
    """The step chosen for `stage`, None where nothing was chosen yet."""
    chosen = _read(run).get(stage)
    return chosen and chosen["step"]


def _read(run: Path) -> dict:
    file = run / SELECTION
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
