"""Compares the memory and disk that the stages need, by formula, with what this machine has free.

Allocates and trains nothing.
"""

import shutil
from collections.abc import Iterator, Sequence

import psutil
import torch

from assay.errors import Finding, InputError
from assay.experiment.stage_tables import DistillStage, StageSpec, kept_reference
from assay.experiment.training_settings import LoraAdapt
from assay.lab.check.machine import existing
from assay.lab.check.subject import Number, Seen, Subject, samples
from assay.lab.check.work import StageWork, adaptation_of, stage_work
from assay.lab.setup.helper_models import in_process, memory_bytes
from assay.lab.setup.language_learner import language_model, load_of, model_folder
from assay.lab.setup.session import Session
from assay.models.adapt import Adaptation
from assay.models.memory import (
    MOMENT_BYTES,
    ModelShape,
    available_memory,
    choose_checkpointing,
    model_shape,
)
from assay.models.supported import FAMILIES, SLOWER, read_config, why_plain
from assay.rollout.engines.cpu.engine import prompt_slots
from assay.rollout.engines.cpu.kv_cache import most_bytes
from assay.rollout.engines.plain_sampler import CACHE_BYTES, ROWS
from assay.train.checkpoint import HEADROOM

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
        work = stage_work(subject, stage)
        if work is not None:
            yield from memory(subject, name, stage, work, adaptation, shape)
            lora = isinstance(stage.adapt, LoraAdapt)
            weights = 4.0 * (adaptation.trainable if lora else shape.parameters)
            count = work.checkpoints
            moments = MOMENT_BYTES[stage.optimizer.name] * adaptation.trainable
            needed += count * weights + min(count, 2) * moments
    yield from disk(subject, needed * len(subject.session.experiment.seeds))


def memory(
    subject: Subject,
    name: str,
    stage: StageSpec,
    work: StageWork,
    adaptation: Adaptation,
    shape: ModelShape,
) -> Seen:
    """One stage at its peak: a training step, and what sampling keeps beside it."""
    precision = subject.session.precision
    bf16 = precision.compute != precision.master
    asked, found = work.prompt_most + work.answer_most, {}
    if kept_reference(stage) is not None and not isinstance(stage.adapt, LoraAdapt):
        found["the reference"] = 4.0 * shape.parameters
    if isinstance(stage, DistillStage):
        found |= teacher_bytes(subject.session, stage, work)
    beside = found | {
        f"helper model {name}": memory_bytes(
            spec, subject.session.run.root, subject.session.precision, asked
        )
        for name, spec in subject.session.experiment.helpers.items()
        if in_process(spec)
    }
    free, whole = available_memory(precision.device), installed_memory(precision.device)
    load = load_of(stage, work.largest, adaptation, precision)
    step = choose_checkpointing(shape, load, free - sum(beside.values()))
    sampling = sampling_bytes(stage, work, shape, bf16)
    # Sampling and updating take turns: the larger of what each needs for itself counts.
    passing = step.activations + step.logits + step.casts + step.gradients
    total = step.total + sum(beside.values()) + max(sum(sampling.values()) - passing, 0.0)
    yield Number(f"stage.{name}", "memory_mb", total / 2**20)
    yield Number(f"stage.{name}", "longest_row_tokens", work.largest.longest)
    yield Number(f"stage.{name}", "largest_micro_batch_tokens", work.largest.tokens)
    yield Number(f"stage.{name}", "activations_recomputed", step.checkpointing)
    parts = {**step.parts, **beside, **sampling}.items()
    by_size = sorted(parts, key=lambda part: -part[1])
    largest = [f"{part} {size / GIB:.1f}" for part, size in by_size if size > 0.05 * GIB]
    fix = 'lower micro_tokens, train less (adapt = { kind = "lora" }), or use adamw8bit'
    what = f"stage.{name}: the memory of a step"
    yield from tight(what, total, (free, whole), precision.device, largest, fix)


def tight(
    what: str,
    needed: float,
    memory: tuple[float, float],
    device: str,
    parts: Sequence[str],
    fix: str,
) -> Iterator[Finding]:
    """What needs nearly all of the memory that is free, or more; `memory` is free and in all."""
    free, whole = memory
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
        rows = max(1, min(ROWS, work.prompts * work.group))
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
    device = session.precision.device
    memory = available_memory(device), installed_memory(device)
    fix = "take smaller ones, or ask them behind an endpoint"
    what, needed = "the memory of the helper models", sum(sizes.values())
    yield from tight(what, needed, memory, device, [*sizes], fix)


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
