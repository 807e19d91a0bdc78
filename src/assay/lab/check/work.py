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

from assay.data.episode import Context, tokens_of
from assay.data.row_order import packs_of
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
    """The pairs of every dpo stage and what they teach; an error where there is none, and where a
    completion is longer than the model reads."""
    learner = subject.session.learner
    for name, stage in subject.session.experiment.stage.items():
        if not isinstance(stage, DpoStage):
            continue
        place, found = f"stage.{name}", pairs_of(subject, stage)
        if isinstance(found, InputError):
            fix = found.fix or "give its rows candidates with scores that differ"
            yield Finding("error", f"{place}: {found.problem}", "", fix)
            continue
        pairs, size = found.pairs, learner.encoder(stage).size
        turns = [turn for p in pairs for side in (p.chosen, p.rejected) for turn in side.turns]
        longest = max(size(turn.context) + len(turn.actions) for turn in turns)
        yield Number(place, "pairs", len(pairs))
        yield Number(place, "groups with pairs", found.telling)
        yield Number(place, "longest candidate, tokens", longest)
        yield Number(place, "score gap, mean", sum(p.gap for p in pairs) / len(pairs))
        if learner.positions is not None and longest > learner.positions:
            what = f"{place}: a candidate with its prompt is longer than the model reads"
            fix = "leave such rows out: max_prompt_tokens of the data set, or where"
            yield Finding("error", what, f"{longest:,} of {learner.positions:,} tokens", fix)
        if silent := found.groups - found.telling:
            what = f"{place}: groups whose scores do not differ give no pair"
            fix = "nothing, or more candidates of each, or a finer reward"
            few = found.telling < FEW * found.groups
            told = share_of(silent, found.groups)
            yield Finding("warning" if few else "note", what, told, fix)
        actions = [
            [[turn.actions for turn in side.turns] for side in (p.chosen, p.rejected)]
            for p in pairs
        ]
        if alike := sum(chosen == rejected for chosen, rejected in actions):
            what = f"{place}: pairs of one completion with two scores teach nothing"
            fix = "judge each completion more often, or leave such groups out"
            yield Finding("warning", what, share_of(alike, len(pairs)), fix)


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
    return StageWork(
        steps=steps_of(stage, visits_of(subject, stage)),
        prompts=per_step,
        group=group,
        prompt=sum(prompts) / len(prompts),
        prompt_most=max(prompts),
        answer=sum(answers) / len(answers),
        answer_most=stage.sampling.max_tokens if samples(stage) else max(answers),
        checkpoints=checkpoint_count(subject, stage),
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
    found = measure(subject)
    if found is None:
        return
    spans: dict[str, tuple[float, float]] = {}
    for name, (stage, work) in stages.items():
        looks = 0.0
        if stage.validation is not None:
            golds = subject.golds_of_data(stage.validation, stage).answers
            times = len(due_steps(stage.validation_every, stage, visits_of(subject, stage)))
            tokens = sum(gold.context_size + len(gold.actions) for gold in golds)
            looks = found.token * times * tokens
        low, high = stage_seconds(stage, work, found)
        spans[f"stage.{name}"] = low + looks, high + looks
    for name, evaluation in session.evaluations.items():
        spans[f"evaluate.{name}"] = evaluation_seconds(subject, evaluation, found)
    for place, (low, high) in spans.items():
        yield Number(place, "seconds_low", low)
        yield Number(place, "seconds_high", high)
    low, high = (sum(ends[side] for ends in spans.values()) / 60 for side in (0, 1))
    what = f"a run takes roughly {low:.0f} to {high:.0f} minutes here"
    if (seeds := len(session.experiment.seeds)) > 1:
        what += f", times {seeds} seeds"
    if any(stage.trainer for stage in session.experiment.stage.values()):
        what += ", beside what other tools train"
    decode = (found.step + ROWS * found.row) * 1e3
    told = f"{found.token * 1e3:.2f} ms a prompt token, {decode:.0f} ms for a token of {ROWS} "
    told += "answers, measured; answers as long as the gold ones, to max_tokens"
    yield Finding("note", what, told, "fewer steps, items or repeats if that is too long")


def measure(subject: Subject) -> Speed | None:
    """The speed of the base model; None where there is nothing to run it on."""
    session, asked = subject.session, list[Context]()
    for stage in session.experiment.stage.values():
        asked += [gold.prompt for gold in subject.golds_of_data(stage.data, stage).answers]
        if isinstance(stage, DpoStage) and isinstance(found := pairs_of(subject, stage), Dpo):
            asked += [context for context, _ in pair_sizes(found.pairs)]
    asked = asked or [c for made in session.evaluations.values() for c in made.contexts]
    if not asked:
        return None
    room = (session.learner.positions or PROMPT) - 1 - STEPS
    prompt = max(map(tokens_of, asked), key=len)[: max(1, min(PROMPT, room))]
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
    # Forward passes beside the update's: of dpo's reference, of a teacher as large as the student.
    epochs, forwards = 1, int(isinstance(stage, DpoStage | DistillStage))
    if isinstance(stage, DpoStage):
        lengths = work.answer, work.answer  # They are written already.
    if isinstance(stage, GrpoStage):  # Scores of the reference; entropies before the update.
        epochs = stage.updates.epochs
        forwards = stage.keeps_start + (stage.top_entropy_share is not None)
    for passes, answer in zip(PASSES, lengths, strict=True):
        step = (passes * epochs + forwards) * work.tokens(answer) * found.token
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
    group = evaluation.spec.repeats
    low, high = (
        sum(answering_seconds(items, group, prompt, answer, found) for items in asked)
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
