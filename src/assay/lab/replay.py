"""Judges a stored step again: what another reward, advantage or group filter would have changed.

Samples, trains and writes nothing. A replay may change how completions are judged and weighted,
never how they were sampled; `reward=NAME` is short for `stage.STAGE.reward=NAME`. GRPO does the
work; it gets the stored groups in place of a sampler. The step is first judged under its own
settings, and every difference from the record is a finding.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

from assay.data.episode import AGENT, Completion, Context, Episode, Reward, Turn
from assay.data.row import Row
from assay.errors import Finding, InputError, nearest
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import parse_override, place, read_experiment
from assay.experiment.stage_tables import (
    GrpoStage,
    StageSpec,
    steps_of,
)
from assay.judge.confounds import Confound, differences
from assay.lab.data.prepare import find_order, find_part, prepare_set
from assay.lab.models.learner import first_context
from assay.lab.monitor.observer import Observer
from assay.lab.session.reward_parts import reward_of
from assay.lab.session.session import Session
from assay.lab.session.stage_methods import build_grpo
from assay.lab.session.validate import check_names
from assay.rl.advantages import SignalStats, signal_stats
from assay.rl.objectives import GrpoObjective
from assay.rl.policy import Policy
from assay.runs.history import History, Sample, samples_in
from assay.runs.run_code import restore_code
from assay.runs.run_directory import RunDirectory, stored_status
from assay.runs.run_files import DamagedFile
from assay.runs.run_names import experiment_of
from assay.tasks.rendered_dialogue import dialogue_of
from assay.tasks.user_code import forget_changed_files
from assay.train.checkpoint import Journal, Place
from assay.train.grpo import Grpo
from assay.train.pair_choice import OVERLONG, rewards_of
from assay.train.sampled_groups import StoredPrompts, value_of

SHOWN = 3
"""Causes and differences that are written out; the others are counted."""
JUDGING = (
    *("reward", "reward_deadline", "max_abstained_share", "overlong", "mask_truncated"),
    *("algorithm", "advantage", "loss", "aggregation", "clip", "kl", "entropy_coef", "updates"),
    *("drop_without_signal", "dynamic", "batch", "micro_tokens"),
)
"""Keys of a stage that do not affect sampling."""
Sign = Literal["flipped", "raised", "silenced", "same", "silent", "unknown"]
"""Changed; was 0 and is not; is 0 and was not; kept; 0 twice; not known before or after."""


@dataclass(frozen=True)
class StoredStep:
    """The completions of one step, in the order in which they were sampled, with their prompts."""

    session: Session
    stage: str
    step: int
    samples: tuple[Sample, ...]
    rows: Mapping[str, Row]
    """By id."""
    contexts: Mapping[str, Context]
    steps: int
    """Steps of the whole stage."""

    def address(self, sample: Sample) -> str:
        """The sample's name for `assay report`."""
        return f"{self.session.run}:{sample.id}"


def read_step(session: Session, name: str, step: int, group: int) -> StoredStep:
    """The stored completions of a step, in groups of `group`. Raises InputError with the steps
    there are, and where the data holds one of the rows no longer; DamagedFile for a file that is
    not whole."""
    run, stage = session.run, session.experiment.stage[name]
    file = run.samples(name, step)
    if not file.exists():
        there = History(run).sampled(name)
        fix = f"it has {there[0]} to {there[-1]}" if there else "it has none yet"
        raise InputError(f"{run} has no samples of step {step} of {name!r}", fix=fix)
    samples = tuple(samples_in(file, tokens=True))
    whole = [samples[i : i + group] for i in range(0, len(samples), group)]
    if not samples or any(len(g) != group or len({x.row for x in g}) > 1 for g in whole):
        problem = f"its lines are not groups of {group} completions of one row"
        raise DamagedFile(problem, file=file)
    data, parts = stage.data.partition(".")[0], (session.task, session.learner.encoder, run.root)
    made = prepare_set(session.experiment, data, *parts)
    rows = {row.id: row for row in find_part({data: made}, stage.data)}
    for sample in samples:
        if sample.row not in rows:
            raise InputError(f"{stage.data} has no row {sample.row!r} any more")
    rows = {sample.row: rows[sample.row] for sample in samples}
    encoder, dialogue = session.learner.encoder(stage), partial(dialogue_of, session.task)
    contexts = {i: first_context(encoder, session.task, r, dialogue) for i, r in rows.items()}
    steps = steps_of(stage, find_order({data: made}, stage.data).count)
    return StoredStep(session, name, step, samples, rows, contexts, steps)


def choose_stage(run: RunDirectory, experiment: Experiment, name: str | None) -> str:
    """The stage to replay: the only one of GRPO that samples, or the named one. Raises InputError
    for another, and where none is named of several."""
    able = [n for n, s in experiment.stage.items() if isinstance(s, GrpoStage) and not s.stored]
    if name is None:
        if len(able) == 1:
            return able[0]
        problem = f"{run} has {len(able)} stages of GRPO that sample"
        fix = "add --stage " + " or --stage ".join(able) if able else "assay report shows samples"
    elif name in able:
        return name
    elif name not in experiment.stage:
        problem, fix = f"{run} has no stage {name!r}", nearest(name, experiment.stage)
    else:
        problem = f"stage {name!r} samples nothing for GRPO"
        fix = "take " + " or ".join(able) if able else "read completions with assay report"
    raise InputError(problem, field="--stage", fix=fix)


def completion_of(sample: Sample) -> Completion:
    """The completion as the reward saw it."""
    return Completion(sample.text, sample.tokens, sample.ended, sample.messages)


def earned_by_agent(sample: Sample, stage: GrpoStage) -> Reward | None:
    """What the agent of a stored episode said that it earned, before length was punished; None
    where its stage had no reward of an agent."""
    told = sample.judgement
    if stage.reward == AGENT:
        parts = {name: part for name, part in told.parts.items() if name != OVERLONG}
        value = None if told.value is None else told.value - told.parts.get(OVERLONG, 0.0)
        return replace(told, value=value, parts=parts)
    if not isinstance(stage.reward, dict) or AGENT not in stage.reward:
        return None
    inner = f"{AGENT}/"
    parts, facts = (
        {name.removeprefix(inner): own for name, own in all_.items() if name.startswith(inner)}
        for all_ in (told.parts, told.facts)
    )
    return replace(told, value=told.parts.get(AGENT), parts=parts, facts=facts)


def episode_of(sample: Sample, context: Context, reward: Reward) -> Episode:
    """The episode that a sample records, with a reward of one's own. `context` is the prompt of a
    single answer; turns of a conversation are stored with theirs."""
    name = f"{sample.row}#{sample.number}"
    turns = sample.turns
    if sample.conversation is None:
        actions = sample.tokens
        told = sample.logps or None
        turns = (Turn(context, actions, (True,) * len(actions), told, sample.ended),)
    return Episode(name, sample.row, turns, reward, completion_of(sample))


@dataclass(frozen=True)
class Side:
    """The step as one set of settings has it. Sequences run over the stored samples."""

    rewards: tuple[Reward, ...]
    """With the punishment of long completions, where that is set."""
    advantages: tuple[float | None, ...]
    """None for abstentions and for samples that would not have been drawn."""
    signal: SignalStats
    prompts: int
    """Different prompts in the update."""
    tokens: int
    """Trained tokens in the update's first pass."""
    drawn: int
    """Samples up to the batch with which sampling would have ended."""


def score(stored: StoredStep, stage: GrpoStage) -> list[Reward]:
    """The stored completions judged now by the reward of a stage, in order, nothing added."""
    session = stored.session
    asked = session.experiment.stage[stored.stage]
    assert isinstance(asked, GrpoStage) and stage.reward is not None
    pairs = [
        (
            stored.rows[each.row],
            replace(completion_of(each), earned=earned_by_agent(each, asked)),
        )
        for each in stored.samples
    ]
    judge = reward_of(session.task, stage.reward, session.run.root)
    with session.reward_runner(judge, stage) as runner:
        return runner.score(pairs)


def judge_side(stored: StoredStep, stage: GrpoStage, rewards: Sequence[Reward]) -> Side:
    """The stored completions as the stage weights them, with these rewards. Raises InputError where
    advantages depend on the weights that sampled."""
    method, groups = stored_method(stored, stage, rewards)
    if method.reads_weights:
        problem = "advantages that depend on the weights that sampled cannot be replayed"
        fix = 'set kl.where = "loss", or an advantage of rewards alone'
        raise InputError(problem, field=f"stage.{stored.stage}", fix=fix)
    # Advantages need neither the loss nor what the loss reads.
    fixed = method.stage.kl.model_copy(update={"adaptive": None})
    bare = method.stage.model_copy(update={"kl": fixed})
    method = replace(method, objective=GrpoObjective(), stage=bare)
    # Stored groups ask neither a policy for samples nor a recorder for rewards.
    place_ = Place(step=stored.step - 1)
    batch = method.collect(cast(Policy, None), place_, cast(Journal, None))
    episodes = [episode for group in groups for episode in group]
    judged = [[e for e in g if value_of(e) is not None] for g in groups]
    packed = batch.updates[: len(batch.updates) // stage.updates.epochs]
    advantages = {f"{r.row_id}#{r.sample}": r.advantage for r in batch.samples}
    return Side(
        rewards=tuple(e.reward or Reward(None) for e in episodes),
        advantages=tuple(
            advantages.get(e.id) if value_of(e) is not None else None for e in episodes
        ),
        signal=signal_stats(*rewards_of(judged)),
        prompts=len({id(context) for update in packed for context in update.contexts}),
        tokens=sum(int(update.mask_S.sum()) for update in packed),
        drawn=min(batch.consumed * stage.group, len(rewards)),
    )


def stored_method(
    stored: StoredStep, stage: GrpoStage, rewards: Sequence[Reward]
) -> tuple[Grpo, list[list[Episode]]]:
    """The stage's method over the stored groups, and these as it shapes them."""
    size, session = stage.group, stored.session
    visits = []
    for each, reward in zip(stored.samples, rewards, strict=True):
        episode = episode_of(each, stored.contexts[each.row], reward)
        visits.append(replace(episode, visit=each.number // size))
    assert stage.reward is not None
    runner = session.reward_runner(reward_of(session.task, stage.reward, session.run.root), stage)
    inputs = session.stage_input(stage, list(stored.rows.values()), runner.score)
    made = build_grpo(stage, inputs, stored.steps).at(stored.step - 1)
    groups = [made.shaped(visits[i : i + size]) for i in range(0, len(visits), size)]
    prompts = StoredPrompts(groups, stage.prompts)
    if (dynamic := made.stage.dynamic) is not None:
        most = min(dynamic.max_batches, prompts.batches)
        fewer = dynamic.model_copy(update={"max_batches": most})
        made = replace(made, stage=made.stage.model_copy(update={"dynamic": fewer}))
    return replace(made, prompts=prompts), groups


@dataclass(frozen=True, slots=True)
class SampleDifference:
    """One sample that is judged or weighed differently now."""

    sample: str
    """Its address for `assay report`."""
    what: str
    """`reward`, `abstention`, `advantage`, or the part's name as `part NAME`."""
    recorded: Any
    now: Any


@dataclass(frozen=True, slots=True)
class ReplayProof:
    """The result of judging the step again under its own settings."""

    samples: int
    rewards: tuple[SampleDifference, ...]
    advantages: tuple[SampleDifference, ...]
    """From the recorded rewards, so that only how these are weighed is asked."""

    @property
    def exact(self) -> bool:
        """Whether rewards, parts and advantages are what was recorded, to the last bit."""
        return not (self.rewards or self.advantages)


def prove(stored: StoredStep, stage: GrpoStage, past: Side) -> ReplayProof:
    """Compare rewards given now, and advantages worked out now from the recorded rewards, with what
    the step recorded. Abstentions are compared as such; their words are not."""
    _, groups = stored_method(stored, stage, score(stored, stage))
    again = [e.reward or Reward(None) for group in groups for e in group]
    both = zip(stored.samples, again, strict=True)
    changed = [d for s, now in both if (d := reward_difference(stored.address(s), s, now))]
    weighed = [
        SampleDifference(stored.address(each), "advantage", each.advantage, now)
        for each, now in zip(stored.samples, past.advantages, strict=True)
        if each.reward is not None and each.advantage != now
    ]
    return ReplayProof(len(again), tuple(changed), tuple(weighed))


def reward_difference(address: str, sample: Sample, now: Reward) -> SampleDifference | None:
    """The first thing that differs between a recorded reward and the same one given now."""
    then = sample.judgement
    if (then.value is None) != (now.value is None):
        both = (f"abstained: {r.why}" if r.value is None else r.value for r in (then, now))
        return SampleDifference(address, "abstention", *both)
    if then.value != now.value:
        return SampleDifference(address, "reward", then.value, now.value)
    for name in dict.fromkeys([*then.parts, *now.parts]):
        if then.parts.get(name) != now.parts.get(name):
            return SampleDifference(
                address, f"part {name}", then.parts.get(name), now.parts.get(name)
            )
    return None


def findings(proof: ReplayProof, stage: GrpoStage, other: Side) -> Iterator[Finding]:
    """The first differences of the self-check, then where the run would have gone on differently
    with these settings."""
    for name, different in (("rewards", proof.rewards), ("advantages", proof.advantages)):
        if different:
            shown = [f"{d.sample}: {d.what} {d.recorded} -> {d.now}" for d in different[:SHOWN]]
            yield Finding(
                "warning",
                f"recorded {name} are not reproduced: {len(different)} of {proof.samples}",
                "; ".join(shown),
                "restore what changed since, or read every change as one of the reward's as well",
            )
    reasons, size = [r.why for r in other.rewards if r.value is None], len(other.rewards)
    if len(reasons) > stage.max_abstained_share * size:
        common = max(set(reasons), key=reasons.count)
        yield Finding(
            "warning",
            "with these settings the run would have stopped at this step",
            f"{len(reasons)} of {size} rewards abstain, more than "
            f"{stage.max_abstained_share:.0%}; most often: {common}",
            "correct the reward, or raise max_abstained_share",
        )
    if other.drawn != size:
        evidence = f"{other.drawn} of {size} completions would have been sampled"
        yield Finding("note", "sampling would have ended earlier", evidence)


@dataclass(frozen=True, slots=True)
class SampleChange:
    """One completion before and after; None is an abstention, or a sample that was not drawn."""

    id: str
    """For `assay report`."""
    reward_before: float | None
    reward_after: float | None
    why_before: str
    why_after: str
    advantage_before: float | None
    advantage_after: float | None
    turn: Sign
    """The change of the sign of the advantage."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A step before and after; before is what was recorded."""

    run: str
    stage: str
    step: int
    settings: tuple[Confound, ...]
    """Every value of the stage that was set otherwise."""
    proof: ReplayProof
    before: Side
    after: Side
    samples: tuple[SampleChange, ...]
    findings: tuple[Finding, ...]


def replay(
    run: RunDirectory,
    step: int,
    settings: Sequence[str] = (),
    *,
    stage: str | None = None,
    observer: Observer,
) -> Replay:
    """Judge the stored completions of a step again, as `settings` (PATH=VALUE) say. Raises
    InputError for what does not exist or cannot be replayed."""
    restore_code(run)
    experiment = experiment_of(run)
    name = choose_stage(run, experiment, stage)
    before, after = experiment.stage[name], replayed_stage(run, name, settings)
    assert isinstance(before, GrpoStage) and isinstance(after, GrpoStage)
    session = Session(experiment, run, stored_status(run.path).seed, observer)
    stored = read_step(session, name, step, before.group)
    recorded = [sample.judgement for sample in stored.samples]
    past = judge_side(stored, before, recorded)
    other = judge_side(stored, after, rewards_after(stored, before, after))
    proof = prove(stored, before, past)
    kept = [None if each.reward is None else each.advantage for each in stored.samples]
    past = replace(past, rewards=tuple(recorded), advantages=tuple(kept))
    own, set_ = (each.model_dump(mode="json", exclude_none=True) for each in (before, after))
    columns = (stored.samples, recorded, past.advantages, other.rewards, other.advantages)
    changes = [
        SampleChange(
            stored.address(each),
            *(then.value, now.value, then.why, now.why),
            *(old, new, sign_change(old, new)),
        )
        for each, then, old, now, new in zip(*columns, strict=True)
    ]
    return Replay(
        run=str(run),
        stage=name,
        step=step,
        settings=tuple(differences(own, set_)),
        proof=proof,
        before=past,
        after=other,
        samples=tuple(changes),
        findings=tuple(findings(proof, after, other)),
    )


def sign_change(before: float | None, after: float | None) -> Sign:
    """What became of the sign of one value."""
    if before is None or after is None:
        return "unknown"
    if before == 0 or after == 0:
        return "silent" if before == after else "raised" if before == 0 else "silenced"
    return "same" if (before > 0) == (after > 0) else "flipped"


def rewards_after(stored: StoredStep, before: GrpoStage, after: GrpoStage) -> list[Reward]:
    """The recorded rewards if the same reward judges, else those of the other one. Recorded rewards
    are kept, because a deadline may pass one time and not another."""
    judging = [(each.reward, each.reward_deadline) for each in (before, after)]
    if judging[0] != judging[1]:
        return score(stored, after)
    recorded = [sample.judgement for sample in stored.samples]
    punishments = [getattr(stage, "overlong", None) for stage in (before, after)]
    if punishments[0] == punishments[1]:
        return recorded
    bare = []
    for reward in recorded:  # without its punishment for length, to the last rounding of the sum
        if reward.value is not None and OVERLONG in reward.parts:
            parts = {name: value for name, value in reward.parts.items() if name != OVERLONG}
            reward = Reward(reward.value - reward.parts[OVERLONG], parts, reward.why)
        bare.append(reward)
    return bare


def replayed_stage(run: RunDirectory, stage: str, settings: Sequence[str]) -> StageSpec:
    """The run's stage with these settings. Raises InputError."""
    forget_changed_files()
    before = experiment_of(run)
    overrides = [whole_path(text, stage, before.stage[stage]) for text in settings]
    after = read_experiment(run.spec, overrides)
    check_names(after, run.root)
    return after.stage[stage]


def whole_path(text: str, name: str, stage: StageSpec) -> str:
    """A setting with its path from the top of the file. Raises InputError."""
    path = tuple(map(str, parse_override(text).path))
    inner = path[2:] if path[0] == "stage" else path
    if path[0] == "stage" and path[1:2] != (name,):
        fix = f"write stage.{name}.KEY, or name another stage with --stage"
        raise InputError(f"only {name!r} is replayed", file=place(text), fix=fix)
    own = type(stage).model_fields
    if not inner or (inner[0] not in JUDGING and inner[0] in {*own, *Experiment.model_fields}):
        problem = "only how samples are judged can be replayed, not how they came about"
        fix = "set " + ", ".join(key for key in JUDGING if key in own)
        raise InputError(problem, file=place(text), field=".".join(path), fix=fix)
    return text if path[0] == "stage" else f"stage.{name}.{text.strip()}"
