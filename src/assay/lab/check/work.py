"""Counts the work of an experiment (steps, tokens, checkpoints), estimates how long it takes, and
compares the memory and disk that it needs, by formula, with what this machine has free.

The model's speed is measured on this machine with one prefill and a few decoding steps. The low
estimate assumes answers as long as the gold ones and a training pass worth three forward passes;
the high one, answers of `max_tokens` and five. Time for rewards and checkpoints is not included.
"""

import gc
import json
import operator
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
import torch
from transformers import AutoModelForCausalLM

from assay.data.episode import Context, tokens_of
from assay.data.files import built_once, cache_root, content_id
from assay.errors import Finding, InputError, time_range
from assay.experiment.stage_tables import (
    DistillStage,
    DpoStage,
    GrpoStage,
    SamplingStage,
    SftStage,
    StageSpec,
    counts_rows,
    kept_reference,
    planned,
    rows_per_step,
)
from assay.experiment.training_settings import LoraAdapt
from assay.lab.check.machine import existing
from assay.lab.check.subject import Gold, Number, Seen, Subject, samples, share_of, target_messages
from assay.lab.data.prepare import find_order
from assay.lab.models.helper_models import in_process, memory_bytes
from assay.lab.models.language_learner import adapt, language_model, load_of, model_folder
from assay.lab.session.evaluation import Evaluation
from assay.lab.session.session import Session
from assay.lab.session.stage_methods import build_dpo, pair_sizes
from assay.models.adapt import Adaptation
from assay.models.matmul import processor_name
from assay.models.memory import (
    MOMENT_BYTES,
    MemoryEstimate,
    ModelShape,
    available_memory,
    choose_checkpointing,
    model_shape,
)
from assay.models.supported import FAMILIES, SLOWER, read_config, why_plain
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.kv_cache import most_bytes
from assay.rollout.engines.cpu.sampler import ROWS, prompt_slots
from assay.rollout.engines.plain_sampler import CACHE_BYTES
from assay.rollout.engines.plain_sampler import ROWS as PLAIN_ROWS
from assay.rollout.engines.register import Sampler
from assay.train.checkpoint import HEADROOM
from assay.train.likelihood import Dpo
from assay.train.update import MicroBatchSize, largest_micro_batch, packs_of

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
        place, dpo = f"stage.{name}", pairs_of(subject, stage)
        if isinstance(dpo, InputError):
            fix = dpo.fix or "give its rows candidates with scores that differ"
            yield Finding("error", f"{place}: {dpo.problem}", "", fix)
            continue
        pairs, size = dpo.pairs, learner.encoder(stage).size
        turns = [turn for p in pairs for side in (p.chosen, p.rejected) for turn in side.turns]
        longest = max(size(turn.context) + len(turn.actions) for turn in turns)
        yield Number(place, "pairs", len(pairs))
        yield Number(place, "groups with pairs", dpo.telling)
        yield Number(place, "longest candidate, tokens", longest)
        yield Number(place, "score gap, mean", sum(p.gap for p in pairs) / len(pairs))
        if learner.positions is not None and longest > learner.positions:
            what = f"{place}: a candidate with its prompt is longer than the model reads"
            fix = "leave such rows out: max_prompt_tokens of the data set, or where"
            yield Finding("error", what, f"{longest:,} of {learner.positions:,} tokens", fix)
        if silent := dpo.groups - dpo.telling:
            what = f"{place}: groups whose scores do not differ give no pair"
            fix = "nothing, or more candidates of each, or a finer reward"
            few = dpo.telling < FEW * dpo.groups
            told = share_of(silent, dpo.groups)
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
        dpo = pairs_of(subject, stage)
        if not isinstance(dpo, Dpo):
            return None
        size, group = subject.session.learner.encoder(stage).size, 2
        turns = pair_sizes(dpo.pairs)
        prompts = [size(context) for context, _ in turns]
        sides = [side for pair in dpo.pairs for side in (pair.chosen, pair.rejected)]
        answers = [sum(len(turn.actions) for turn in side.turns) for side in sides]
        largest = largest_micro_batch(turns, size, together=per_step, budget=stage.micro_tokens)
    else:
        golds = subject.golds_of_data(stage.data, stage).answers
        if not golds:
            return None
        prompts = [gold.prompt_size for gold in golds]
        answers = [len(gold.tokens) for gold in golds]
        if not counts_rows(stage):
            per_step = round(per_step * len(golds) / visits_of(subject, stage))
        largest = largest_of_golds(subject, stage, golds)
    steps = planned(stage, visits_of(subject, stage))
    return StageWork(
        steps=steps.last,
        prompts=per_step,
        group=group,
        prompt=sum(prompts) / len(prompts),
        prompt_most=max(prompts),
        answer=sum(answers) / len(answers),
        answer_most=stage.sampling.max_tokens if samples(stage) else max(answers),
        checkpoints=len(steps.saved),
        largest=largest,
    )


def visits_of(subject: Subject, stage: StageSpec) -> int:
    """Rows, pairs or packs of an epoch; 1 where there is none."""
    if isinstance(stage, DpoStage):
        dpo = pairs_of(subject, stage)
        return len(dpo.pairs) if isinstance(dpo, Dpo) else 1
    if packs := packs_of_golds(subject, stage):
        return len(packs)
    return find_order(subject.session.sets, stage.data).count


def packs_of_golds(subject: Subject, stage: StageSpec) -> tuple[tuple[int, ...], ...]:
    """Places of gold answers by pack; none of a stage without packs."""
    if not isinstance(stage, SftStage) or stage.pack_tokens is None:
        return ()
    golds = subject.golds_of_data(stage.data, stage).answers
    return packs_of([gold.context_size + len(gold.tokens) for gold in golds], stage.pack_tokens)


def largest_of_golds(subject: Subject, stage: StageSpec, golds: Sequence[Gold]) -> MicroBatchSize:
    """The stage's largest micro-batch, see `stage_methods.largest_of`; sampled answers are as long
    as they may be. Where several messages of a row are trained, all tokens may be scored."""
    group = stage.group if isinstance(stage, SamplingStage) else 1
    together, budget = rows_per_step(stage), stage.micro_tokens
    together *= max(map(len, packs_of_golds(subject, stage)), default=1)
    sampled = stage.sampling.max_tokens if samples(stage) else None
    turns = [((g.context_size, g.context_key), sampled or len(g.tokens)) for g in golds]
    largest = largest_micro_batch(
        turns, operator.itemgetter(0), together=together, budget=budget, group=group
    )
    if isinstance(stage, SftStage) and stage.loss_on == "all":
        task = subject.session.task
        roles_of_golds = ([m.role for m in target_messages(task, g.row) or ()] for g in golds)
        if any(roles.count("assistant") > 1 for roles in roles_of_golds):
            return replace(largest, scored=largest.tokens)
    return largest


def asked_items(subject: Subject, evaluation: Evaluation) -> list[int]:
    """Number of items for each measured checkpoint. A selecting evaluation measures the stages'
    starts as well."""
    references = evaluation.spec.references
    stages = {reference.stage for reference in references if reference.stage}
    items, fewer = len(evaluation.items), evaluation.spec.fewer
    counts = [items] * (len(stages) if evaluation.spec.role == "select" else 0)
    for reference in references:
        count = 1
        if reference.stage is not None and reference.which == "all":
            stage = subject.session.experiment.stage[reference.stage]
            count = len(planned(stage, visits_of(subject, stage)).saved)
        counts += [fewer.get(reference.stage or "base", items)] * count
    return counts


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
TRIES = 3
"""Times that a measurement is made."""
PREFILL_SECONDS, MOST_SECONDS = 2.0, 6.0
"""What one prompt may take, and how long measurements begin again."""
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
    if (pace := measure(subject)) is None:
        return
    spans: dict[str, tuple[float, float]] = {}
    for name, stage in session.experiment.stage.items():
        if stage.trainer is not None or (work := stage_work(subject, stage)) is None:
            continue
        looks = 0.0
        if stage.validation is not None:
            golds = subject.golds_of_data(stage.validation, stage).answers
            times = len(planned(stage, visits_of(subject, stage)).validated)
            tokens = sum(gold.context_size + len(gold.tokens) for gold in golds)
            looks = pace.token * times * tokens
        low, high = stage_seconds(stage, work, pace)
        spans[f"stage.{name}"] = low + looks, high + looks
    for name, evaluation in session.evaluations.items():
        spans[f"evaluate.{name}"] = evaluation_seconds(subject, evaluation, pace)
    for place, (low, high) in spans.items():
        yield Number(place, "seconds_low", low)
        yield Number(place, "seconds_high", high)
    low, high = (sum(ends[side] for ends in spans.values()) for side in (0, 1))
    what = f"a run takes roughly {time_range(low, high)} here"
    if (seeds := len(session.experiment.seeds)) > 1:
        what += f", times {seeds} seeds"
    if any(stage.trainer for stage in session.experiment.stage.values()):
        what += ", beside what other tools train"
    decode = (pace.step + ROWS * pace.row) * 1e3
    told = f"{pace.token * 1e3:.2f} ms a prompt token, {decode:.0f} ms for a token of {ROWS} "
    told += "answers, measured; answers as long as the gold ones, to max_tokens"
    yield Finding("note", what, told, "fewer steps, items or repeats if that is too long")


def measure(subject: Subject) -> Speed | None:
    """The speed of the base model on this machine, timed once for the two and then read from the
    cache; None where there is nothing to run it on."""
    session, contexts = subject.session, list[Context]()
    for stage in session.experiment.stage.values():
        golds = subject.golds_of_data(stage.data, stage).answers
        longest = max(golds, key=lambda gold: gold.prompt_size, default=None)
        contexts += [longest.encode()[1]] if longest else []
        if isinstance(stage, DpoStage) and isinstance(dpo := pairs_of(subject, stage), Dpo):
            contexts += [context for context, _ in pair_sizes(dpo.pairs)]
    contexts = contexts or [c for made in session.evaluations.values() for c in made.contexts]
    if not contexts:
        return None
    learner, precision = language_model(session.learner, "measuring speed"), session.precision
    room = (learner.positions or PROMPT) - 1 - STEPS
    prompt = max(map(tokens_of, contexts), key=len)[: max(1, min(PROMPT, room))]

    def build(folder: Path) -> None:
        shelf = learner.shelf(session.run)
        sampler = shelf.sampler(shelf.load_base().model, frozenset())
        (folder / "speed.json").write_text(json.dumps(asdict(timed_speed(sampler, prompt))))

    busy = os.getloadavg()[0] > 1.5 * (os.cpu_count() or 1)  # Timed now, it says less.
    here = [processor_name(), torch.get_num_threads(), torch.__version__, str(precision.compute)]
    met = content_id([learner.fingerprint, precision.device, busy, *here])
    kept = built_once(cache_root() / "speed" / met, build)
    gc.collect()
    return Speed(**json.loads((kept / "speed.json").read_text()))


def timed_speed(sampler: Sampler, prompt: tuple[int, ...]) -> Speed:
    """Seconds by a few short samplings, in some ten seconds for all of them."""
    until = time.perf_counter() + MOST_SECONDS
    few_tokens = prompt[:FEW_ROWS]
    sampled_seconds(sampler, few_tokens, FEW_ROWS, 2, 0.0)  # the first passes set things up
    short = sampled_seconds(sampler, few_tokens, FEW_ROWS, 1, 0.0)
    prompt = prompt[: max(FEW_ROWS, int(FEW_ROWS * PREFILL_SECONDS / short))]
    prefill = sampled_seconds(sampler, prompt, FEW_ROWS, 1, until)
    few, many = (
        max(sampled_seconds(sampler, prompt, rows, 1 + STEPS, until) - prefill, 0.0) / STEPS
        for rows in (FEW_ROWS, ROWS)
    )
    row = max(many - few, 0.0) / (ROWS - FEW_ROWS)
    return Speed(prefill / len(prompt), max(few - FEW_ROWS * row, 0.0), row)


def sampled_seconds(
    sampler: Sampler, prompt: tuple[int, ...], rows: int, tokens: int, until: float
) -> float:
    """Seconds to prefill one prompt and decode this many rows and tokens after it: the least of
    some tries, of which the last begins before `until`, because what else runs here holds a short
    try up many times over."""
    keys = [SampleKey(0, "speed", sample) for sample in range(rows)]
    tries: list[float] = []
    while not tries or (len(tries) < TRIES and time.perf_counter() < until):
        started = time.perf_counter()
        sampler.sample([prompt] * rows, keys, Sampling(1.0, tokens))
        tries.append(time.perf_counter() - started)
    return min(tries)


def stage_seconds(stage: StageSpec, work: StageWork, pace: Speed) -> tuple[float, float]:
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
        step = (passes * epochs + forwards) * work.tokens(answer) * pace.token
        if samples(stage):
            step += answering_seconds(work.prompts, work.group, work.prompt, answer, pace)
        ends.append(work.steps * step)
    return ends[0], ends[1]


def evaluation_seconds(
    subject: Subject, evaluation: Evaluation, pace: Speed
) -> tuple[float, float]:
    """Low and high end of an evaluation on all its checkpoints."""
    golds = subject.golds_of_items(evaluation).answers
    limit = evaluation.spec.sampling.max_tokens
    gold = sum(len(g.actions) for g in golds) / len(golds) if golds else limit
    lengths = [len(tokens_of(context)) for context in evaluation.contexts]
    prompt = sum(lengths) / max(len(lengths), 1)
    counts = asked_items(subject, evaluation)
    group = evaluation.spec.repeats
    low, high = (
        sum(answering_seconds(items, group, prompt, answer, pace) for items in counts)
        for answer in (min(gold, limit), limit)
    )
    return low, high


def answering_seconds(prompts: int, group: int, prompt: float, answer: float, pace: Speed) -> float:
    """Seconds to sample `group` answers to each of some prompts, a full batch at a time."""
    rows = prompts * group
    waves = -(-rows // ROWS)
    return prompts * prompt * pace.token + answer * (waves * pace.step + rows * pace.row)


GIB = 2**30
TIGHT = 0.8
"""A larger share of the free memory is a warning."""


def room(subject: Subject) -> Seen:
    """The memory of every stage; the disk of all of them."""
    config = language_model(subject.session.learner, "estimating memory").base.config
    if why := why_plain(config):
        fix = f"nothing; the families {', '.join(FAMILIES)} are faster"
        yield Finding("note", "the model takes the plain path", f"{why}: {SLOWER}", fix)
    shape = model_shape(config)
    needed = 0.0
    for name, stage in subject.session.experiment.stage.items():
        place = f"stage.{name}"
        try:
            adaptation = adaptation_of(subject, stage)
        except InputError as error:
            what = f"{place}: {error.problem}"
            yield Finding("error", what, error.field or "", error.fix or "")
            continue
        if adaptation.left:
            layers = f"{len(adaptation.left_out)} layers, such as {adaptation.left_out[0]}: their "
            layers += "module computes with the weight alone"
            fix = "nothing; an adapter would have no effect there"
            yield Finding("note", f"{place}: {adaptation.left}", layers, fix)
        if adaptation.narrow:
            what = f"{place}: the rank of LoRA is above a side of {len(adaptation.narrow)} layers"
            fix = "lower adapt.rank: more adds nothing"
            yield Finding("warning", what, adaptation.narrow[0], fix)
        work = stage_work(subject, stage)
        if work is not None:
            yield from memory(subject, name, work, adaptation)
            lora = isinstance(stage.adapt, LoraAdapt)
            weights = 4.0 * (adaptation.trainable if lora else shape.parameters)
            count = work.checkpoints
            moments = MOMENT_BYTES[stage.optimizer.name] * adaptation.trainable
            needed += count * weights + min(count, 2) * moments
    yield from disk(subject, needed * len(subject.session.experiment.seeds))


def memory(subject: Subject, name: str, work: StageWork, adaptation: Adaptation) -> Seen:
    """One stage at its peak: a training step, and what sampling keeps beside it."""
    session, precision = subject.session, subject.session.precision
    stage = session.experiment.stage[name]
    shape = model_shape(language_model(session.learner, "estimating memory").base.config)
    bf16 = precision.compute != precision.master
    tokens, helpers = work.prompt_most + work.answer_most, {}
    if kept_reference(stage) is not None and not isinstance(stage.adapt, LoraAdapt):
        helpers["the reference"] = 4.0 * shape.parameters
    if isinstance(stage, DistillStage):
        helpers |= teacher_bytes(session, stage, work)
    beside = helpers | {
        f"helper model {name}": memory_bytes(spec, session.run.root, precision, tokens)
        for name, spec in session.experiment.helpers.items()
        if in_process(spec)
    }
    load = load_of(stage, work.largest, adaptation, precision)
    free = available_memory(precision.device)
    step = choose_checkpointing(shape, load, free - sum(beside.values()))
    sampling = sampling_bytes(stage, work, shape, bf16)
    total = with_sampling(step, sampling) + sum(beside.values())
    yield Number(f"stage.{name}", "memory_mb", total / 2**20)
    yield Number(f"stage.{name}", "longest_row_tokens", work.largest.longest)
    yield Number(f"stage.{name}", "largest_micro_batch_tokens", work.largest.tokens)
    yield Number(f"stage.{name}", "activations_recomputed", step.checkpointing)
    parts = {**step.parts, **beside, **sampling}.items()
    by_size = sorted(parts, key=lambda part: -part[1])
    largest = [f"{part} {size / GIB:.1f}" for part, size in by_size if size > 0.05 * GIB]
    fix = 'lower micro_tokens, train less (adapt = { kind = "lora" }), or use adamw8bit'
    what = f"stage.{name}: the memory of a step"
    yield from tight(what, total, precision.device, largest, fix)


def tight(what: str, needed: float, device: str, parts: Sequence[str], fix: str) -> Seen:
    """What needs nearly all of the memory that is free, or more."""
    free, whole = available_memory(device), installed_memory(device)
    if needed > TIGHT * free:
        told = f"about {needed / GIB:.1f} GiB of {whole / GIB:.1f} GiB on {device}, "
        told += f"{free / GIB:.1f} GiB free now: {', '.join(parts)}"
        what += " does not fit" if needed > free else " is tight"
        yield Finding("error" if needed > whole else "warning", what, told, fix)


def installed_memory(device: str) -> float:
    """Bytes of memory that the device has in all."""
    if device == "cuda":
        return float(torch.cuda.mem_get_info()[1])
    return float(psutil.virtual_memory().total)


def with_sampling(step: MemoryEstimate, sampling: Mapping[str, float]) -> float:
    """Bytes of a step whose completions are sampled first. Sampling and updating take turns: the
    larger of what each needs for itself counts."""
    passing = step.activations + step.logits + step.casts + step.gradients
    return step.total + max(sum(sampling.values()) - passing, 0.0)


def sampling_bytes(
    stage: StageSpec, work: StageWork, shape: ModelShape, bf16: bool
) -> dict[str, float]:
    """Bytes of sampling: its copy of the weights, keys and values, and cached ones."""
    if not samples(stage):
        return {}
    width = 2 if bf16 else 4
    token = 2 * shape.layers * shape.key * width
    longest, answer = work.prompt_most, work.answer_most
    if shape.kept:
        # The trained module samples, and its cache is copied as it grows.
        rows = max(1, min(PLAIN_ROWS, work.prompts * work.group))
        held = min(2.0 * rows * token * (longest + answer), 2.0 * CACHE_BYTES)
        casts = 2.0 * shape.parameters if bf16 else 0.0
        return {"the sampler's weights": casts, "keys and values": held}
    slots = prompt_slots(token, longest, work.group, answer, waiting=work.prompts)
    return {
        "the sampler's weights": float(width * shape.parameters),
        "keys and values": float(slots * token * (longest + work.group * answer)),
        "what prompts begin with alike": float(most_bytes(token, work.prompts * longest)),
    }


def teacher_bytes(session: Session, stage: DistillStage, work: StageWork) -> dict[str, float]:
    """Bytes of what a teacher says of a step's tokens: a hidden state, or its likeliest words."""
    spec, tokens = session.experiment.helpers[stage.teacher], work.prompts * work.group
    tokens *= work.answer_most
    if not in_process(spec):
        return {"the teacher's words": 12.0 * (stage.loss_top_k or 0) * tokens}
    config = read_config(model_folder(spec.source, session.run.root))
    return {"the teacher's hidden states": 4.0 * model_shape(config).hidden * tokens}


QUESTION = 1024
"""Tokens of a helper model's question, where completions are not counted in tokens."""


def helper_memory(subject: Subject) -> Seen:
    """The memory of the helper models in this process, whatever is trained beside them."""
    session, sizes = subject.session, dict[str, float]()
    for name, spec in session.experiment.helpers.items():
        if in_process(spec):
            sizes[name] = memory_bytes(spec, session.run.root, session.precision, QUESTION)
            yield Number(f"model.{name}", "memory_mb", sizes[name] / 2**20)
    fix = "take smaller ones, or ask them behind an endpoint"
    what, needed = "the memory of the helper models", sum(sizes.values())
    yield from tight(what, needed, session.precision.device, [*sizes], fix)


def disk(subject: Subject, needed: float) -> Seen:
    """All checkpoints of all seeds against the free space under the lab's root."""
    root = existing(subject.session.run.root)
    free = shutil.disk_usage(root).free
    yield Number("disk", "checkpoints_mb", needed / 2**20)
    yield Number("disk", "free_mb", free / 2**20)
    if needed + HEADROOM > free:
        told = f"about {needed / GIB:.1f} GiB of {free / GIB:.1f} GiB free in the lab"
        fix = "raise checkpoint_every, make room, or choose another place with --lab"
        yield Finding("error", "the checkpoints do not fit on the disk", told, fix)
