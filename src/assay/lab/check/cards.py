"""Estimates which ways of training a stage fit on a GPU, from config.json, without weights.

`assay check FILE --gpu h100`: memory by `models.memory`, time by the arithmetic of a step between
two shares of the card's peak. Tokens are counted from characters, since no tokenizer is read.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig

from assay.data.files import canonical_json
from assay.data.row import Row
from assay.errors import InputError, nearest
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import (
    DpoStage,
    SamplingStage,
    SftStage,
    StageSpec,
    kept_reference,
    planned,
    rows_per_step,
)
from assay.experiment.training_settings import Adapt, LoraAdapt
from assay.lab.check.work import GIB, StageWork, sampling_bytes, with_sampling
from assay.lab.data.prepare import load_rows
from assay.lab.models.helper_models import in_process
from assay.lab.models.language_learner import adapt
from assay.models.folder import CONFIG
from assay.models.memory import HEADROOM, ModelShape, StepLoad, estimate_memory, model_shape
from assay.models.source import parse_source, resolve
from assay.models.supported import read_config, refuse_untrainable
from assay.tasks.task import task as make_task
from assay.train.update import MicroBatchSize


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU by its data sheet."""

    gib: float
    """Memory that programs see."""
    flops: float
    """Dense bf16 products, a second."""
    bandwidth: float
    """Bytes read from memory, a second."""


CARDS = {
    "4090": Card(23.5, 165e12, 1.01e12),
    "a100-40": Card(39.4, 312e12, 1.56e12),
    "a100": Card(79, 312e12, 2.04e12),
    "h100": Card(79, 989e12, 3.35e12),
    "h200": Card(139, 989e12, 4.8e12),
    "b200": Card(178, 2250e12, 8.0e12),
}
"""NVIDIA's data sheets; `a100` is the one of 80 GB."""
MEAN_CHARACTERS, FEWEST_CHARACTERS = 3.5, 2.8
"""Characters of a token: of all rows, and of the longest one, so that it is not underestimated."""
SHARES = (0.45, 0.10)
"""Of the peak that products reach, best and worst."""
PASS_SECONDS = (0.007, 0.016)
"""To start a layer's kernels for one micro-batch, forward and backward. An H200 took 0.0136
(Qwen3-0.6B) and 0.0143 (SmolLM2-135M), products included: `benchmarks/results/gpu`."""
TOKEN_SECONDS = (0.0003, 0.0005)
"""The same of one layer for one decoded token; the H200 took 0.00044."""
ANSWER_SHARES = (0.25, 1.0)
"""Of `max_tokens` that sampled answers have."""


def card_of(name: str | None, memory: float | None) -> Card:
    """The card of a name, or of so many GiB. Raises InputError."""
    if name is None:
        # The slowest of those that have as much, since nothing else is known of it.
        larger = [card for card in CARDS.values() if card.gib >= (memory or 0)]
        return replace(min(larger or [*CARDS.values()], key=lambda card: card.flops), gib=memory)
    if name.lower() not in CARDS:
        fix = f"{nearest(name, CARDS)}, or --memory GIB"
        raise InputError(f"{name!r} is no card in the table", field="--gpu", fix=fix)
    card = CARDS[name.lower()]
    return card if memory is None else replace(card, gib=memory)


def config_of(experiment: Experiment, root: Path) -> PreTrainedConfig:
    """The model's configuration, of a folder that need hold no weights, or of the hub. Raises
    InputError."""
    source = parse_source(experiment.model)
    folder = root / source.name
    if source.kind == "hf":
        folder = hub_config(source.name)
    elif source.kind != "path" or not folder.is_dir():
        folder = resolve(source, relative_to=root)
    config = read_config(folder)
    refuse_untrainable(config, folder / CONFIG)
    return config


def hub_config(name: str) -> Path:
    """The folder of a hub model's config.json, cached or fetched. Raises InputError."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils.logging import set_verbosity_error

    set_verbosity_error()  # each of its five tries is a line
    try:
        return Path(hf_hub_download(name, CONFIG)).parent
    except (HFValidationError, OSError) as error:
        fix = f"save its {CONFIG} in a folder: --set model=path:FOLDER"
        problem = f"hf:{name}: {CONFIG} is neither in the cache nor to be had from the hub"
        raise InputError(problem, field="model", fix=fix) from error


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to train a stage on the card."""

    name: str
    key: str
    """What is written into the file for it; empty: nothing."""
    gib: float
    """Of each GPU at its peak, headroom included."""
    fits: bool
    hours: tuple[float, float]
    """Of the whole stage, best and worst."""


@dataclass(frozen=True, slots=True)
class StageFit:
    """What a stage needs, in each way."""

    stage: str
    longest: int
    """Tokens of the longest row."""
    steps: int
    settings: tuple[Setting, ...]

    @property
    def choice(self) -> Setting | None:
        """The first that fits: they stand in the order of what they take away."""
        return next((each for each in self.settings if each.fits), None)


def fits(
    experiment: Experiment, root: Path, card: Card, gpus: int = 1, tokens: int | None = None
) -> list[StageFit]:
    """Every stage on `gpus` cards. `tokens` are those of the longest row; None counts characters.

    See `left_out` for what is not in it. Raises InputError for a model without config.json, and
    what reading the rows raises.
    """
    config = config_of(experiment, root)
    made = []
    for name, stage in experiment.stage.items():
        if isinstance(stage, DpoStage):
            continue
        work = estimated_work(experiment, stage, root, tokens)
        settings = tuple(settings_of(stage, work, config, card, gpus))
        made.append(StageFit(name, work.largest.longest, work.steps, settings))
    return made


def left_out(experiment: Experiment) -> list[str]:
    """What the estimate has nothing of."""
    names = [n for n, stage in experiment.stage.items() if isinstance(stage, DpoStage)]
    told = [f"stage.{n} is not estimated: its pairs are known by tokens alone" for n in names]
    helpers = [name for name, spec in experiment.helpers.items() if in_process(spec)]
    return [*told, *(f"model.{name} needs memory beside this" for name in helpers)]


def estimated_work(
    experiment: Experiment, stage: StageSpec, root: Path, tokens: int | None
) -> StageWork:
    """The sizes of a stage, rows being measured in characters or said to have `tokens`."""
    sampled, group = 0, 1
    if isinstance(stage, SamplingStage) and not stage.stored:
        sampled, group = stage.sampling.max_tokens, stage.group
    data = experiment.data[stage.data.partition(".")[0]]
    rows: Sequence[Row] = ()
    if tokens is None or stage.steps is None:
        specs = [experiment.data[part] for part in data.mix] if data.mix else [data]
        skill = make_task(experiment.task, root)
        rows = [row for spec in specs for row in load_rows(spec, skill, root).rows]
    sizes = [characters(row) for row in rows] or [0]
    limit = (data.max_prompt_tokens if sampled else data.max_tokens) or 2**40
    most = tokens or min(math.ceil(max(sizes) / FEWEST_CHARACTERS), limit)
    mean = tokens or min(sum(sizes) / len(sizes) / MEAN_CHARACTERS, most)
    visits = len(rows)
    if isinstance(stage, SftStage) and stage.pack_tokens is not None:
        visits, mean = math.ceil(visits * mean / stage.pack_tokens), float(stage.pack_tokens)
    longest = most + sampled
    together = max(stage.micro_tokens, longest)
    # Without a tokenizer it is unknown which tokens are answers: all are scored, the most there is.
    scored = together if not sampled else min(together, math.ceil(together * sampled / longest))
    per_step = rows_per_step(stage)
    steps = planned(stage, visits or per_step)
    return StageWork(
        steps=steps.last,
        prompts=per_step,
        group=group,
        prompt=mean,
        prompt_most=most,
        answer=float(sampled),
        answer_most=sampled,
        checkpoints=len(steps.saved),
        largest=MicroBatchSize(together, scored, longest),
    )


def characters(row: Row) -> int:
    """Of all that a rendering writes of a row, nearly."""
    letters = sum(len(m.content) + len(m.reasoning) + 16 for m in row.messages)
    calls = [dict(call.arguments) for m in row.messages for call in m.tool_calls]
    return letters + len(canonical_json([*map(dict, row.tools), *calls]))


def settings_of(
    stage: StageSpec, work: StageWork, config: PreTrainedConfig, card: Card, gpus: int
) -> Iterator[Setting]:
    """The stage as it is written and what would need less, in the order of what it takes away."""
    shape = model_shape(config)
    eight = {"optimizer": stage.optimizer.model_copy(update={"name": "adamw8bit"})}
    lora, has_lora = {"adapt": LoraAdapt(kind="lora")}, isinstance(stage.adapt, LoraAdapt)
    low, less = 'adapt = { kind = "lora" }', 'optimizer = { name = "adamw8bit" }'
    ways: list[tuple[bool, str, str, Mapping[str, Any], bool, int]] = [
        (True, "as it is", "", {}, False, 1),
        (True, "layers computed again", "", {}, True, 1),
        (gpus > 1, f"{gpus} ranks, sharded", f"engine.ranks = {gpus}", {}, True, gpus),
        (True, "8-bit AdamW, layers computed again", less, eight, True, 1),
        (not has_lora, "LoRA", low, lora, False, 1),
        (not has_lora, "LoRA, layers computed again", low, lora, True, 1),
    ]
    trained: dict[Adapt, int] = {}
    for applies, name, key, update, again, ranks in ways:
        if not applies:
            continue
        changed = stage.model_copy(update=update)
        if changed.adapt not in trained:
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(config)
                trained[changed.adapt] = adapt(model, changed)[1].trainable
        bytes_ = needed(changed, work, shape, trained[changed.adapt], again, ranks)
        times = seconds(changed, work, shape, again, ranks, card)
        hours = times[0] / 3600, times[1] / 3600
        yield Setting(name, key, bytes_ / GIB, bytes_ <= card.gib * GIB, hours)


def needed(
    stage: StageSpec, work: StageWork, shape: ModelShape, trained: int, again: bool, ranks: int
) -> float:
    """Bytes of each GPU at the peak of a step, headroom included; `ranks` share weights, gradients
    and moments (FSDP2)."""
    load = StepLoad(
        tokens=work.largest.tokens,
        logit_rows=work.largest.scored,
        trainable=trained,
        optimizer=stage.optimizer.name,
        bf16=True,
        checkpointing=again,
        longest=work.largest.longest,
    )
    whole = estimate_memory(shape, load)
    shared = (whole.weights, whole.gradients, whole.moments)
    weights, gradients, moments = (size / ranks for size in shared)
    step = replace(whole, weights=weights, gradients=gradients, moments=moments)
    kept = kept_reference(stage) is not None and not isinstance(stage.adapt, LoraAdapt)
    sampling = sampling_bytes(stage, work, shape, bf16=True)
    return HEADROOM * (with_sampling(step, sampling) + kept * weights)


def seconds(
    stage: StageSpec, work: StageWork, shape: ModelShape, again: bool, ranks: int, card: Card
) -> tuple[float, float]:
    """Of the whole stage, best and worst: products at a share of the peak, and starting kernels."""
    per_weight = 4 if isinstance(stage.adapt, LoraAdapt) else 6
    per_weight += 2 * again
    ends = []
    for share, launch, token, length in zip(
        SHARES, PASS_SECONDS, TOKEN_SECONDS, ANSWER_SHARES, strict=True
    ):
        answer = work.answer * length
        tokens = work.tokens(answer) / ranks
        pairs = 2 * per_weight * shape.layers * shape.query * tokens * (work.prompt + answer) / 2
        update = (per_weight * shape.parameters * tokens + pairs) / (share * card.flops)
        update += launch * shape.layers * max(1, math.ceil(tokens / work.largest.tokens))
        read = 2.0 * shape.parameters / card.bandwidth
        sampling = answer * max(token * shape.layers, read)
        ends.append(work.steps * (update + sampling))
    return ends[0], ends[1]
