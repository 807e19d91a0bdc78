"""Checks before the first update of RL that the model solves some of its prompts.

GRPO learns from prompts that are solved sometimes. A model that solves none in any group gets no
reward to learn from.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from assay.data.episode import Reward
from assay.errors import Finding
from assay.experiment.stage_tables import SamplingStage, StageSpec
from assay.judge.health_rules import SIGNAL_WARNING
from assay.judge.intervals import Interval, wilson
from assay.lab.setup.reward_parts import full_reward
from assay.lab.setup.session import Session
from assay.train.checkpoint import Method, SampleRecord
from assay.train.loop import FirstSamples
from assay.train.pair_choice import OVERLONG

SOLVED = 0.5
"""A completion with this share of the full reward counts as solved: form alone earns less, and a
right answer that is also graded by its length earns more."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Pass@k of a few prompts: k completions each, solved where any of them is."""

    prompts: int
    solved: int
    group: int
    """k; the largest, where completions abstained."""

    @property
    def interval(self) -> Interval:
        """Interval of the share of solved prompts; a prompt is one trial."""
        return wilson(self.solved, self.prompts)

    @property
    def low(self) -> bool:
        """Whether too few prompts are solved for RL to start."""
        return self.solved == 0 or self.interval.high < SIGNAL_WARNING


def capability(judged: Iterable[tuple[Hashable, Reward]], full: float) -> Floor | None:
    """The floor of completions by the visit to a prompt; None where every reward abstained, or no
    reward is full.

    A punishment for length is left out: a right answer that is too long is a right answer.
    """
    values: dict[Hashable, list[float]] = {}
    for visit, reward in judged:
        if reward.value is not None:
            value = reward.value - reward.parts.get(OVERLONG, 0.0)
            values.setdefault(visit, []).append(value)
    if not values or not math.isfinite(full):
        return None
    solved = sum(max(each) >= SOLVED * full for each in values.values())
    return Floor(len(values), solved, max(map(len, values.values())))


def floor_finding(stage: str, where: str, floor: Floor) -> Finding:
    """The finding: the number of solved prompts, its interval, and advice if they are few."""
    fix = "what is never solved is never rewarded: teach the model first (SFT), choose prompts "
    fix += "that it solves sometimes, or start from a more able model"
    solved = f"{floor.solved} of {floor.prompts} prompts solved at least once at {where}"
    interval = floor.interval
    told = f"pass@{floor.group} {floor.solved / floor.prompts:.0%}, {interval.level:.0%} interval "
    told += f"{interval.low:.0%} to {interval.high:.0%}"
    severity = "warning" if floor.low else "note"
    return Finding(severity, f"stage.{stage}: {solved}", told, fix if floor.low else "nothing")


def first_look(session: Session, name: str, stage: StageSpec, method: Method) -> Method:
    """The method of a stage, which reports how many of its first prompts were solved before it
    updates anything. A method that does not learn from sampled rewards is returned as it is."""
    reward = getattr(stage, "reward", None)
    if not isinstance(stage, SamplingStage) or not stage.needs_reward or reward is None:
        return method

    def tell(samples: Sequence[SampleRecord]) -> None:
        judged = [((sample.row_id, sample.visit), sample.reward) for sample in samples]
        floor = capability(judged, full_reward(session.task, reward, session.run.root))
        if floor is not None:
            found = floor_finding(name, stage.start, floor)
            fix = f" ({found.fix})" if found.severity == "warning" else ""
            session.observer.note(f"{found.severity}: {found.what}: {found.evidence}{fix}")

    return FirstSamples(method, tell)
