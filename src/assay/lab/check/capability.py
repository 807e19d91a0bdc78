"""The capability floor: how many prompts a model solves at least once before RL starts on them.

GRPO learns from prompts that are solved sometimes. A model that solves none in a whole group has
nothing to be rewarded for, however long it is trained. Sampling is the caller's part.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from assay.data.episode import Reward
from assay.experiment.stage_tables import SamplingStage, StageSpec
from assay.experiment.training_tables import Reward as RewardSpec
from assay.judge.findings import Finding
from assay.judge.health_rules import SIGNAL_WARNING
from assay.judge.intervals import Interval, wilson
from assay.lab.setup.session import Session
from assay.tasks.task import Task, maximum
from assay.train.first_samples import FirstLook
from assay.train.group_choice import OVERLONG
from assay.train.train_state import Method, SampleRecord

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
        """Of the share of prompts that are solved; a prompt is one trial."""
        return wilson(self.solved, self.prompts)

    @property
    def low(self) -> bool:
        """Whether RL has next to nothing to start from."""
        return self.solved == 0 or self.interval.high < SIGNAL_WARNING


def full_reward(task: Task, spec: RewardSpec) -> float:
    """What a right answer earns: the reward's maximum, or the weighted sum of several."""
    if isinstance(spec, str):
        return maximum(task, spec)
    return sum(max(weight, 0.0) * maximum(task, name) for name, weight in spec.items())


def capability(judged: Iterable[tuple[Hashable, Reward]], full: float) -> Floor | None:
    """The floor of completions by the visit to a prompt; None where every reward abstained.

    A punishment for length is left out: a right answer that is too long is a right answer.
    """
    values: dict[Hashable, list[float]] = {}
    for visit, reward in judged:
        if reward.value is not None:
            value = reward.value - reward.parts.get(OVERLONG, 0.0)
            values.setdefault(visit, []).append(value)
    if not values:
        return None
    solved = sum(max(each) >= SOLVED * full for each in values.values())
    return Floor(len(values), solved, max(map(len, values.values())))


def told(stage: str, where: str, floor: Floor) -> Finding:
    """The finding: how many prompts were solved, how sure that is, and what to do about few."""
    interval = floor.interval
    return Finding(
        "warning" if floor.low else "note",
        f"stage.{stage}: {floor.solved} of {floor.prompts} prompts solved at least once at {where}",
        f"pass@{floor.group} {floor.solved / floor.prompts:.0%}, {interval.level:.0%} interval "
        f"{interval.low:.0%} to {interval.high:.0%}",
        ADVICE if floor.low else "nothing",
    )


ADVICE = (
    "what is never solved is never rewarded: teach the model first (SFT), choose prompts that it "
    "solves sometimes, or start from a more able model"
)


def in_a_line(finding: Finding) -> str:
    """The finding for the display of a run."""
    fix = f" ({finding.fix})" if finding.severity == "warning" else ""
    return f"{finding.severity}: {finding.what}: {finding.evidence}{fix}"


def first_look(session: Session, name: str, stage: StageSpec, method: Method) -> Method:
    """The method of a stage, telling how many of its first prompts were solved before it updates
    anything; a method that samples nothing stays as it is.
    """
    reward = getattr(stage, "reward", None)
    if not isinstance(stage, SamplingStage) or reward is None:
        return method

    def tell(samples: Sequence[SampleRecord]) -> None:
        judged = [((sample.row_id, sample.visit), sample.reward) for sample in samples]
        floor = capability(judged, full_reward(session.task, reward))
        if floor is not None:
            session.observer.note(in_a_line(told(name, stage.start, floor)))

    return FirstLook(method, tell)
