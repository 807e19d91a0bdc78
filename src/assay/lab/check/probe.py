"""What the model can do before training: groups sampled for a few training prompts, and judged."""

import gc
from collections.abc import Sequence
from typing import cast

import torch
from transformers import PreTrainedModel

from assay.data.episode import Episode, Reward
from assay.data.row import Row
from assay.experiment.stage_tables import SamplingStage, StageSpec, start_of
from assay.experiment.training_tables import Reward as RewardSpec
from assay.judge.findings import Finding
from assay.judge.health_rules import SIGNAL_WARNING
from assay.judge.intervals import Interval, wilson
from assay.lab.check.capability import capability, full_reward
from assay.lab.check.capability import told as floor_told
from assay.lab.check.subject import Number, Seen, Subject
from assay.lab.setup.checkpoint_models import ModelShelf
from assay.lab.setup.prepare import find_part, make_renderer
from assay.lab.setup.stage_methods import StageInput, reward_of, sampled_source
from assay.rl.policy import Policy
from assay.rl.signal import signal_stats
from assay.rollout.policies.language import LocalSampler
from assay.runs.run_directory import runs_of
from assay.runs.run_names import RunNotFound, checkpoint_directory
from assay.train.row_order import visits
from assay.train.sampled_groups import is_truncated

FORMAT = "format"
"""The reward part that says whether an answer has the right form."""


def probe(subject: Subject, prompts: int) -> Seen:
    """Every stage that samples, on the first `prompts` prompts that it will meet."""
    for name, stage in subject.session.experiment.stage.items():
        reward = getattr(stage, "reward", None)
        if isinstance(stage, SamplingStage) and reward is not None:
            yield from probe_stage(subject, name, stage, reward, prompts)


def probe_stage(
    subject: Subject, name: str, stage: SamplingStage, reward: RewardSpec, prompts: int
) -> Seen:
    """Sample groups as the stage's first steps would, judge them, and say what they carry."""
    session = subject.session
    rows = find_part(session.sets, stage.data)
    chosen = [row for _, row in visits(rows, session.seed, 0, min(prompts, len(rows)))]
    jobs = [(row, sample) for row in chosen for sample in range(stage.group)]
    judge = reward_of(session.task, reward)
    with session.reward_runner(judge, stage.reward_deadline) as runner:
        given = StageInput(
            session.task,
            tuple(chosen),
            make_renderer(session.base.tokenizer, stage.rendering),
            session.seed,
            runner,
            session.base.end_tokens,
            session.base.positions,
        )
        episodes, where = sampled(subject, stage, given, jobs)
    yield from told(name, where, len(chosen), stage.group, episodes)
    yield from floor_seen(name, where, episodes, full_reward(session.task, reward))


def floor_seen(name: str, where: str, episodes: Sequence[Episode], full: float) -> Seen:
    """How many prompts were solved at least once, and whether that is enough to start from."""
    judged = ((e.group, e.reward) for e in episodes if e.reward is not None)
    floor = capability(judged, full)
    if floor is not None:
        yield from with_interval(f"stage.{name}.probe", "solved_share", floor.solved, floor.prompts)
        yield floor_told(name, where, floor)


def sampled(
    subject: Subject, stage: SamplingStage, given: StageInput, jobs: Sequence[tuple[Row, int]]
) -> tuple[list[Episode], str]:
    """A judged episode per job, and the name of the model that wrote them."""
    session = subject.session
    model, where = start_model(subject, stage)  # type: ignore[arg-type]
    sampler = LocalSampler(model, session.base.end_tokens, session.precision.compute)
    # Sampling asks of a policy no more than a sampler has.
    episodes = sampled_source(stage, given).run(cast(Policy, sampler), jobs, {})
    del model, sampler
    gc.collect()
    return episodes, where


def start_model(subject: Subject, stage: StageSpec) -> tuple[PreTrainedModel, str]:
    """The model that the stage starts from, where the latest run of this name has it already;
    else the experiment's model.
    """
    session = subject.session
    reference = start_of(stage)
    runs = runs_of(session.run.root, session.experiment.name)
    if reference.stage is None or not runs:
        return session.shelf.load_base().model, "base"
    try:
        checkpoint_directory(runs[-1], reference)
    except RunNotFound:
        return session.shelf.load_base().model, "base"
    shelf = ModelShelf(session.experiment, runs[-1], session.shelf.base, session.precision)
    return shelf.plain(reference), f"{runs[-1]}@{stage.start}"


def told(
    name: str,
    where: str,
    prompts: int,
    group: int,
    episodes: Sequence[Episode],
) -> Seen:
    """The shares, each with its Wilson interval, and a warning where nearly no group can teach."""
    place = f"stage.{name}.probe"
    rewards = [e.reward or Reward(None) for e in episodes]
    values = [(i // group, r.value) for i, r in enumerate(rewards) if r.value is not None]
    rewards_E = torch.tensor([value for _, value in values], dtype=torch.float64)
    group_E = torch.tensor([index for index, _ in values], dtype=torch.long)
    signal = signal_stats(rewards_E, group_E).signal_groups if values else 0
    cut = sum(map(is_truncated, episodes))
    formed = [form for r in rewards if (form := form_of(r)) is not None]
    mean = sum(value for _, value in values) / len(values) if values else 0.0
    yield Number(place, "prompts", prompts)
    yield Number(place, "reward_mean", mean)
    yield Number(place, "abstained_share", 1 - len(values) / len(rewards))
    yield from with_interval(place, "signal_share", signal, prompts)
    yield from with_interval(place, "truncated_share", cut, len(episodes))
    if formed:
        yield from with_interval(place, "format_share", sum(formed), len(formed))
    interval = wilson(signal, prompts)
    little = interval.high < SIGNAL_WARNING
    yield Finding(
        "warning" if little else "note",
        f"stage.{name}: {signal} of {prompts} groups carry signal at {where}",
        f"{in_words(interval)}; mean reward {mean:.3f}; {cut} of {len(episodes)} answers cut at "
        "the limit" + (f"; {sum(formed) / len(formed):.0%} well formed" if formed else ""),
        "teach the model first (SFT), choose prompts that it solves sometimes, or enlarge the group"
        if little
        else "nothing; a stage that starts from another checkpoint will differ",
    )


def with_interval(place: str, name: str, count: float, whole: int) -> Seen:
    """A share and the limits of its Wilson interval."""
    interval = wilson(count, whole)
    yield Number(place, name, count / whole)
    yield Number(place, f"{name}_low", interval.low)
    yield Number(place, f"{name}_high", interval.high)


def form_of(reward: Reward) -> float | None:
    """1 where the answer has the right form, 0 where not; None for a reward without such a part."""
    found = [value for part, value in reward.parts.items() if part.split("/")[-1] == FORMAT]
    return float(min(found) > 0) if found else None


def in_words(interval: Interval) -> str:
    """`95% interval 2% to 31%`."""
    return f"{interval.level:.0%} interval {interval.low:.0%} to {interval.high:.0%}"
