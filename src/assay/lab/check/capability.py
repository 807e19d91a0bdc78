"""Asks the checkpoint that a stage of RL starts from, before compute is spent: `--probe N`.

GRPO learns from prompts that are solved sometimes: a model that solves none in any group gets no
reward to learn from, whatever the method.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress

import torch

from assay.data.episode import Episode
from assay.data.splits import visits
from assay.errors import Finding
from assay.experiment.checkpoint_reference import BASE, CheckpointReference
from assay.experiment.stage_tables import SamplingStage
from assay.judge.health_rules import SIGNAL_WARNING
from assay.judge.intervals import Interval, wilson
from assay.lab.check.subject import Number, Seen, Subject
from assay.lab.data.prepare import find_order, find_part
from assay.lab.session.reward_parts import full_reward, reward_of
from assay.lab.session.stage_methods import sampled_source
from assay.rl.advantages import signal_stats
from assay.rollout.episodes import Samples
from assay.runs.run_directory import RunDirectory, runs_of
from assay.runs.run_names import RunNotFound, checkpoint_directory
from assay.train.pair_choice import OVERLONG
from assay.train.sampled_groups import is_truncated, judge

SOLVED = 0.5
"""A completion with this share of the full reward counts as solved: form alone earns less, and a
right answer that is also graded by its length earns more."""
ADVICE = "what is never solved is never rewarded: teach the model first (SFT), choose prompts that "
ADVICE += "it solves sometimes, or start from a more able model"


def probe(subject: Subject, prompts: int) -> Seen:
    """Every stage that samples and is rewarded, on the first prompts that it will meet."""
    for name, stage in subject.session.experiment.stage.items():
        if not isinstance(stage, SamplingStage) or stage.stored or stage.reward is None:
            continue
        start = start_of_stage(subject, name, stage)
        if start is None:
            what = f"stage.{name}: not asked, because no run has its start {stage.start} yet"
            yield Finding("note", what, "", "train the stages before it, then check again")
            continue
        episodes = sampled(subject, stage, start, prompts)
        yield from findings(subject, name, stage, start[-1], episodes)


Start = tuple[RunDirectory, CheckpointReference, str]
"""A run, one of its checkpoints, and the name of both."""


def start_of_stage(subject: Subject, name: str, stage: SamplingStage) -> Start | None:
    """The run and the checkpoint that the stage would start from, and its name; None where it is
    still to be trained: the base model in its place would tell of another model."""
    session = subject.session
    if (reference := stage.starts_from) is None:
        return session.run, CheckpointReference(name, "step", 0), stage.start
    if reference.stage is None:
        return session.run, BASE, "base"
    for run in reversed(runs_of(session.run.root, session.experiment.name)):
        with suppress(RunNotFound):
            checkpoint_directory(run, reference)
            return run, reference, f"{run}@{stage.start}"
    return None


def sampled(subject: Subject, stage: SamplingStage, start: Start, prompts: int) -> list[Episode]:
    """Groups as the stage's first step would sample and judge them."""
    session, (run, reference, _) = subject.session, start
    rows = find_part(session.sets, stage.data)
    order = find_order(session.sets, stage.data)
    met = visits(rows, session.seed, 0, min(prompts, len(rows)), order)
    chosen = list({row.id: row for _, row in met}.values())
    jobs = [(row, sample) for row in chosen for sample in range(stage.group)]
    reward = reward_of(session.task, stage.reward or "", session.run.root)
    with session.reward_runner(reward, stage) as runner:
        stage_input = session.stage_input(stage, chosen, runner.score)  # type: ignore[arg-type]
        sampler: Samples = session.learner.sampler(run, reference)
        source = sampled_source(stage, stage_input)
        return judge(source.score, source.sample(sampler, jobs), {})


def findings(
    subject: Subject, name: str, stage: SamplingStage, where: str, episodes: Sequence[Episode]
) -> Iterator[Finding | Number]:
    """How many prompts were solved at least once, and how many groups carry signal."""
    session = subject.session
    full = full_reward(session.task, stage.reward or "", session.run.root)
    groups = [episodes[i : i + stage.group] for i in range(0, len(episodes), stage.group)]
    rewards = [
        [e.reward for e in group if e.reward and e.reward.value is not None] for group in groups
    ]
    # A right answer that is too long is a right answer.
    values = [[(r.value or 0.0) - r.parts.get(OVERLONG, 0.0) for r in group] for group in rewards]
    cut = sum(map(is_truncated, episodes))
    if math.isfinite(full) and any(values):
        solved = sum(max(group, default=0.0) >= SOLVED * full for group in values)
        yield from told(name, where, "prompts solved at least once", solved, len(groups))
    judged = [(place, r.value) for place, group in enumerate(rewards) for r in group]
    rewards_E = torch.tensor([value for _, value in judged], dtype=torch.float64)
    group_E = torch.tensor([place for place, _ in judged], dtype=torch.long)
    signal = signal_stats(rewards_E, group_E).signal_groups if judged else 0
    yield from told(name, where, "groups carry signal", signal, len(groups))
    yield Number(f"stage.{name}.probe", "truncated_share", cut / len(episodes))
    yield Number(f"stage.{name}.probe", "abstained_share", 1 - len(judged) / len(episodes))


def told(name: str, where: str, what: str, count: int, whole: int) -> Iterator[Finding | Number]:
    """A share of the prompts with its interval; a warning where RL cannot start from it."""
    interval: Interval = wilson(count, whole)
    low = count == 0 or interval.high < SIGNAL_WARNING
    evidence = f"{count / whole:.0%}, {interval.level:.0%} interval {interval.low:.0%} to "
    yield Number(f"stage.{name}.probe", what.replace(" ", "_"), count / whole)
    yield Finding(
        "warning" if low else "note",
        f"stage.{name}: {count} of {whole} {what} at {where}",
        f"{evidence}{interval.high:.0%}",
        ADVICE if low else "nothing",
    )
