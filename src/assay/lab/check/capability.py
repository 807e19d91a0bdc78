"""Checks before RL that the model solves some prompts: samples a few groups and judges them.

GRPO learns from prompts that are solved sometimes. A model that solves none in any group gets no
reward to learn from.
"""

import gc
import math
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from assay.data.episode import Episode, Reward
from assay.data.row_order import visits
from assay.errors import Finding
from assay.experiment.checkpoint_reference import BASE, CheckpointReference
from assay.experiment.reward_tables import Reward as RewardSpec
from assay.experiment.stage_tables import OTHER_RUN, SamplingStage, StageSpec, start_of
from assay.judge.health_rules import SIGNAL_WARNING
from assay.judge.intervals import Interval, wilson
from assay.lab.check.subject import Number, Seen, Subject
from assay.lab.setup.prepare import find_order, find_part
from assay.lab.setup.reward_parts import full_reward, reward_of
from assay.lab.setup.session import Session
from assay.lab.setup.stage_methods import sampled_source
from assay.rl.signal import signal_stats
from assay.rollout.episodes import Samples
from assay.runs.run_directory import runs_of
from assay.runs.run_names import RunNotFound, checkpoint_directory
from assay.train.checkpoint import Method, SampleRecord
from assay.train.loop import FirstSamples
from assay.train.pair_choice import OVERLONG
from assay.train.sampled_groups import is_truncated, judge

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
    told = f"pass@{floor.group} {floor.solved / floor.prompts:.0%}, {words_of(floor.interval)}"
    severity = "warning" if floor.low else "note"
    return Finding(severity, f"stage.{stage}: {solved}", told, fix if floor.low else "nothing")


def words_of(interval: Interval) -> str:
    """An interval of a share."""
    return f"{interval.level:.0%} interval {interval.low:.0%} to {interval.high:.0%}"


def first_look(session: Session, name: str, stage: StageSpec, method: Method) -> Method:
    """The method of a stage, which reports how many of its first prompts were solved before it
    updates anything. A method that does not learn from sampled rewards is returned as it is."""
    if (reward := sampled_reward(stage)) is None:
        return method

    def tell(samples: Sequence[SampleRecord]) -> None:
        judged = [((sample.row_id, sample.visit), sample.reward) for sample in samples]
        floor = capability(judged, full_reward(session.task, reward, session.run.root))
        if floor is not None:
            found = floor_finding(name, stage.start, floor)
            fix = f" ({found.fix})" if found.severity == "warning" else ""
            session.observer.note(f"{found.severity}: {found.what}: {found.evidence}{fix}")

    return FirstSamples(method, tell)


def sampled_reward(stage: object) -> RewardSpec | None:
    """What judges the completions that a stage learns from; None where it samples none."""
    return stage.reward if isinstance(stage, SamplingStage) and stage.needs_reward else None


FORMAT = "format"
"""The reward part that says whether an answer has the right form."""


def probe(subject: Subject, prompts: int) -> Seen:
    """Every stage that samples, on the first `prompts` prompts that it will meet."""
    for name, stage in subject.session.experiment.stage.items():
        if isinstance(stage, SamplingStage) and sampled_reward(stage) is not None:
            yield from probe_stage(subject, name, stage, prompts)


def probe_stage(subject: Subject, name: str, stage: SamplingStage, prompts: int) -> Seen:
    """Sample and judge groups as the stage's first steps would; returns measurements and
    findings."""
    session, reward = subject.session, stage.reward or ""
    rows = find_part(session.sets, stage.data)
    order = find_order(session.sets, stage.data)
    met = visits(rows, session.seed, 0, min(prompts, len(rows)), order)
    chosen = list({row.id: row for _, row in met}.values())
    jobs = [(row, sample) for row in chosen for sample in range(stage.group)]
    with session.reward_runner(reward_of(session.task, reward, session.run.root), stage) as runner:
        given = session.stage_input(stage, chosen, runner.score)  # type: ignore[arg-type]
        sampler, where = start_sampler(subject, stage)  # type: ignore[arg-type]
        source = sampled_source(stage, given)
        episodes = judge(source.score, source.sample(sampler, jobs), {})
        del sampler
        gc.collect()
    yield from rates_finding(name, where, len(chosen), stage.group, episodes)
    full = full_reward(session.task, reward, session.run.root)
    floor = capability(((e.group, e.reward) for e in episodes if e.reward is not None), full)
    if floor is not None:
        yield from with_interval(f"stage.{name}.probe", "solved_share", floor.solved, floor.prompts)
        yield floor_finding(name, where, floor)


def start_sampler(subject: Subject, stage: StageSpec) -> tuple[Samples, str]:
    """The stage's start from the latest run of this name, if there is one, else the base model."""
    session = subject.session
    if stage.start.startswith(OTHER_RUN):
        step_0 = next(n for n, each in session.experiment.stage.items() if each == stage)
        start = CheckpointReference(step_0, "step", 0)
        return session.learner.sampler(session.run, start), stage.start
    reference = start_of(stage)
    runs = runs_of(session.run.root, session.experiment.name)
    if reference.stage is not None and runs:
        with suppress(RunNotFound):
            checkpoint_directory(runs[-1], reference)
            return session.learner.sampler(runs[-1], reference), f"{runs[-1]}@{stage.start}"
    return session.learner.sampler(session.run, BASE), "base"


def rates_finding(
    name: str,
    where: str,
    prompts: int,
    group: int,
    episodes: Sequence[Episode],
) -> Seen:
    """The shares with Wilson intervals, and a warning if nearly no group has a training signal."""
    place = f"stage.{name}.probe"
    rewards = [e.reward or Reward(None) for e in episodes]
    values = [(i // group, r.value) for i, r in enumerate(rewards) if r.value is not None]
    rewards_E = torch.tensor([value for _, value in values], dtype=torch.float64)
    group_E = torch.tensor([index for index, _ in values], dtype=torch.long)
    signal = signal_stats(rewards_E, group_E).signal_groups if values else 0
    cut = sum(map(is_truncated, episodes))
    forms = ([v for p, v in r.parts.items() if p.split("/")[-1] == FORMAT] for r in rewards)
    formed = [float(min(values) > 0) for values in forms if values]
    mean = sum(value for _, value in values) / len(values) if values else 0.0
    yield Number(place, "prompts", prompts)
    yield Number(place, "reward_mean", mean)
    yield Number(place, "abstained_share", 1 - len(values) / len(rewards))
    yield from with_interval(place, "signal_share", signal, prompts)
    yield from with_interval(place, "truncated_share", cut, len(episodes))
    if formed:
        yield from with_interval(place, "format_share", sum(formed), len(formed))
    interval = wilson(signal, prompts)
    told = f"{words_of(interval)}; mean reward {mean:.3f}; {cut} of {len(episodes)} answers cut "
    told += "at the limit" + (f"; {sum(formed) / len(formed):.0%} well formed" if formed else "")
    severity, fix = "note", "nothing; a stage that starts from another checkpoint will differ"
    if interval.high < SIGNAL_WARNING:
        severity, fix = "warning", "teach the model first (SFT), choose prompts that it solves "
        fix += "sometimes, or enlarge the group"
    what = f"stage.{name}: {signal} of {prompts} groups carry signal at {where}"
    yield Finding(severity, what, told, fix)


def with_interval(place: str, name: str, count: float, whole: int) -> Seen:
    """A share and the limits of its Wilson interval."""
    interval = wilson(count, whole)
    yield Number(place, name, count / whole)
    yield Number(place, f"{name}_low", interval.low)
    yield Number(place, f"{name}_high", interval.high)
