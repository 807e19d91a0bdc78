"""Which checkpoint of each stage a selecting evaluation chose: what `STAGE.best` means.

The best checkpoint of a stage is what the stage started from, unless a later one was shown better.
How that is decided is `judge.promotion`'s part.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.runs.json_files import as_entry, read_json
from assay.runs.listed_files import write_listed

SELECTION = "selection.json"


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen for one stage. Checkpoints are named as records name them."""

    checkpoint: str
    """`STAGE.best`: a checkpoint of the stage, or its start."""
    start: str
    """What the stage started from."""
    evaluation: str
    """The selecting evaluation."""
    score: float
    """Of `checkpoint` on the items that choose."""
    looks: int
    """Checkpoints that were compared with the start."""

    @property
    def promoted(self) -> bool:
        """Whether a later checkpoint took the place of the start."""
        return self.checkpoint != self.start


def write_selection(run: Path, stage: str, selection: Selection) -> None:
    """Note what was chosen for `stage` in the run folder."""
    chosen = _read(run) | {stage: asdict(selection)}
    write_listed(run, run / SELECTION, json.dumps(chosen, indent=2) + "\n")


def forget_selections(run: Path, stages: Collection[str]) -> None:
    """Take back what was chosen for stages that are trained again."""
    chosen = _read(run)
    if chosen.keys() & stages:
        left = {stage: selection for stage, selection in chosen.items() if stage not in stages}
        write_listed(run, run / SELECTION, json.dumps(left, indent=2) + "\n")


def read_selection(run: Path, stage: str) -> Selection | None:
    """What was chosen for `stage`, None where nothing was chosen yet."""
    chosen = _read(run).get(stage)
    return as_entry(Selection, chosen, run / SELECTION) if chosen else None


def read_selections(run: Path) -> dict[str, Selection]:
    """What was chosen, by stage."""
    found = _read(run).items()
    return {stage: as_entry(Selection, chosen, run / SELECTION) for stage, chosen in found}


def _read(run: Path) -> dict:
    """The file; a run of the first version knows the step alone, and no start."""
    file = run / SELECTION
    found = read_json(file, dict) if file.exists() else {}
    for stage, chosen in found.items():
        if "step" in chosen:
            name = f"{stage}.step-{chosen.pop('step'):06d}"
            found[stage] = {"checkpoint": name, "start": "", "looks": 0, **chosen}
    return found
