"""Builds the training method of a `[stage.NAME]` table, for the shared training loop to run.

Trains nothing itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from assay.data.episode import Context, Episode
from assay.data.renderings.rendering import Loss
from assay.data.row import Row
from assay.data.row_order import packs_of
from assay.errors import look_up
from assay.experiment.stage_tables import (
    DpoStage,
    GrpoStage,
    RceStage,
    RftStage,
    SamplingStage,
    SftStage,
    StageSpec,
    rows_per_step,
)
from assay.experiment.training_settings import Schedule as ScheduleTable
from assay.lab.setup.learner import Encoder, gold_turns, question
from assay.lab.setup.stage_input import StageInput
from assay.lab.setup.stage_pairs import build_dpo, described, pair_sizes
from assay.lab.setup.stored_groups import CANDIDATES, held_out_groups, stored_groups
from assay.rl.advantages import AdvantageOptions
from assay.rl.importance import Importance
from assay.rl.kl import AdaptiveKl
from assay.rl.losses import Clip
from assay.rl.objectives import Grpo as GrpoObjective
from assay.rl.policy import Sampling
from assay.rl.presets import PRESETS, Preset
from assay.rl.signal import may_drop
from assay.tasks.rendered_dialogue import dialogue_of
from assay.tasks.reward_metrics import metrics_of, own_group_metrics
from assay.tasks.reward_table import RewardTable
from assay.tasks.task import Task
from assay.train.dpo import Dpo
from assay.train.grpo import Grpo, GrpoSettings
from assay.train.likelihood import GroupValidation, Rce, Rft, Sft, Validation
from assay.train.loop import FirstBatchCheck, LoopSettings, StepMetrics
from assay.train.sampled_groups import (
    GroupStream,
    MultiTurn,
    Prompts,
    SingleTurn,
    Source,
    StoredGroups,
    StoredPrompts,
)
from assay.train.schedules import Schedule, constant
from assay.train.train_state import Method
from assay.train.update import MicroBatchSize, largest_micro_batch


def loop_settings(stage: StageSpec, steps: int) -> LoopSettings:
    """The loop's part of the stage's table."""
    optimizer = stage.optimizer
    grpo = stage if isinstance(stage, GrpoStage) else None
    return LoopSettings(
        steps=steps,
        learning_rate=optimizer.lr,
        schedule=optimizer.schedule,
        warmup=optimizer.warmup,
        least_rate=optimizer.min_lr or 0.0,
        clip_norm=optimizer.clip_norm,
        micro_tokens=stage.micro_tokens,
        max_skipped_steps=stage.max_skipped_steps,
        max_rollout_gap=grpo.max_rollout_gap if grpo else float("inf"),
    )


def build_method(stage: StageSpec, given: StageInput, steps: int) -> Method:
    """The method of a stage."""
    match stage:
        case SftStage():
            stored = stored_conversations(given, stage.loss_on)
            packs = packs_of_conversations(given.encoder, stored, stage.pack_tokens)
            order = None if packs else given.order
            return Sft(stored, stage.batch, given.seed, order, packs)
        case RftStage():
            groups = group_stream(stage, given, steps)
            likelihood = stage.likelihood_temperature, given.encoder.decode
            return Rft(groups, stage.keep, stage.batch, *likelihood)
        case RceStage():
            return Rce(
                group_stream(stage, given, steps),
                schedule_of(stage.tau, steps),
                stage.likelihood_temperature,
                given.encoder.decode,
                best=stage.curriculum.best if stage.curriculum else (),
                normalise=stage.rewards == "normalised",
                imitate=stage.degenerate == "imitate",
            )
        case DpoStage():
            return build_dpo(stage, given)
        case GrpoStage():
            method = build_grpo(stage, given, steps)
            check = given.first_batch_check
            return method if check is None else FirstBatchCheck(method, check)


def largest_of(stage: StageSpec, method: Method, encoder: Encoder) -> MicroBatchSize:
    """The most that a micro-batch of the stage holds, by its longest rows.

    Of conversations that are sampled only the budget and the longest answer count.
    """
    if isinstance(method, FirstBatchCheck):
        method = method.method
    together, group = rows_per_step(stage), 1
    if isinstance(method, Sft) and method.packs:
        together *= max(map(len, method.packs))
    stored = stored_groups_of(method)
    turns = [(t.context, len(t.actions)) for found in stored for e in found for t in e.turns]
    if isinstance(method, Dpo):
        turns = pair_sizes(method.pairs)
    elif stored:
        together *= max(sum(len(e.turns) for e in found) for found in stored)
    elif isinstance(stage, SamplingStage):
        longest, group = stage.sampling.max_tokens, stage.group
        turns = [(context, longest) for context in asked_contexts(method)] or [((), longest)]
    return largest_micro_batch(
        turns, encoder.size, together=together, budget=stage.micro_tokens, group=group
    )


def stored_groups_of(method: Method) -> Sequence[Sequence[Episode]]:
    """The episodes, by row, that a method learns from without sampling; none of other methods."""
    if isinstance(method, Sft):
        return [(episode,) for episode in method.episodes]
    if isinstance(method, Dpo):
        return [(pair.chosen, pair.rejected) for pair in method.pairs]
    stream = stream_of(method)
    return stream.groups if isinstance(stream, (StoredGroups, StoredPrompts)) else ()


def asked_contexts(method: Method) -> Iterable[Context]:
    """The contexts that a method samples single answers to; none of other methods."""
    stream = stream_of(method)
    if isinstance(stream, Prompts) and isinstance(stream.source, SingleTurn):
        return stream.source.contexts.values()
    return ()


def notes_of(method: Method) -> Iterable[str]:
    """What there is to say of a method's data before it trains."""
    return (described(method),) if isinstance(method, Dpo) else ()


def stream_of(method: Method) -> GroupStream | None:
    """Where a method's groups come from; None for a method without groups."""
    if isinstance(method, (Rft, Grpo)):
        return method.prompts
    return method.groups if isinstance(method, Rce) else None


def schedule_of(value: float | ScheduleTable, steps: int) -> Schedule:
    """A number or a schedule of the stage's table, over the `steps` of the stage."""
    if not isinstance(value, ScheduleTable):
        return constant(value)
    end = value.start if value.end is None else value.end
    return Schedule(value.start, end, value.steps or steps, value.shape or "linear")


def grpo_schedules(stage: GrpoStage, steps: int) -> dict[str, Schedule]:
    """The schedules of the stage's table, by the metric that holds their value."""
    kl = "kl_coef" if stage.kl.where == "loss" else "kl_reward_coef"
    settings = {
        "temperature": stage.sampling.temperature,
        kl: stage.kl.coef,
        "clip_low": stage.clip.low,
        "clip_high": stage.clip.high,
    }
    return {
        name: schedule_of(value, steps)
        for name, value in settings.items()
        if isinstance(value, ScheduleTable)
    }


def with_step_metrics(stage: StageSpec, task: Task, steps: int, method: Method) -> Method:
    """The method of a stage, which also records its schedules and the task's own metrics."""
    schedules: dict[str, Schedule] = {}
    if isinstance(stage, GrpoStage):
        schedules = grpo_schedules(stage, steps)
    elif isinstance(stage, SamplingStage) and isinstance(stage.sampling.temperature, ScheduleTable):
        schedules = {"temperature": schedule_of(stage.sampling.temperature, steps)}
    return StepMetrics(method, schedules, metrics_of(task), own_group_metrics(task))


def build_validation(
    stage: StageSpec, given: StageInput, rows: tuple[Row, ...], due: frozenset[int]
) -> Validation | GroupValidation:
    """The validation of a stage on held-out rows, due after these steps. Of rce, grpo and dpo
    stages it is RCE's loss where all rows hold candidates; else the likelihood of gold answers,
    rendered like its own: masked as those of an SFT stage, by the last answer in other methods.
    """
    if isinstance(stage, RceStage | GrpoStage | DpoStage) and all(
        CANDIDATES in row.extra for row in rows
    ):
        return GroupValidation(held_out_groups(stage, given, rows), due, stage.micro_tokens)
    loss_on = stage.loss_on if isinstance(stage, SftStage) else "last"
    episodes = stored_conversations(replace(given, rows=rows), loss_on)
    return Validation(episodes, due, stage.micro_tokens)


def stored_conversations(given: StageInput, loss_on: Loss) -> tuple[Episode, ...]:
    """The gold conversations of all rows as episodes to imitate."""
    return tuple(
        Episode(row.id, row.id, gold_turns(given.encoder, given.task, row, loss_on))
        for row in given.rows
    )


def packs_of_conversations(
    encoder: Encoder, episodes: Sequence[Episode], pack_tokens: int | None
) -> tuple[tuple[int, ...], ...]:
    """Places of episodes by pack; none without `pack_tokens`. An episode is as long as its last
    turn with all that stands before it."""
    if pack_tokens is None:
        return ()
    turns = [episode.turns[-1] for episode in episodes]
    return packs_of([encoder.size(t.context) + len(t.actions) for t in turns], pack_tokens)


def group_stream(stage: SamplingStage, given: StageInput, steps: int) -> GroupStream:
    """Where the stage's groups come from."""
    return stored_groups(stage, given) if stage.stored else sampled_prompts(stage, given, steps)


def sampled_prompts(stage: SamplingStage, given: StageInput, steps: int) -> Prompts:
    """The stage's stream of prompts with groups of judged completions."""
    return Prompts(
        given.rows,
        sampled_source(stage, given, steps),
        stage.prompts,
        stage.group,
        given.seed,
        stage.max_abstained_share,
        given.order,
    )


def sampled_source(stage: SamplingStage, given: StageInput, steps: int = 1) -> Source:
    """Episodes of several turns where any row is a dialogue, otherwise single answers."""
    assert given.runner is not None
    scheduled = isinstance(stage.sampling.temperature, ScheduleTable)
    temperature = schedule_of(stage.sampling.temperature, steps) if scheduled else None
    score, encoder, task = given.runner.score, given.encoder, given.task
    if any(task.dialogue(row) is not None for row in given.rows):
        return MultiTurn(
            lambda row: encoder.environment(row, dialogue_of(task, row)),
            sampling_of(stage, encoder),
            given.seed,
            score,
            given.positions,
            temperature,
        )
    contexts = {row.id: encoder.prompt(row, question(task, row)) for row in given.rows}
    sampling = sampling_of(stage, encoder)
    return SingleTurn(contexts, sampling, given.seed, score, encoder.decode, temperature)


def sampling_of(stage: SamplingStage, encoder: Encoder) -> Sampling:
    """The stage's sampling settings at its first step."""
    table = stage.sampling
    temperature, cut = first(table.temperature), (table.top_p, table.top_k, table.min_p or 0.0)
    return Sampling(temperature, table.max_tokens, *cut, stop=encoder.stop)


def first(value: float | ScheduleTable) -> float:
    """A setting at the first step."""
    return value.start if isinstance(value, ScheduleTable) else value


def most(value: float | ScheduleTable) -> float:
    """A setting at its greatest."""
    return schedule_of(value, 1).most


def clip_of(stage: GrpoStage, preset: Preset) -> Clip:
    """The preset's clip with the stage's overrides, at the first step."""
    given = {
        name: first(value)
        for name in ("low", "high", "dual", "tau_positive", "tau_negative")
        if (value := getattr(stage.clip, name)) is not None
    }
    return replace(preset.clip, **given)


def build_grpo(stage: GrpoStage, given: StageInput, steps: int) -> Grpo:
    """A preset with the stage's overrides."""
    preset = look_up(PRESETS, stage.algorithm, "algorithm")
    advantage = stage.advantage or preset.advantage
    options = advantage_options(stage, preset)
    coef = first(stage.kl.coef)
    importance = stage.importance.model_dump() if stage.importance else {}
    updates = stage.updates.minibatches * stage.updates.epochs
    objective = GrpoObjective(
        loss=stage.loss or preset.loss,
        clip=clip_of(stage, preset),
        kl_coef=coef if stage.kl.where == "loss" else 0.0,
        kl_estimator=stage.kl.estimator,
        entropy_coef=stage.entropy_coef,
        importance=Importance(**importance),
        several_updates=updates > 1 or stage.stored,
    )
    automatic = may_drop(
        advantage=advantage,
        kl_coef=most(stage.kl.coef),
        entropy_coef=stage.entropy_coef,
        lone=options.lone,
    )
    settings = GrpoSettings(
        advantage=advantage,
        advantage_options=options,
        aggregation=stage.aggregation or preset.aggregation,
        keep_dropped_in_denominator=preset.keep_dropped_in_denominator,
        drop=automatic if stage.drop_without_signal == "auto" else stage.drop_without_signal,
        max_batches=stage.dynamic.max_batches if stage.dynamic else 1,
        minibatches=stage.updates.minibatches,
        epochs=stage.updates.epochs,
        mask_truncated=stage.mask_truncated,
        overlong_buffer=stage.overlong.buffer if stage.overlong else 0,
        overlong_factor=stage.overlong.factor if stage.overlong else 1.0,
        kl_in_reward=coef if stage.kl.where == "reward" else 0.0,
        kl_reward_estimator=stage.kl.estimator,
        temperature=first(stage.sampling.temperature),
        max_tokens=stage.sampling.max_tokens,
        micro_tokens=stage.micro_tokens,
        top_entropy_share=stage.top_entropy_share or 1.0,
        part_weights=part_weights(given),
        thinking=given.encoder.thinking,
        max_bad_steps=stage.max_steps_without_bonus,
        old_at_start=stage.stored,
        normalise=stage.rewards == "normalised",
        full_softmax=stage.sampling.is_full,
    )
    adaptive = stage.kl.adaptive
    return Grpo(
        group_stream(stage, given, steps),
        settings,
        objective,
        given.encoder.decode,
        grpo_schedules(stage, steps),
        AdaptiveKl(**adaptive.model_dump()) if adaptive else None,
    )


def advantage_options(stage: GrpoStage, preset: Preset) -> AdvantageOptions:
    """The preset's options with the stage's in their place."""
    table = stage.advantage_options
    given = table.model_dump(exclude_none=True) if table else {}
    return replace(preset.advantage_options, **given)


def part_weights(given: StageInput) -> dict[str, float]:
    """What the value of each part of a reward table is multiplied by; none of a single reward."""
    table = given.runner.reward if given.runner else None
    if not isinstance(table, RewardTable):
        return {}
    return {name: part.scale for name, part in table.parts.items()}
