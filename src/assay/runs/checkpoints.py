"""Checkpoint folders without their tensors: names, completeness, and which one a rule has chosen.

`train.checkpoint` writes and loads the tensors; this module needs no torch. How checkpoints are
chosen is in `judge.selection` and `judge.reward_trend`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.data.files import Damage, compare, find_damage, recorded_checksums
from assay.experiment.checkpoint_reference import RULES, Rule
from assay.runs.run_files import DamagedFile, as_entry, read_json, write_json

STATE = "state.json"
OPTIMIZER = "optimizer.pt"


def step_name(step: int) -> str:
    """Folder name of the checkpoint after `step` steps."""
    return f"step-{step:06d}"


def steps_in(folder: Path) -> list[int]:
    """Steps of the complete checkpoints in a stage's folder, ascending."""
    folders = folder.glob("step-*") if folder.is_dir() else ()
    return sorted(int(p.name.removeprefix("step-")) for p in folders if (p / STATE).is_file())


def check_checkpoint(checkpoint: Path, fix: str, *, optimizer: bool = False) -> None:
    """Raise DamagedFile, with `fix`, unless every file is as it was written, and for the step
    that the folder says.

    The optimizer's state counts where `optimizer` says so: it may have been removed, and only a
    stage that continues reads it. Checkpoints of older versions have no checksums to compare.
    """
    check_place(checkpoint, fix)
    for damage in find_damage(checkpoint, unless=() if optimizer else (OPTIMIZER,)):
        raise DamagedFile(damage.problem, file=damage.file, fix=fix)


def check_place(checkpoint: Path, fix: str) -> None:
    """Raise DamagedFile, with `fix`, where a folder holds another checkpoint than it says."""
    if damage := misplaced(checkpoint):
        raise DamagedFile(damage.problem, file=damage.file, fix=fix)


def misplaced(checkpoint: Path) -> Damage | None:
    """What a folder holds that is called after another checkpoint: its checksums name it, of one
    outside of a lab the state has the step."""
    recorded, state = recorded_checksums(checkpoint), checkpoint / STATE
    if isinstance(recorded, Damage):
        return recorded
    if not state.is_file() or (recorded and compare(state, recorded.get(STATE, ""))):
        return None  # `find_damage` says it
    try:
        step = read_json(state, dict).get("step")
    except DamagedFile as error:
        return Damage(state, error.problem)
    if type(step) is not int or step_name(step) == checkpoint.name:
        return None
    return Damage(checkpoint, f"holds the checkpoint of step {step}")


def continuable(checkpoint: Path) -> bool:
    """Whether a checkpoint still has its optimizer state."""
    return (checkpoint / OPTIMIZER).is_file()


def drop_optimizers(folder: Path, keep: int) -> None:
    """Remove the optimizer state of the checkpoints in a stage's folder but the `keep` newest: the
    others are no longer to be continued from."""
    steps = steps_in(folder)
    for step in steps[: len(steps) - keep]:
        (folder / step_name(step) / OPTIMIZER).unlink(missing_ok=True)


SELECTION = "selection.json"


@dataclass(frozen=True, slots=True)
class DevLook:
    """A later checkpoint against the stage's start on the dev items."""

    checkpoint: str
    score: float
    difference: float
    low: float
    """Of the difference's interval, corrected for the number of looks like `adjusted_p`."""
    high: float
    p_value: float
    adjusted_p: float
    verdict: str
    items: int
    items_needed: int | None
    """Items at which a difference of this size would be seen with 80 % power, corrected alike."""


@dataclass(frozen=True, slots=True)
class RewardRise:
    """The steps over which a stage's reward rose, and the line through them."""

    after: int
    until: int
    slope: float
    low: float
    """Of the slope's interval, corrected for nothing."""
    high: float
    start: float
    """The line at its first and its last step."""
    end: float
    steps: int


@dataclass(frozen=True, slots=True)
class Selection:
    """The checkpoint of one stage that a rule has chosen. Checkpoints are named as in records."""

    checkpoint: str
    """A checkpoint of the stage, or its start."""
    start: str
    """The stage's start."""
    evaluation: str
    """The selecting evaluation; "" for a rule that needs none."""
    score: float | None
    """Score of `checkpoint` on dev items; None where it was not measured."""
    looks: int
    """Checkpoints that were looked at beside the start."""
    rule: Rule = "gate"
    evidence: tuple[DevLook, ...] = ()
    """What the dev items said of each; empty in older files."""
    rise: RewardRise | None = None
    """What the rewards said; None for the other rules, and where no rise was shown."""

    @property
    def promoted(self) -> bool:
        """Whether a later checkpoint took the place of the start."""
        return self.checkpoint != self.start

    @property
    def corrected(self) -> bool:
        """Whether the choice holds after correction for the number of looks."""
        return self.rule == "gate"


@dataclass(frozen=True, slots=True)
class LevelChoice:
    """The rows from which a stage learns: those with one value of a field."""

    level: Any
    by: str
    passes: float
    """The share of right answers from which a value counts as passed."""
    checkpoint: str
    """The stage's start, which was measured."""
    evaluation: str
    rates: Sequence[tuple[Any, float]]
    """Each value with the share of its items that were right, the easiest first."""


def write_level(run: Path, stage: str, choice: LevelChoice) -> None:
    """Store the level of a stage in the run folder."""
    write_json(run / SELECTION, _read(run) | {f"{stage}.level": asdict(choice)}, run)


def read_level(run: Path, stage: str) -> LevelChoice | None:
    """The level of a stage; None before it was chosen, and for a stage without levels."""
    chosen = _read(run).get(f"{stage}.level")
    return as_entry(LevelChoice, chosen, run / SELECTION) if chosen else None


def write_selections(run: Path, stage: str, selections: Iterable[Selection]) -> None:
    """Store what was chosen of `stage` in the run folder, all of it at once."""
    made = {
        _key(stage, each.rule): {**asdict(each), "corrected": each.corrected} for each in selections
    }
    if made:
        chosen = _read(run)
        write_json(run / SELECTION, chosen | made, run)


def read_selection(run: Path, stage: str, rule: Rule = "gate") -> Selection | None:
    """What `rule` has chosen of `stage`; None before it did."""
    chosen = _read(run).get(_key(stage, rule))
    return _selection(chosen, run / SELECTION) if chosen else None


def read_selections(run: Path) -> dict[str, Selection]:
    """The gate's choices by stage."""
    entries = _read(run).items()
    return {key: _selection(each, run / SELECTION) for key, each in entries if "." not in key}


def _key(stage: str, rule: Rule) -> str:
    """The name of a choice in the file: the gate's is that of the stage, as it always was."""
    return stage if rule == "gate" else f"{stage}.{RULES[rule]}"


def _selection(values: dict[str, Any], file: Path) -> Selection:
    """A choice as it was written; `corrected` follows from its rule."""
    plain = {key: value for key, value in values.items() if key != "corrected"}
    return as_entry(Selection, plain, file)


def _read(run: Path) -> dict:
    file = run / SELECTION
    return read_json(file, dict) if file.exists() else {}
