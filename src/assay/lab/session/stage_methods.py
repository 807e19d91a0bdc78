"""Builds the training method of a `[stage.NAME]` table, for the shared training loop to run.

Groups and pairs are sampled by the method, or made of the candidates that rows hold, which are
judged by what they hold. Nothing is trained, sampled or asked here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, cast

from assay.data.episode import Context, Episode, Reward
from assay.data.renderings.packed_rows import remembered
from assay.data.renderings.rendering import Loss
from assay.data.row import Row
from assay.data.splits import Fixed, RowOrder
from assay.errors import InputError
from assay.experiment.stage_tables import (
    DistillStage,
    DpoStage,
    GrpoStage,
    RceStage,
    RftStage,
    SamplingStage,
    SftStage,
    StageSpec,
    StoredStage,
    rows_per_step,
    schedules_in,
)
from assay.experiment.training_settings import ScheduleSpec
from assay.lab.models.learner import (
    Encoder,
    drawn_by,
    each_encoded,
    encoded_by,
    gold_turns,
    question,
    stored_turns,
)
from assay.lab.monitor.observer import Observer
from assay.lab.session.reward_parts import rewards_in
from assay.models.distilling import Teacher
from assay.rl.packed import Packed
from assay.rl.policy import Sampling
from assay.rl.preference import Preference
from assay.tasks.rendered_dialogue import dialogue_of
from assay.tasks.reward_metrics import metrics_of
from assay.tasks.reward_table import RewardTable, is_right, not_in_facts, stored_reward
from assay.tasks.task import RewardFunction, Task
from assay.train.checkpoint import Method, Score
from assay.train.grpo import Grpo, first, objective_of, schedule_of
from assay.train.likelihood import (
    Distill,
    Dpo,
    Rce,
    Rft,
    Sft,
    Tell,
    Validation,
    judged_members,
    likelihood_batch,
    telling_batch,
)
from assay.train.loop import Check as BatchCheck
from assay.train.loop import FirstBatchCheck, LoopSettings, StepMetrics
from assay.train.pair_choice import Pair, choose_pairs, groups_with_pairs, pair_count
from assay.train.sampled_groups import (
    GroupStream,
    MultiTurn,
    PromptStream,
    SingleTurn,
    Source,
    StoredGroups,
    StoredPrompts,
    value_of,
)
from assay.train.update import MicroBatchSize, Schedule, largest_micro_batch, packs_of

CANDIDATES = "candidates"
"""The field of a row's `extra`: a list of {text, reward, facts}."""
Judge = RewardFunction | RewardTable


@dataclass(frozen=True)
class StageInput:
    """The inputs that a method is built from."""

    task: Task
    rows: tuple[Row, ...]
    encoder: Encoder
    seed: int
    judge: Judge | None = None
    """The stage's reward; None: stored candidates carry theirs, or nothing is judged."""
    score: Score | None = None
    """Judges what is sampled."""
    positions: int | None = None
    """Tokens that the learner can read at once; None where nothing bounds them."""
    first_batch_check: BatchCheck | None = None
    """Checks the first update of a GRPO stage."""
    order: RowOrder | None = None
    """Order in which the stage visits the rows; None: shuffled anew each epoch."""
    tell: Tell | None = None
    """Asks the teacher of a distill stage."""
    observer: Observer = Observer()
    """Told how far the rows are written as tokens."""


def loop_settings(stage: StageSpec, steps: int) -> LoopSettings:
    """The loop's part of the stage's table."""
    optimizer = stage.optimizer
    grpo = stage if isinstance(stage, GrpoStage) else None
    return LoopSettings(
        steps=steps,
        lr=optimizer.lr,
        schedule=optimizer.schedule,
        warmup=optimizer.warmup,
        min_lr=optimizer.min_lr or 0.0,
        clip_norm=optimizer.clip_norm,
        micro_tokens=stage.micro_tokens,
        max_skipped_steps=stage.max_skipped_steps,
        max_rollout_gap=grpo.max_rollout_gap if grpo else float("inf"),
    )


def build_sft(stage: SftStage, inputs: StageInput, steps: int) -> Sft:
    """The stage's gold conversations, in packs where it asks for them."""
    stored = StoredEpisodes(inputs, stage.loss_on)
    packs = packs_of_conversations(stored, stage.pack_tokens)
    return Sft(stored, stage.batch, inputs.seed, None if packs else inputs.order, packs)


def build_rft(stage: RftStage, inputs: StageInput, steps: int) -> Rft:
    """Rejection fine-tuning on the stage's groups."""
    groups = group_stream(stage, inputs, steps)
    likelihood = stage.likelihood_temperature, inputs.encoder.decode
    return Rft(groups, stage.keep, stage.batch, *likelihood)


def build_rce(stage: RceStage, inputs: StageInput, steps: int) -> Rce:
    """Reward-weighted fine-tuning on the stage's groups."""
    return Rce(
        group_stream(stage, inputs, steps),
        schedule_of(stage.tau, steps),
        stage.likelihood_temperature,
        inputs.encoder.decode,
        best=(stage.curriculum and stage.curriculum.best) or (),
        normalise=stage.rewards == "normalised",
        imitate=stage.degenerate == "imitate",
    )


def build_distill(stage: DistillStage, inputs: StageInput, steps: int) -> Distill:
    """The student's own completions and the rows' answers, and who is asked about them."""
    tell, judged = inputs.tell, inputs.score is not None
    assert tell is not None
    if not judged:
        inputs = replace(inputs, score=lambda pairs: [Reward(None, why="not judged")] * len(pairs))
    prompts = sampled_prompts(stage, inputs, steps)
    stored = StoredEpisodes(inputs, "last") if stage.lmbda < 1 else ()
    return Distill(
        prompts if judged else replace(prompts, max_abstained_share=1.0),
        {episode.group: episode for episode in stored},
        stage.lmbda,
        Teacher(stage.beta, stage.loss_temperature, stage.loss_top_k),
        tell,
        inputs.encoder.decode,
        schedule_of(stage.sampling.temperature, steps),
        stage.sampling.is_full,
        judged,
    )


def build_checked_grpo(stage: GrpoStage, inputs: StageInput, steps: int) -> Method:
    """GRPO whose first update is checked, where the learner can check it."""
    method, check = build_grpo(stage, inputs, steps), inputs.first_batch_check
    return method if check is None else FirstBatchCheck(method, check)


def largest_of(stage: StageSpec, method: Method, encoder: Encoder) -> MicroBatchSize:
    """The most that a micro-batch of the stage holds, by its longest rows. Of conversations that
    are sampled only the budget and the longest answer count."""
    if isinstance(method, FirstBatchCheck):
        method = method.method
    together, group = rows_per_step(stage), 1
    if isinstance(method, Sft) and method.packs:
        together *= max(map(len, method.packs))
    stored = stored_groups_of(method)
    size: Any = encoder.size
    turns = list[tuple[Context, int]]()
    if isinstance(method, Dpo):
        turns = pair_sizes(method.pairs)
    elif isinstance(method, Sft):
        measured = cast(StoredEpisodes, method.episodes).turns
        size, turns = itemgetter(0), [((s, k), n) for own in measured for s, k, n in own]
        together *= max(map(len, measured))
    elif stored:
        turns = [(t.context, len(t.actions)) for group in stored for e in group for t in e.turns]
        together *= max(sum(len(e.turns) for e in episodes) for episodes in stored)
    elif isinstance(stage, SamplingStage):
        longest, group = stage.sampling.max_tokens, stage.group
        if isinstance(method, Distill):
            lengths = [len(t.actions) for e in method.stored.values() for t in e.turns]
            longest = max([longest, *lengths])
        stream, contexts = stream_of(method), []
        if isinstance(stream, PromptStream) and isinstance(stream.source, SingleTurn):
            contexts = [*stream.source.contexts.values()]
        turns = [(context, longest) for context in contexts] or [((), longest)]
    return largest_micro_batch(
        turns, cast(Any, size), together=together, budget=stage.micro_tokens, group=group
    )


def stored_groups_of(method: Method) -> Sequence[Sequence[Episode]]:
    """The episodes, by row, that a method learns from without sampling; none of SFT and others."""
    if isinstance(method, Dpo):
        return [(pair.chosen, pair.rejected) for pair in method.pairs]
    stream = stream_of(method)
    return stream.groups if isinstance(stream, (StoredGroups, StoredPrompts)) else ()


def notes_of(method: Method) -> Iterable[str]:
    """What there is to say of a method's data before it trains: the pairs of a dpo stage, and the
    groups that give none."""
    if not isinstance(method, Dpo):
        return ()
    words = f"{len(method.pairs):,} pairs of {method.telling:,} groups"
    if silent := method.groups - method.telling:
        words += f"; {silent:,} groups have no two scores that differ"
    return (words,)


def stream_of(method: Method) -> GroupStream | None:
    """Where a method's groups come from; None for a method without groups."""
    if isinstance(method, (Rft, Grpo, Distill)):
        return method.prompts
    return method.groups if isinstance(method, Rce) else None


def with_step_metrics(stage: StageSpec, task: Task, steps: int, method: Method) -> Method:
    """The method of a stage, which also records its schedules and the task's own metrics."""
    return StepMetrics(method, schedules_of(stage, steps), metrics_of(task), task.group_metrics)


def schedules_of(stage: StageSpec, steps: int) -> dict[str, Schedule]:
    """The schedules that steps record, by the metric that holds their value; `tau` is always
    recorded."""
    metrics = {"sampling.temperature": "temperature", "kl.coef": "kl_coef"}
    metrics |= {f"clip.{bound}": f"clip_{bound}" for bound in ("low", "high")}
    if isinstance(stage, GrpoStage) and stage.kl.where == "reward":
        metrics["kl.coef"] = "kl_reward_coef"
    schedules = schedules_in(stage)
    return {metrics[at]: schedule_of(each, steps) for at, each in schedules if at in metrics}


def build_validation(
    stage: StageSpec, inputs: StageInput, rows: tuple[Row, ...], due: frozenset[int]
) -> Validation:
    """The validation of a stage on held-out rows, due after these steps. Of rce, grpo and dpo
    stages it is RCE's loss where all rows hold candidates; else the likelihood of gold answers,
    rendered like its own: masked as those of an SFT stage, by the last answer in other methods.
    """
    if isinstance(stage, RceStage | GrpoStage | DpoStage) and all(
        CANDIDATES in row.extra for row in rows
    ):
        return Validation(held_out_batch(stage, inputs, rows), due, stage.micro_tokens, groups=True)
    loss_on = stage.loss_on if isinstance(stage, SftStage) else "last"
    episodes = StoredEpisodes(replace(inputs, rows=rows), loss_on)
    return Validation(likelihood_batch(episodes), due, stage.micro_tokens)


class StoredEpisodes(Sequence[Episode]):
    """The gold conversations of all rows as episodes to imitate, each made when it is asked for:
    all at once they take many times the memory of their tokens. Raises what `gold_turns` raises."""

    def __init__(self, inputs: StageInput, loss_on: Loss):
        encoder, self._rows = inputs.encoder, inputs.rows
        self._make = partial(gold_turns, encoder, inputs.task, loss_on=loss_on)

        def measured(row: Row) -> list[tuple[int, int, int]]:
            made = [(turn.context, len(turn.actions)) for turn in self._make(row)]
            return [(encoder.size(context), hash(context), count) for context, count in made]

        each = partial(each_encoded, encoder, self._rows, measured, inputs.observer)
        made_by = encoded_by(inputs.task, encoder)
        self.turns = remembered(f"turns of {loss_on}", self._rows, made_by, lambda: [*each()])
        """By row: the size of each turn's context, what is the same for equal ones, and how many
        actions follow."""

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        row = self._rows[place]
        return Episode(row.id, row.id, self._make(row))


def packs_of_conversations(
    episodes: StoredEpisodes, pack_tokens: int | None
) -> tuple[tuple[int, ...], ...]:
    """Places of episodes by pack; none without `pack_tokens`. An episode is as long as its last
    turn with all that stands before it."""
    if pack_tokens is None:
        return ()
    return packs_of([own[-1][0] + own[-1][2] for own in episodes.turns], pack_tokens)


def group_stream(stage: SamplingStage, inputs: StageInput, steps: int) -> GroupStream:
    """Where the stage's groups come from: prompts, or stored candidates, a group for each row.
    Raises InputError for a row without any and where no group is left."""
    if not stage.stored:
        return sampled_prompts(stage, inputs, steps)
    groups = judged_groups(stage, inputs)
    # RCE takes the best itself, after it has looked at the whole group.
    own = None if isinstance(stage, RceStage) else stage.curriculum
    best = (own and own.best) or ()
    return StoredGroups(groups, stage.prompts, inputs.seed, inputs.order, best)


def sampled_prompts(stage: SamplingStage, inputs: StageInput, steps: int) -> PromptStream:
    """The stage's stream of prompts with groups of judged completions."""
    return PromptStream(
        inputs.rows,
        sampled_source(stage, inputs, steps),
        stage.prompts,
        stage.group,
        inputs.seed,
        stage.max_abstained_share,
        inputs.order,
    )


def sampled_source(stage: SamplingStage, inputs: StageInput, steps: int = 1) -> Source:
    """Episodes of several turns where any row is a dialogue, otherwise single answers."""
    score, encoder, task = inputs.score, inputs.encoder, inputs.task
    assert score is not None
    scheduled = isinstance(stage.sampling.temperature, ScheduleSpec)
    temperature = schedule_of(stage.sampling.temperature, steps) if scheduled else None
    if any(task.dialogue(row) is not None for row in inputs.rows):
        return MultiTurn(
            lambda row: encoder.environment(row, dialogue_of(task, row)),
            sampling_of(stage, encoder),
            inputs.seed,
            score,
            inputs.positions,
            temperature,
        )
    contexts = {row.id: encoder.prompt(row, question(task, row)) for row in inputs.rows}
    sampling = sampling_of(stage, encoder)
    return SingleTurn(contexts, sampling, inputs.seed, score, encoder.decode, temperature)


def sampling_of(stage: SamplingStage, encoder: Encoder) -> Sampling:
    """The stage's sampling settings at its first step."""
    drawn = drawn_by(stage.sampling, first(stage.sampling.temperature))
    return replace(drawn, stop=encoder.stop)


def build_grpo(stage: GrpoStage, inputs: StageInput, steps: int) -> Grpo:
    """A preset with the stage's overrides."""
    parts = inputs.judge.parts if isinstance(inputs.judge, RewardTable) else {}
    return Grpo(
        group_stream(stage, inputs, steps),
        stage,
        objective_of(stage),
        inputs.encoder.decode,
        inputs.encoder.thinking,
        {name: part.scale for name, part in parts.items()},
        steps,
    )


def judged_groups(stage: StoredStage, inputs: StageInput) -> tuple[tuple[Episode, ...], ...]:
    """The judged candidates of each row, none where the stage leaves the group out. Raises
    InputError for a row without any and where no group is left."""
    groups = tuple(group_of(stage, inputs, row) for row in inputs.rows)
    if not any(judged_members(groups)):
        why = [e.reward.why for group in groups for e in group if e.reward]
        problem = "no stored candidate is left to learn from"
        problem += f"; most often: {max(set(why), key=why.count)}" if why else ""
        fix = "generate others, or loosen require_positive or the reward's options"
        raise InputError(problem, field="data", fix=fix)
    return groups


def group_of(stage: StoredStage, inputs: StageInput, row: Row) -> tuple[Episode, ...]:
    """The judged candidates of a row; none where the stage leaves the group out."""
    judge = inputs.judge
    if (
        not stage.stored
        and judge is not None
        and any(map(not_in_facts, rewards_in(judge).values()))
    ):
        judge = None  # What is sampled is judged by a model; held-out candidates carry a reward.
    rewards = candidate_rewards(stage, judge, row)
    if not rewards:
        return ()
    turns = stored_turns(inputs.encoder, inputs.task, row, candidates_of(row))
    return tuple(
        Episode(f"{row.id}#{n}", row.id, own, reward)
        for n, (own, reward) in enumerate(zip(turns, rewards, strict=True))
    )


def candidate_rewards(stage: StoredStage, judge: Judge | None, row: Row) -> list[Reward]:
    """The reward of each candidate of a row, or nothing where the stage leaves the group out."""
    rewards = [stored_reward(judge, row, candidate) for candidate in candidates_of(row)]
    return [] if stage.require_positive and not any(map(is_right, rewards)) else rewards


def candidates_of(row: Row) -> Sequence[Mapping[str, Any]]:
    """The candidates that a row holds. Raises InputError where there is none."""
    candidates = row.extra.get(CANDIDATES)
    if not candidates:
        fix = "give each row a list of {text, reward}, or sample them"
        raise InputError("no candidates", file=row.origin, field=CANDIDATES, fix=fix)
    return candidates


def held_out_batch(stage: StoredStage, inputs: StageInput, rows: Sequence[Row]) -> Packed:
    """The groups of held-out rows that a validation can tell good from bad by: those whose rewards
    differ. Raises InputError where there is none."""
    groups = [group_of(stage, inputs, row) for row in rows]
    batch = telling_batch(groups)
    if batch is None:
        problem = "no held-out group has rewards that differ"
        raise InputError(problem, field="validation", fix="hold other rows out")
    return batch


def build_dpo(stage: DpoStage, inputs: StageInput, steps: int = 1) -> Dpo:
    """Pairs of stored candidates. Raises InputError for groups without pairs and scores out of
    range, and what `judged_groups` does."""
    groups: Sequence[tuple[Episode, ...]] = judged_groups(stage, inputs)
    if isinstance(inputs.order, Fixed):
        groups = [groups[place] for place in inputs.order.places]
    pairs = choose_pairs(groups, stage.pairs, inputs.seed)
    if not pairs:
        raise no_pairs(len(groups))
    values = [[value_of(episode) for episode in group] for group in groups]
    return Dpo(
        tuple(scored(stage, pair) for pair in pairs),
        stage.batch,
        inputs.seed,
        Preference(stage.beta, stage.label_smoothing),
        stage.scores,
        stage.micro_tokens,
        groups=len(groups),
        telling=groups_with_pairs(values, stage.pairs),
        order=Fixed(tuple(range(len(pairs)))) if isinstance(inputs.order, Fixed) else None,
    )


def scored(stage: DpoStage, pair: Pair) -> Pair:
    """The pair with its scores between 0 and 1 where they weigh it. Raises InputError."""
    if stage.scores == "plain":
        return pair
    low, high = stage.score_range or (0.0, 1.0)
    for episode, score in zip((pair.chosen, pair.rejected), pair.scores, strict=True):
        if not low <= score <= high:
            problem = f"Score-DPO weighs by scores from {low:g} to {high:g}, and {episode.id} has"
            fix = 'set score_range to what the reward gives, or scores = "plain"'
            raise InputError(f"{problem} {score:g}", field="scores", fix=fix)
    better, worse = ((score - low) / (high - low) for score in pair.scores)
    return replace(pair, scores=(better, worse))


def visits_per_epoch(stage: StageSpec, inputs: StageInput) -> int:
    """Rows, pairs or packs that one epoch of a stage visits. Raises what judging candidates raises,
    and reading rows."""
    if isinstance(stage, SftStage) and stage.pack_tokens is not None:
        stored = StoredEpisodes(inputs, stage.loss_on)
        return len(packs_of_conversations(stored, stage.pack_tokens))
    if not isinstance(stage, DpoStage):
        return len(inputs.rows) if inputs.order is None else inputs.order.count
    judged = [candidate_rewards(stage, inputs.judge, row) for row in inputs.rows]
    count = pair_count([[r.value for r in rewards] for rewards in judged], stage.pairs)
    if not count:
        raise no_pairs(len(inputs.rows))
    return count


def no_pairs(groups: int) -> InputError:
    """None of so many groups gives a pair."""
    problem = f"no group of {groups} has two candidates whose scores differ enough to make a pair"
    return InputError(problem, field="data", fix="take other groups, or lower pairs.least_gap")


def pair_sizes(pairs: Sequence[Pair]) -> list[tuple[Context, int]]:
    """For each pair its context and the actions of both completions, which no budget cuts."""
    return [
        (pair.chosen.turns[0].context, sum(len(t.actions) for e in sides for t in e.turns))
        for pair in pairs
        for sides in [(pair.chosen, pair.rejected)]
    ]


def build_method(stage: StageSpec, inputs: StageInput, steps: int) -> Method:
    """The method of a stage."""
    return METHODS[stage.method](stage, inputs, steps)


METHODS: Mapping[str, Callable[[Any, StageInput, int], Method]] = {
    "sft": build_sft,
    "rft": build_rft,
    "rce": build_rce,
    "grpo": build_checked_grpo,
    "distill": build_distill,
    "dpo": build_dpo,
}
"""Builder of a stage's method by the name that its table has."""
