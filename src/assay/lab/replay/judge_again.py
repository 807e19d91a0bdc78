"""A stored step judged again: what another reward, advantage or group filter would have changed.

Nothing is sampled, trained or written. The step is first judged as the run judged it, and what
does not come out as recorded is a finding.
"""

from collections.abc import Sequence
from dataclasses import replace

from assay.data.episode import Reward
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import GrpoStage
from assay.lab.monitor.observer import Observer
from assay.lab.replay.caveats import notes
from assay.lab.replay.proof import findings, prove
from assay.lab.replay.replay_result import Replay, gradients_of, sample_changes, spreads, update_of
from assay.lab.replay.settings import changed, replayed_experiment
from assay.lab.replay.side import (
    PULLS,
    Bench,
    Side,
    judge_side,
    needs_weights,
    score,
    set_up,
    shaped,
)
from assay.lab.replay.step import (
    SampledStage,
    StoredStep,
    choose_stage,
    read_step,
    stored_reward,
)
from assay.lab.setup.session import Session
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory
from assay.runs.status import stored_status
from assay.train.group_choice import OVERLONG


def replay(
    run: RunDirectory,
    step: int,
    settings: Sequence[str] = (),
    *,
    stage: str | None = None,
    gradient: bool = False,
    observer: Observer,
) -> Replay:
    """Judge the stored completions of a step again, as `settings` (PATH=VALUE) say.

    Raises InputError for what does not exist or cannot be replayed.
    """
    experiment = read_experiment(run.spec)
    name = choose_stage(run, experiment, stage)
    before = experiment.stage[name]
    after = replayed_experiment(run, name, settings).stage[name]
    assert isinstance(before, SampledStage)
    assert isinstance(after, SampledStage)
    stored = read_step(run, name, step, before.group)
    session = Session(experiment, run, stored_status(run.path).seed, observer)
    bench = set_up(session, stored)
    return compare_sides(bench, before, after, gradient)


def compare_sides(
    bench: Bench, before: SampledStage, after: SampledStage, gradient: bool
) -> Replay:
    """Both sides of the replay, and the self-check."""
    stored = bench.stored
    recorded = [stored_reward(line) for line in stored.lines]
    again = shaped(bench, before, score(bench, before))
    past = judge_side(bench, before, recorded, gradient=gradient)
    other = judge_side(bench, after, rewards_after(bench, before, after), gradient=gradient)
    proof = prove(bench.session, stored, again, past.pulls, unasked(bench, before))
    past = replace(past, pulls=tuple(recorded_pulls(before, stored, past)))
    gradients = None
    if gradient:
        lines = [x for x in read_metrics(stored.run.metrics) if x["stage"] == stored.stage]
        gradients = gradients_of(past, other, bench.weights, lines, stored.step)
    values = ([reward.value for reward in side] for side in (recorded, other.rewards))
    return Replay(
        run=str(stored.run),
        stage=stored.stage,
        method=before.method,
        step=stored.step,
        pull=PULLS[before.method],
        settings=tuple(changed(before, after)),
        proof=proof,
        rewards=spreads(*values),
        pulls=spreads(past.pulls, other.pulls),
        before=update_of(past),
        after=update_of(other),
        samples=sample_changes(stored, recorded, past, other),
        gradients=gradients,
        findings=(*findings(proof), *notes(after, other, gradients)),
    )


def rewards_after(bench: Bench, before: SampledStage, after: SampledStage) -> list[Reward]:
    """The recorded rewards where the same reward judges, else those of the other one.

    What was judged once stays judged: a deadline may pass one time and not another.
    """
    if judging(before) != judging(after):
        return score(bench, after)
    recorded = [stored_reward(line) for line in bench.stored.lines]
    punishments = [getattr(stage, "overlong", None) for stage in (before, after)]
    if punishments[0] != punishments[1]:
        return [unpunished(reward) for reward in recorded]
    return recorded


def judging(stage: SampledStage) -> tuple[object, float]:
    """What decides about the reward of a completion."""
    return stage.reward, stage.reward_deadline


def unpunished(reward: Reward) -> Reward:
    """The reward without its punishment for length, to the last rounding of the sum."""
    if reward.value is None or OVERLONG not in reward.parts:
        return reward
    parts = {name: value for name, value in reward.parts.items() if name != OVERLONG}
    return Reward(reward.value - reward.parts[OVERLONG], parts, reward.why)


def recorded_pulls(stage: SampledStage, stored: StoredStep, past: Side) -> list[float | None]:
    """What each sample was given: the recorded advantages of GRPO; others record none."""
    if not isinstance(stage, GrpoStage):
        return list(past.pulls)
    return [None if line["reward"] is None else line["advantage"] for line in stored.lines]


def unasked(bench: Bench, stage: SampledStage) -> str:
    """Why the run's advantages cannot be worked out again; "" where they can."""
    if not needs_weights(bench, stage) or bench.weights.exact:
        return ""
    return (
        "they depend on the weights that sampled, which are not stored; the nearest before are "
        f"{bench.weights.checkpoint}"
    )
