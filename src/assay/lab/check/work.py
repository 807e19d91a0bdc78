"""Counts the work of an experiment (steps, tokens, checkpoints) and estimates how long it takes.

The model's speed is measured on this machine with one prefill and a few decoding steps. The low
estimate assumes answers as long as the gold ones and a training pass worth three forward passes;
the high one, answers of `max_tokens` and five. Time for rewards and checkpoints is not included.
"""

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from transformers import AutoModelForCausalLM

from assay.data.episode import tokens_of
from assay.data.splits import packs_of
from assay.errors import Finding, InputError
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import (
    DistillStage,
    DpoStage,
    GrpoStage,
    SamplingStage,
    SftStage,
    StageSpec,
    counts_rows,
    due_steps,
    rows_per_step,
    steps_of,
)
from assay.lab.check.subject import Gold, Number, Seen, Subject, samples, share_of, target_messages
from assay.lab.setup.evaluation import Evaluation
from assay.lab.setup.language_learner import adapt, language_model
from assay.lab.setup.prepare import find_order
from assay.lab.setup.stage_methods import build_dpo, pair_sizes
from assay.models.adapt import Adaptation
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.engine import ROWS
from assay.rollout.engines.register import Sampler
from assay.train.likelihood import Dpo
from assay.train.update import MicroBatchSize, largest_micro_batch

FEW = 0.5
"""A smaller share of groups that give a pair is a warning."""


def pairs_of(subject: Subject, stage: DpoStage) -> Dpo | InputError:
    """The method of a dpo stage, made once for a subject; or what is wrong with its rows."""
    if id(stage) not in subject.pairs:
        try:
            subject.pairs[id(stage)] = build_dpo(stage, subject.session.stage_input(stage))
        except InputError as error:
            subject.pairs[id(stage)] = error
    return subject.pairs[id(stage)]


def preference_pairs(subject: Subject) -> Seen:
    """The pairs of every dpo stage; an error where there is none."""
    for name, stage in subject.session.experiment.stage.items():
        if not isinstance(stage, DpoStage):
            continue
        place, found = f"stage.{name}", pairs_of(subject, stage)
        if isinstance(found, InputError):
            fix = found.fix or "give its rows candidates with scores that differ"
            yield Finding("error", f"{place}: {found.problem}", "", fix)
            continue
        yield from sizes(subject, place, stage, found)
        yield from usefulness(place, found)


def sizes(subject: Subject, place: str, stage: DpoStage, found: Dpo) -> Seen:
    """How many pairs there are, and the longest completion against what the model reads."""
    learner = subject.session.learner
    size = learner.encoder(stage).size
    turns = [turn for p in found.pairs for side in (p.chosen, p.rejected) for turn in side.turns]
    longest = max(size(turn.context) + len(turn.actions) for turn in turns)
    yield Number(place, "pairs", len(found.pairs))
    yield Number(place, "groups with pairs", found.telling)
    yield Number(place, "longest candidate, tokens", longest)
    if learner.positions is not None and longest > learner.positions:
        yield Finding(
            "error",
            f"{place}: a candidate with its prompt is longer than the model reads",
            f"{longest:,} of {learner.positions:,} tokens",
            "leave such rows out: max_prompt_tokens of the data set, or where",
        )


def usefulness(place: str, found: Dpo) -> Seen:
    """The gap of the scores; groups and pairs that teach nothing."""
    yield Number(place, "score gap, mean", sum(p.gap for p in found.pairs) / len(found.pairs))
    silent = found.groups - found.telling
    if silent:
        yield Finding(
            "warning" if found.telling < FEW * found.groups else "note",
            f"{place}: groups whose scores do not differ give no pair",
            share_of(silent, found.groups),
            "nothing, or more candidates of each, or a finer reward",
        )
    actions = [
        [[turn.actions for turn in side.turns] for side in (pair.chosen, pair.rejected)]
        for pair in found.pairs
    ]
    if alike := sum(chosen == rejected for chosen, rejected in actions):
        yield Finding(
            "warning",
            f"{place}: pairs of one completion with two scores teach nothing",
            share_of(alike, len(found.pairs)),
            "judge each completion more often, or leave such groups out",
        )


@dataclass(frozen=True, slots=True)
class StageWork:
    """The sizes of a stage, from the lengths of its gold answers."""

    steps: int
    prompts: int
    """Prompts of one step; the rows of one step for SFT."""
    group: int
    """Answers to each of them."""
    prompt: float
    """Mean tokens of a prompt."""
    prompt_most: int
    answer: float
    """Mean tokens of a gold answer."""
    answer_most: int
    """Tokens of the longest answer: `max_tokens` where answers are sampled."""
    checkpoints: int
    """Checkpoints that the stage leaves."""
    largest: MicroBatchSize

    def tokens(self, answer: float) -> float:
        """Tokens of one step's training passes, prompts once, with answers of this length."""
        return self.prompts * (self.prompt + self.group * answer)


def stage_work(subject: Subject, stage: StageSpec) -> StageWork | None:
    """The work of a stage; None where no row has a gold answer, or a pair, to measure. The answers
    of a dpo stage are those of its pairs."""
    per_step, group = rows_per_step(stage), stage.group if isinstance(stage, SamplingStage) else 1
    if isinstance(stage, DpoStage):
        found = pairs_of(subject, stage)
        if not isinstance(found, Dpo):
            return None
        size, group = subject.session.learner.encoder(stage).size, 2
        turns = pair_sizes(found.pairs)
        prompts = [size(context) for context, _ in turns]
        sides = [side for pair in found.pairs for side in (pair.chosen, pair.rejected)]
        answers = [sum(len(turn.actions) for turn in side.turns) for side in sides]
        largest = largest_micro_batch(turns, size, together=per_step, budget=stage.micro_tokens)
    else:
        golds = subject.golds_of_data(stage.data, stage).answers
        if not golds:
            return None
        prompts = [gold.prompt_size for gold in golds]
        answers = [len(gold.actions) for gold in golds]
        if not counts_rows(stage):
            per_step = round(per_step * len(golds) / visits_of(subject, stage))
        largest = largest_of_golds(subject, stage, golds)
    steps, checkpoints = (
        steps_of(stage, visits_of(subject, stage)),
        checkpoint_count(subject, stage),
    )
    return StageWork(
        steps=steps,
        prompts=per_step,
        group=group,
        prompt=sum(prompts) / len(prompts),
        prompt_most=max(prompts),
        answer=sum(answers) / len(answers),
        answer_most=stage.sampling.max_tokens if samples(stage) else max(answers),
        checkpoints=checkpoints,
        largest=largest,
    )


def visits_of(subject: Subject, stage: StageSpec) -> int:
    """Rows, pairs or packs of an epoch; 1 where there is none."""
    if isinstance(stage, DpoStage):
        found = pairs_of(subject, stage)
        return len(found.pairs) if isinstance(found, Dpo) else 1
    if packs := packs_of_golds(subject, stage):
        return len(packs)
    return find_order(subject.session.sets, stage.data).count


def packs_of_golds(subject: Subject, stage: StageSpec) -> tuple[tuple[int, ...], ...]:
    """Places of gold answers by pack; none of a stage without packs."""
    if not isinstance(stage, SftStage) or stage.pack_tokens is None:
        return ()
    golds = subject.golds_of_data(stage.data, stage).answers
    return packs_of([gold.context_size + len(gold.actions) for gold in golds], stage.pack_tokens)


def largest_of_golds(subject: Subject, stage: StageSpec, golds: Sequence[Gold]) -> MicroBatchSize:
    """The stage's largest micro-batch, see `stage_methods.largest_of`; sampled answers are as long
    as they may be. Where several messages of a row are trained, all tokens may be scored."""
    encoder = subject.session.learner.encoder(stage)
    group = stage.group if isinstance(stage, SamplingStage) else 1
    together, budget = rows_per_step(stage), stage.micro_tokens
    together *= max(map(len, packs_of_golds(subject, stage)), default=1)
    sampled = stage.sampling.max_tokens if samples(stage) else None
    turns = [(gold.context, sampled or len(gold.actions)) for gold in golds]
    found = largest_micro_batch(turns, encoder.size, together=together, budget=budget, group=group)
    if isinstance(stage, SftStage) and stage.loss_on == "all":
        task = subject.session.task
        said = [[m.role for m in target_messages(task, gold.row) or ()] for gold in golds]
        if any(roles.count("assistant") > 1 for roles in said):
            return replace(found, scored=found.tokens)
    return found


def validation_tokens(subject: Subject, stage: StageSpec) -> int:
    """Tokens of all measurements of a stage's validation loss."""
    if stage.validation is None:
        return 0
    golds = subject.golds_of_data(stage.validation, stage).answers
    looks = len(due_steps(stage.validation_every, stage, visits_of(subject, stage)))
    return looks * sum(gold.context_size + len(gold.actions) for gold in golds)


def checkpoint_count(subject: Subject, stage: StageSpec) -> int:
    """Checkpoints that a stage leaves: every so many steps, and after the last."""
    return len(due_steps(stage.checkpoint_every, stage, visits_of(subject, stage)))


def asked_items(experiment: Experiment, evaluation: Evaluation, subject: Subject) -> list[int]:
    """Number of items for each measured checkpoint. A selecting evaluation measures the stages'
    starts as well."""
    references = [parse_checkpoint(text) for text in evaluation.spec.checkpoints]
    stages = {reference.stage for reference in references if reference and reference.stage}
    items, fewer = len(evaluation.items), evaluation.spec.fewer
    asked = [items] * (len(stages) if evaluation.spec.role == "select" else 0)
    for reference in references:
        count = 1
        if reference is not None and reference.stage is not None and reference.which == "all":
            stage = experiment.stage[reference.stage]
            count = checkpoint_count(subject, stage)
        asked += [fewer.get((reference and reference.stage) or "base", items)] * count
    return asked


def adaptation_of(subject: Subject, stage: StageSpec) -> Adaptation:
    """The trained parameters of the stage, found on a model without storage. Raises InputError as
    the stage itself would."""
    with torch.device("meta"):
        learner = language_model(subject.session.learner, "estimating memory")
        model = AutoModelForCausalLM.from_config(learner.base.config)
        return adapt(model, stage)[1]


PROMPT = 256
"""Tokens that are prefilled to measure."""
FEW_ROWS = 8
"""Rows of the smaller batch that is measured."""
STEPS = 3
"""Tokens that every row decodes to measure."""
TRIES, LONGEST = 3, 3.0
"""Times that a measurement is made, while these together took fewer seconds."""
PASSES = (3, 5)
"""Forward passes that a forward and backward pass is worth, low and high."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds of this model on this machine."""

    token: float
    """Per prompt token in a forward pass."""
    step: float
    """Per decoding step of a batch, whatever its number of rows."""
    row: float
    """Added per row of the batch."""


def speed(subject: Subject) -> Seen:
    """Seconds of every stage and evaluation for one seed."""
    session = subject.session
    stages = {
        name: (stage, work)
        for name, stage in session.experiment.stage.items()
        if stage.trainer is None and (work := stage_work(subject, stage)) is not None
    }
    elsewhere = any(stage.trainer for stage in session.experiment.stage.values())
    found = measure(subject)
    if found is None:
        return
    spans: dict[str, tuple[float, float]] = {}
    for name, (stage, work) in stages.items():
        ends = stage_seconds(stage, work, found)
        looks = found.token * validation_tokens(subject, stage)
        ends = ends[0] + looks, ends[1] + looks
        spans[f"stage.{name}"] = ends
    for name, evaluation in session.evaluations.items():
        ends = evaluation_seconds(subject, evaluation, found)
        spans[f"evaluate.{name}"] = ends
    for place, ends in spans.items():
        yield Number(place, "seconds_low", ends[0])
        yield Number(place, "seconds_high", ends[1])
    total = [sum(ends[side] for ends in spans.values()) for side in (0, 1)]
    seeds = len(session.experiment.seeds)
    decode = found.step + ROWS * found.row
    yield Finding(
        "note",
        f"a run takes roughly {total[0] / 60:.0f} to {total[1] / 60:.0f} minutes here"
        + (f", times {seeds} seeds" if seeds > 1 else "")
        + (", beside what other tools train" if elsewhere else ""),
        f"{found.token * 1e3:.2f} ms a prompt token, {decode * 1e3:.0f} ms for a token of "
        f"{ROWS} answers, measured; answers as long as the gold ones, to max_tokens",
        "fewer steps, items or repeats if that is too long",
    )


def measure(subject: Subject) -> Speed | None:
    """The speed of the base model; None where there is nothing to run it on."""
    session = subject.session
    golds = [
        gold
        for stage in session.experiment.stage.values()
        for gold in subject.golds_of_data(stage.data, stage).answers
    ]
    stored = [
        context
        for stage in session.experiment.stage.values()
        if isinstance(stage, DpoStage) and isinstance(found := pairs_of(subject, stage), Dpo)
        for context, _ in pair_sizes(found.pairs)
    ]
    asked = [*(gold.prompt for gold in golds), *stored]
    contexts = [tokens_of(context) for context in asked] or [
        tokens_of(context) for made in session.evaluations.values() for context in made.contexts
    ]
    if not contexts:
        return None
    room = (session.learner.positions or PROMPT) - 1 - STEPS
    prompt = max(contexts, key=len)[: max(1, min(PROMPT, room))]
    shelf = language_model(session.learner, "measuring speed").shelf(session.run)
    model = shelf.load_base().model
    sampler = shelf.sampler(model, frozenset())
    sampled_seconds(sampler, prompt[:FEW_ROWS], FEW_ROWS, 2)  # the first passes set things up
    prefill = sampled_seconds(sampler, prompt, FEW_ROWS, 1)
    few, many = (
        max(sampled_seconds(sampler, prompt, rows, 1 + STEPS) - prefill, 0.0) / STEPS
        for rows in (FEW_ROWS, ROWS)
    )
    del model, sampler
    gc.collect()
    row = max(many - few, 0.0) / (ROWS - FEW_ROWS)
    return Speed(prefill / len(prompt), max(few - FEW_ROWS * row, 0.0), row)


def sampled_seconds(sampler: Sampler, prompt: tuple[int, ...], rows: int, tokens: int) -> float:
    """Seconds to prefill one prompt and decode this many rows and tokens after it: the least of
    some tries, because what else runs here holds a short try up many times over."""
    keys = [SampleKey(0, "speed", sample) for sample in range(rows)]
    tries: list[float] = []
    while len(tries) < TRIES and sum(tries) < LONGEST:
        started = time.perf_counter()
        sampler.sample([prompt] * rows, keys, Sampling(1.0, tokens))
        tries.append(time.perf_counter() - started)
    return min(tries)


def stage_seconds(stage: StageSpec, work: StageWork, found: Speed) -> tuple[float, float]:
    """Low and high end of a stage's rollouts and updates."""
    ends = []
    lengths = min(work.answer, work.answer_most), work.answer_most
    if isinstance(stage, DpoStage):
        lengths = work.answer, work.answer  # They are written already.
    for passes, answer in zip(PASSES, lengths, strict=True):
        step = passes * work.tokens(answer) * found.token
        if isinstance(stage, DpoStage):
            step += work.tokens(answer) * found.token  # The reference's scores.
        if isinstance(stage, GrpoStage):
            step *= stage.updates.epochs
            # Scores of the reference; entropies before the update.
            forwards = stage.keeps_start + (stage.top_entropy_share is not None)
            step += forwards * work.tokens(answer) * found.token
        if isinstance(stage, DistillStage):
            step += work.tokens(answer) * found.token  # A teacher as large as the student.
        if samples(stage):
            step += answering_seconds(work.prompts, work.group, work.prompt, answer, found)
        ends.append(work.steps * step)
    return ends[0], ends[1]


def evaluation_seconds(
    subject: Subject, evaluation: Evaluation, found: Speed
) -> tuple[float, float]:
    """Low and high end of an evaluation on all its checkpoints."""
    golds = subject.golds_of_items(evaluation).answers
    limit = evaluation.spec.sampling.max_tokens
    gold = sum(len(g.actions) for g in golds) / len(golds) if golds else limit
    lengths = [len(tokens_of(context)) for context in evaluation.contexts]
    prompt = sum(lengths) / max(len(lengths), 1)
    asked = asked_items(subject.session.experiment, evaluation, subject)
    low, high = (
        sum(
            answering_seconds(items, evaluation.spec.repeats, prompt, answer, found)
            for items in asked
        )
        for answer in (min(gold, limit), limit)
    )
    return low, high


def answering_seconds(
    prompts: int, group: int, prompt: float, answer: float, found: Speed
) -> float:
    """Seconds to sample `group` answers to each of some prompts, a full batch at a time."""
    rows = prompts * group
    waves = -(-rows // ROWS)
    return prompts * prompt * found.token + answer * (waves * found.step + rows * found.row)
