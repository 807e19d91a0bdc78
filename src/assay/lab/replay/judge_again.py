"""Judges a stored step again: what another reward, advantage or group filter would have changed.

Samples, trains and writes nothing. A replay may change how completions are judged and weighted,
never how they were sampled; `reward=NAME` is short for `stage.STAGE.reward=NAME`. The step is first
judged under its own settings, and every difference from the record is a finding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.data.episode import Reward
from assay.errors import InputError
from assay.experiment.experiment import Experiment
from assay.experiment.overrides import parse_override, place
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import GrpoStage, StageSpec
from assay.judge.confounds import Confound, differences
from assay.judge.findings import Finding
from assay.lab.monitor.observer import Observer
from assay.lab.replay.replay_result import (
    Gradients,
    Replay,
    findings,
    gradients_of,
    prove,
    sample_changes,
    spreads,
    update_of,
)
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
)
from assay.lab.setup.session import Session
from assay.lab.setup.validate import check_names
from assay.runs.history import History
from assay.runs.run_directory import RunDirectory
from assay.runs.status import stored_status
from assay.tasks.user_code import forget_changed_files
from assay.train.group_choice import OVERLONG

JUDGING = (
    *("reward", "reward_deadline", "max_abstained_share", "overlong", "mask_truncated"),
    *("algorithm", "advantage", "loss", "aggregation", "clip", "kl", "entropy_coef", "updates"),
    *("drop_without_signal", "dynamic", "keep", "batch", "tau", "likelihood_temperature"),
    *("micro_tokens",),
)
"""Keys of a stage that do not affect sampling."""


class NotReplayable(InputError):
    """A setting that would have led to other samples, or that is of another stage."""


def replayed_experiment(run: RunDirectory, stage: str, settings: Sequence[str]) -> Experiment:
    """The run's experiment with these settings of one stage.

    Raises NotReplayable, and what reading an experiment with overrides raises.
    """
    forget_changed_files()
    before = read_experiment(run.spec)
    overrides = [whole_path(text, stage, before.stage[stage]) for text in settings]
    after = read_experiment(run.spec, overrides)
    check_names(after, run.spec, overrides, run.root)
    return after


def whole_path(text: str, name: str, stage: StageSpec) -> str:
    """A setting with its path from the top of the file. Raises NotReplayable."""
    path = tuple(map(str, parse_override(text).path))
    inner = path[2:] if path[0] == "stage" else path
    if path[0] == "stage" and path[1:2] != (name,):
        fix = f"write stage.{name}.KEY, or name another stage with --stage"
        raise NotReplayable(f"only {name!r} is replayed", file=place(text), fix=fix)
    own = type(stage).model_fields
    if not inner or (inner[0] not in JUDGING and inner[0] in {*own, *Experiment.model_fields}):
        problem = "only how samples are judged can be replayed, not how they came about"
        fix = "set " + ", ".join(key for key in JUDGING if key in own)
        raise NotReplayable(problem, file=place(text), field=".".join(path), fix=fix)
    return text if path[0] == "stage" else f"stage.{name}.{text.strip()}"


def changed(before: StageSpec, after: StageSpec) -> list[Confound]:
    """Every value in which the two tables of a stage differ, by dotted path."""
    return differences(table(before), table(after))


def table(stage: StageSpec) -> Mapping[str, Any]:
    """The stage as plain values, omitted ones left out."""
    return stage.model_dump(mode="json", exclude_none=True)


def notes(stage: SampledStage, other: Side, gradients: Gradients | None) -> list[Finding]:
    """Findings on a run that would have continued differently with these settings, and on
    gradients."""
    found = [too_silent(stage, other), ended_earlier(other), gone_on(other)]
    if gradients is not None:
        found += [
            other_weights(gradients),
            other_log_probs(stage, gradients),
            no_gradient(gradients),
        ]
    return [finding for finding in found if finding is not None]


def too_silent(stage: SampledStage, other: Side) -> Finding | None:
    """Finding: so many abstentions that the run would have stopped."""
    reasons = [reward.why for reward in other.rewards if reward.value is None]
    if len(reasons) <= stage.max_abstained_share * len(other.rewards):
        return None
    common = max(set(reasons), key=reasons.count)
    return Finding(
        "warning",
        "with these settings the run would have stopped at this step",
        f"{len(reasons)} of {len(other.rewards)} rewards abstain, more than "
        f"{stage.max_abstained_share:.0%}; most often: {common}",
        "correct the reward, or raise max_abstained_share",
    )


def ended_earlier(other: Side) -> Finding | None:
    """Dynamic sampling would have had enough with fewer completions."""
    if other.drawn == len(other.rewards):
        return None
    evidence = f"{other.drawn} of {len(other.rewards)} completions would have been sampled"
    return Finding("note", "sampling would have ended earlier", evidence, "")


def gone_on(other: Side) -> Finding | None:
    """Dynamic sampling would have asked for completions that do not exist."""
    if not other.short:
        return None
    what = "with these settings more completions would have been sampled than are stored"
    evidence = f"{other.signal.signal_groups} groups carry signal"
    return Finding("warning", what, evidence, "read the update as that of the stored ones alone")


def other_weights(gradients: Gradients) -> Finding | None:
    """The gradients are not taken where the step was sampled."""
    weights = gradients.weights
    if weights.exact:
        return None
    return Finding(
        "note",
        f"the gradients are taken at {weights.checkpoint}, {weights.behind} steps before the "
        "weights that sampled",
        "those are not stored",
        "a smaller checkpoint_every keeps more of them",
    )


def other_log_probs(stage: SampledStage, gradients: Gradients) -> Finding | None:
    """Log-probs of the sampling weights differ from the recorded ones."""
    limit = stage.max_rollout_gap if isinstance(stage, GrpoStage) else float("inf")
    gap = gradients.rollout_gap
    if not gradients.weights.exact or gap is None or gap <= limit:
        return None
    return Finding(
        "warning",
        "prompts or weights are not those that sampled",
        f"log-probs differ from the recorded ones by {gap:.3f} on average, more than {limit}",
        "look for what has changed: data, template, model",
    )


def no_gradient(gradients: Gradients) -> Finding | None:
    """A side that would not have moved the weights has no direction."""
    whole = gradients.directions.whole
    empty = [side for side, norm in (("before", whole.before), ("after", whole.after)) if not norm]
    if not empty:
        return None
    return Finding("note", f"no gradient {' and '.join(empty)}", "nothing carries signal", "")


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
    recorded = [sample.judgement for sample in stored.samples]
    again = shaped(bench, before, score(bench, before))
    past = judge_side(bench, before, recorded, gradient=gradient)
    other = judge_side(bench, after, rewards_after(bench, before, after), gradient=gradient)
    proof = prove(bench.session, stored, again, past.pulls, unasked(bench, before))
    past = replace(past, pulls=tuple(recorded_pulls(before, stored, past)))
    gradients = None
    if gradient:
        lines = History(stored.run).lines(stored.stage)
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
    """The recorded rewards if the same reward judges, else those of the other one.

    Recorded rewards are kept, because a deadline may pass one time and not another.
    """
    if judging(before) != judging(after):
        return score(bench, after)
    recorded = [sample.judgement for sample in bench.stored.samples]
    punishments = [getattr(stage, "overlong", None) for stage in (before, after)]
    if punishments[0] != punishments[1]:
        return [unpunished(reward) for reward in recorded]
    return recorded


def judging(stage: SampledStage) -> tuple[object, float]:
    """Settings that affect the reward of a completion."""
    return stage.reward, stage.reward_deadline


def unpunished(reward: Reward) -> Reward:
    """The reward without its punishment for length, to the last rounding of the sum."""
    if reward.value is None or OVERLONG not in reward.parts:
        return reward
    parts = {name: value for name, value in reward.parts.items() if name != OVERLONG}
    return Reward(reward.value - reward.parts[OVERLONG], parts, reward.why)


def recorded_pulls(stage: SampledStage, stored: StoredStep, past: Side) -> list[float | None]:
    """The recorded advantages for GRPO; `past`'s pulls for methods that record none."""
    if not isinstance(stage, GrpoStage):
        return list(past.pulls)
    return [None if each.reward is None else each.advantage for each in stored.samples]


def unasked(bench: Bench, stage: SampledStage) -> str:
    """Why the run's advantages cannot be worked out again; "" where they can."""
    if not needs_weights(bench, stage) or bench.weights.exact:
        return ""
    return (
        "they depend on the weights that sampled, which are not stored; the nearest before are "
        f"{bench.weights.checkpoint}"
    )
