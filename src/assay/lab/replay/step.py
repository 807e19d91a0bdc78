"""Finds the completions that a run stored at one step, and makes episodes of them again.

Reads only. What is judged about them is in `replay.side`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.data.episode import Completion, Context, Episode, Reward, Turn
from assay.errors import InputError, nearest
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import GrpoStage, RceStage, RftStage
from assay.runs.records import DamagedRecord, read_samples, stored_messages, stored_turns
from assay.runs.run_directory import RunDirectory

Line = Mapping[str, Any]
SampledStage = GrpoStage | RftStage | RceStage
"""The stages that sample completions and have them judged."""


class NoSamples(InputError):
    """A stage or a step without stored completions."""


@dataclass(frozen=True)
class StoredStep:
    """The completions of one step, in the order in which they were sampled."""

    run: RunDirectory
    stage: str
    step: int
    file: Path
    lines: tuple[Line, ...]

    def address(self, line: Line) -> str:
        """What `assay show` finds the sample by."""
        return f"{self.run}:{line['sample_id']}"

    @property
    def ids(self) -> list[str]:
        """The ids of the episodes, as `train.sampled_groups.episode_id` makes them."""
        return [f"{line['row_id']}#{line['sample']}" for line in self.lines]


def choose_stage(run: RunDirectory, experiment: Experiment, name: str | None) -> str:
    """The stage whose samples are meant: the one named, else the only one that samples.

    Raises NoSamples for a stage that does not exist or samples nothing, and where none is named of
    several.
    """
    able = [n for n, stage in experiment.stage.items() if samples(stage)]
    if not able:
        raise NoSamples(f"{run} has no stage that samples completions")
    if name is None:
        if len(able) > 1:
            fix = "add --stage " + " or --stage ".join(able)
            raise NoSamples(f"{run} has {len(able)} stages that sample", field="--stage", fix=fix)
        return able[0]
    if name not in experiment.stage:
        fix = nearest(name, experiment.stage)
        raise NoSamples(f"{run} has no stage {name!r}", field="--stage", fix=fix)
    if name not in able:
        method = experiment.stage[name].method
        problem = f"stage {name!r} ({method}) samples nothing that could be judged again"
        raise NoSamples(problem, field="--stage", fix="take " + " or ".join(able))
    return name


def samples(stage: object) -> bool:
    """Whether a stage samples completions and has them judged; not so where they were stored."""
    return isinstance(stage, SampledStage) and stage.reward is not None


def read_step(run: RunDirectory, stage: str, step: int, group: int) -> StoredStep:
    """The stored completions of a step, in groups of `group`.

    Raises NoSamples with the steps there are, DamagedRecord for a file that is not whole.
    """
    file = run.samples(stage, step)
    if not file.exists():
        raise NoSamples(f"{run} has no samples of step {step} of {stage!r}", fix=known(run, stage))
    lines = [{**line, "parts": json.loads(line["parts"])} for line in read_samples(file)]
    whole = [lines[i : i + group] for i in range(0, len(lines), group)]
    if not lines or any(len(g) != group or len({x["row_id"] for x in g}) > 1 for g in whole):
        raise DamagedRecord(
            f"its lines are not groups of {group} completions of one row", file=file
        )
    return StoredStep(run, stage, step, file, tuple(lines))


def known(run: RunDirectory, stage: str) -> str:
    """Which steps of a stage have samples, in words."""
    files = run.samples(stage, 0).parent.glob("step-*.parquet")
    steps = sorted(int(file.stem.removeprefix("step-")) for file in files)
    if not steps:
        return "it has none yet"
    pieces = [f"{a} to {b}" if b > a else str(a) for a, b in spans(steps)]
    return "it has " + ", ".join(pieces)


def spans(steps: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each unbroken stretch of ascending numbers."""
    found: list[tuple[int, int]] = []
    for step in steps:
        if found and step == found[-1][1] + 1:
            found[-1] = (found[-1][0], step)
        else:
            found.append((step, step))
    return found


def stored_reward(line: Line) -> Reward:
    """The reward as it was recorded, a length punishment included."""
    return Reward(line["reward"], line["parts"], line["why"])


def completion_of(line: Line) -> Completion:
    """The completion as the reward saw it."""
    said = stored_messages(line)
    return Completion(line["text"], tuple(line["tokens"]), line["ended"], said)


def episode_of(line: Line, context: Context, reward: Reward) -> Episode:
    """The episode that the line records, with a reward of one's own.

    `context` is the prompt of a single answer; turns of a conversation are stored with theirs.
    """
    name, group = f"{line['row_id']}#{line['sample']}", line["row_id"]
    if line.get("messages") is not None:
        return Episode(name, group, stored_turns(line), reward, completion_of(line))
    actions = tuple(line["tokens"])
    logps = tuple(line["behaviour_logps"]) or None
    turn = Turn(context, actions, (True,) * len(actions), logps, line["ended"])
    return Episode(name, group, (turn,), reward)


def in_groups(episodes: Sequence[Episode], group: int) -> list[list[Episode]]:
    """Episodes in groups of `group`, in order, each with the visit to its row that it is of."""
    visits = [replace(e, visit=int(e.id.rpartition("#")[2]) // group) for e in episodes]
    return [visits[i : i + group] for i in range(0, len(visits), group)]
