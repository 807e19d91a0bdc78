"""The language model as a `Learner`: rendered conversations, tokens, LoRA, activation memory.

The default of `lab.models.learner`. Only parts of the lab that need a tokenizer or a Transformers
model ask for it by name, with `language_model`. Nothing is trained or judged here.
"""

import copy
import gc
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from assay.data.files import (
    built_once,
    cache_root,
    canonical_json,
    sha256_file,
    sha256_text,
    write_checksums,
)
from assay.data.renderings.checkpoint_template import save_tokenizer
from assay.data.renderings.rendering import (
    Renderer,
    automatic,
)
from assay.data.renderings.template import with_options
from assay.engines.register import sampler_of
from assay.errors import InputError, within
from assay.experiment.base_table import RenderingSettings, rendering_key
from assay.experiment.checkpoint_reference import BASE, CheckpointReference
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import SamplingStage, StageSpec, kept_reference
from assay.experiment.training_settings import FreezeAdapt, LoraAdapt
from assay.lab.models.language_encoder import LanguageEncoder, no_options
from assay.lab.models.learner import Learner, StagePolicy, refuse_longer
from assay.models.adapt import Adaptation, save_activations, train_all, train_lora, train_unfrozen
from assay.models.folder import ADAPTER, CONFIG
from assay.models.load import LoadedModel, check_loadable, load_model
from assay.models.lora import LoraOptions, merged
from assay.models.memory import (
    StepLoad,
    available_memory,
    choose_checkpointing,
    model_shape,
)
from assay.models.precision import Precision, choose_precision
from assay.models.source import parse_source, resolve
from assay.models.supported import SLOWER, read_tokenizer, refuse_untrainable, why_plain
from assay.models.taken_over import open_theirs, refuse_other_model, whole
from assay.models.weight_files import ADAPTER_CONFIG, load_weights, save_weights, stand_on
from assay.rollout.engines.register import Sampler
from assay.rollout.policies.language import LanguagePolicy
from assay.rollout.policies.self_check import check_language_policy
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import (
    checked_directory,
    checkpoint_directory,
    experiment_of,
    located,
    resolve_checkpoint,
    run_checkpoint,
    stage_start,
)
from assay.train.loop import Check as BatchCheck
from assay.train.update import MicroBatchSize


@dataclass(frozen=True)
class ModelShelf:
    """Loads the models of one run."""

    experiment: Experiment
    run: RunDirectory
    base: Path
    """Folder of the experiment's base model."""
    precision: Precision

    def load_base(self) -> LoadedModel:
        """The base model, freshly read, with its tokenizer and fingerprint."""
        return load_model(self.base, self.precision)

    def plain(self, reference: CheckpointReference) -> PreTrainedModel:
        """The model of a checkpoint with any adapter merged, freshly read. Raises DamagedFile
        where a file of it is not as it was written."""
        model = self.trained(reference)
        return merged(model) if isinstance(model, PeftModel) else model

    def trained(self, reference: CheckpointReference) -> PreTrainedModel | PeftModel:
        """The model of a checkpoint as its stage trained it, an adapter of its own apart: merged
        into bf16 weights, most of a small change would be rounded away. See `plain`."""
        if reference.step != 0:
            reference = resolve_checkpoint(self.run, reference)
        if reference.stage is None:
            return self.load_base().model
        stage = self.experiment.stage[reference.stage]
        if reference.step == 0:
            shelf, start = self.start(stage)
            return shelf.trained(start)
        return self.opened(stage, checked_directory(self.run, reference))

    def opened(self, stage: StageSpec, folder: Path) -> PreTrainedModel | PeftModel:
        """The model of a checkpoint's folder: an adapter over the stage's start, or whole weights
        by the config beside them. Raises InputError."""
        if not isinstance(stage.adapt, LoraAdapt):
            return load_model(folder, self.precision).model
        shelf, start = self.start(stage)
        adapted, _ = adapt(shelf.plain(start), stage)
        assert isinstance(adapted, PeftModel)
        load_weights(adapted, folder)
        return adapted.eval()

    def take_over(
        self, stage: StageSpec, theirs: Path, part: Path, *, merges: bool
    ) -> Callable[[], PreTrainedModel]:
        """Write the weights that a tool left in `theirs` into `part`; gives what opens their start
        once. With `merges` an adapter becomes whole weights. Raises InputError."""
        shelf, start = self.start(stage)
        if isinstance(stage.adapt, LoraAdapt):
            module, _ = adapt(shelf.plain(start), stage)
            assert isinstance(module, PeftModel)
            load_weights(module, theirs)
            save_weights(module, part)
            return module.unload
        if (theirs / ADAPTER_CONFIG).is_file() and not merges:
            problem = "holds an adapter, where the stage trains the model's own weights"
            raise InputError(problem, file=theirs, fix="train it as it was exported")
        base = partial(shelf.plain, start)
        opened = open_theirs(theirs, base)
        refuse_other_model(opened.config, self.base, theirs)
        save_weights(whole(opened, theirs), part)
        return base

    def start(self, stage: StageSpec) -> tuple["ModelShelf", CheckpointReference]:
        """The shelf of the run that holds a stage's start, and the start's name there."""
        run, reference = stage_start(self.run, stage)
        if run == self.run:
            return self, reference
        return ModelShelf(experiment_of(run), run, self.base, self.precision), reference

    def policy(
        self, stage: StageSpec, end_tokens: frozenset[int]
    ) -> tuple[LanguagePolicy, Adaptation]:
        """The policy that a stage starts from, with its adapter, sampler and KL reference."""
        shelf, reference = self.start(stage)
        start = shelf.plain(reference)
        frozen = self.reference(stage, start)
        module, adaptation = adapt(start, stage)
        module.train()
        sampler = self.sampler(module, end_tokens)
        policy = LanguagePolicy(module, self.precision, end_tokens, sampler=sampler, frozen=frozen)
        return policy, adaptation

    def sampler(self, module: nn.Module, end_tokens: frozenset[int], processes: int = 1) -> Sampler:
        """The sampler of a model by the experiment's engine."""
        settings = self.experiment, self.precision, self.base, processes
        return sampler_of(module, end_tokens, *settings)

    def ground(self, stage: StageSpec) -> tuple[Path, tuple[Path, ...]]:
        """Folders of the whole model below a stage, and of the adapters between, lowest first."""
        shelf, reference = self.start(stage)
        if reference.stage is None:
            return self.base, ()
        folder = checkpoint_directory(shelf.run, reference)
        below = shelf.experiment.stage[reference.stage]
        if not isinstance(below.adapt, LoraAdapt):
            return folder, ()
        whole, between = shelf.ground(below)
        return whole, (*between, folder)

    def complete(self, stage: StageSpec, folder: Path) -> None:
        """Write the base of an adapter into its folder."""
        if isinstance(stage.adapt, LoraAdapt):
            stand_on(folder, *self.ground(stage))

    def reference(self, stage: StageSpec, start: PreTrainedModel) -> nn.Module | None:
        """A frozen copy of the reference; None where none is read or the adapter gives it."""
        which = kept_reference(stage)
        if which is None:
            return None
        start_is_base = stage_start(self.run, stage)[1] == BASE
        from_start = which == "stage_start" or start_is_base
        if from_start and isinstance(stage.adapt, LoraAdapt):
            return None
        frozen = copy.deepcopy(start) if from_start else self.load_base().model
        return frozen.requires_grad_(False).eval()


def adapt(model: PreTrainedModel, stage: StageSpec) -> tuple[nn.Module, Adaptation]:
    """The model made ready to train as the stage's `adapt` table says."""
    match stage.adapt:
        case LoraAdapt() as lora:
            options = LoraOptions(lora.rank, lora.alpha, lora.targets, lora.dropout or 0.0)
            return train_lora(model, options)
        case FreezeAdapt(patterns=patterns):
            return train_unfrozen(model, patterns)
        case _:
            return train_all(model)


def model_folder(source: str, root: Path, images: bool = False) -> Path:
    """The local folder of a model source; `run:` names are looked up in the lab at `root`. With
    `images` the model may read them."""
    return resolve(
        parse_source(source),
        relative_to=root,
        resolve_run=lambda name: run_folder(name, root),
        images=images,
    )


def run_folder(name: str, root: Path) -> Path:
    """The folder of `NAME@STAGE.last` and the like as a whole model, which `load_model` compares
    with its checksums. Raises RunNotFound, and DamagedFile for an adapter's."""
    run, reference, folder = run_checkpoint(name, root)
    return merged_folder(run, reference, folder) if (folder / ADAPTER).is_file() else folder


def merged_folder(run: RunDirectory, reference: CheckpointReference, adapter: Path) -> Path:
    """A whole model in the cache made of an adapter and what it was trained on."""
    run, reference = located(run, reference)
    experiment = experiment_of(run)
    base = model_folder(experiment.model, run.root)
    shelf = ModelShelf(experiment, run, base, choose_precision("fp32", "cpu"))

    def build(target: Path) -> None:
        save_weights(shelf.plain(reference), target, read_tokenizer(adapter))
        write_checksums(target)

    stage = experiment.stage[reference.stage or ""]
    whole, between = shelf.ground(stage)
    chain = [str(whole), *(sha256_file(folder / ADAPTER) for folder in (*between, adapter))]
    place = cache_root() / "merged" / sha256_text(canonical_json(chain))[:16]
    built_once(place, build)
    return place


LANGUAGE_MODEL = "language model"
CHECKED_TOKENS = 1024
"""Tokens that the self-check runs through the plain path, unless two turns of each of its groups
are longer."""


@dataclass(frozen=True)
class BaseFacts:
    """Facts of the base model, kept after its weights are released."""

    tokenizer: Any
    fingerprint: str
    end_tokens: frozenset[int]
    config: PretrainedConfig


@dataclass(frozen=True)
class LanguageLearner:
    """See `lab.models.learner.Learner`."""

    experiment: Experiment
    root: Path
    precision: Precision
    _encoders: dict[str, LanguageEncoder] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """See `Learner`."""
        return LANGUAGE_MODEL

    @property
    def fingerprint(self) -> str:
        """See `Learner`."""
        return self.base.fingerprint

    @property
    def positions(self) -> int | None:
        """Tokens that the model reads at once; None where its configuration does not say."""
        return getattr(self.base.config, "max_position_embeddings", None)

    @cached_property
    def folder(self) -> Path:
        """The folder of the base model."""
        return model_folder(self.experiment.model, self.root)

    @cached_property
    def base(self) -> BaseFacts:
        """Tokenizer, fingerprint and end tokens of the base model; the weights are let go."""
        loaded = load_model(self.folder, self.precision)
        facts = BaseFacts(
            loaded.tokenizer, loaded.fingerprint, loaded.end_tokens, loaded.model.config
        )
        del loaded
        gc.collect()
        return facts

    def shelf(self, run: RunDirectory) -> ModelShelf:
        """The loader of a run's models."""
        return ModelShelf(self.experiment, run, self.folder, self.precision)

    def check(self) -> None:
        """See `refuse_unopenable`."""
        refuse_unopenable(self.experiment, self.root)

    def encoder(self, rendering: RenderingSettings) -> LanguageEncoder:
        """See `Learner`. Raises RenderingError for settings that do not fit the model."""
        key = rendering_key(rendering)
        if key not in self._encoders:
            made = self.reader(rendering, self.base.tokenizer)
            self._encoders[key] = replace(made, end_tokens=self.base.end_tokens)
        return self._encoders[key]

    def reader(self, rendering: RenderingSettings, tokenizer: object = None) -> LanguageEncoder:
        """See `Learner`."""
        options, kept = rendering.template_options or {}, rendering.keep_special or ()
        with self._inside(rendering):
            tokenizer = tokenizer or read_tokenizer(self.folder)
            renderer = make_renderer(tokenizer, rendering.rendering, options, kept)
        return LanguageEncoder(renderer, frozenset(), options=options)

    def _inside(self, rendering: RenderingSettings) -> AbstractContextManager[None]:
        """Inside, errors name the stage or evaluation that these settings are of."""
        stages, evaluations = self.experiment.stage.items(), self.experiment.evaluate.items()
        tables: list[tuple[str, RenderingSettings]] = [(f"stage.{n}", t) for n, t in stages]
        tables += [(f"evaluate.{n}", t) for n, t in evaluations]
        return next((within(place) for place, t in tables if t is rendering), nullcontext())

    def policy(self, run: RunDirectory, stage: StageSpec) -> StagePolicy:
        """See `Learner`; with its adapter, sampler and KL reference."""
        policy, adaptation = self.shelf(run).policy(stage, self.base.end_tokens)
        share = (
            f"{adaptation.kind}, {adaptation.trainable:,} of {adaptation.total:,} weights "
            f"trained ({adaptation.share:.1%})"
        )
        notes = [share + (f"; {adaptation.left}" if adaptation.left else "")]
        if why := why_plain(self.base.config):
            notes.append(f"{why}: {SLOWER}")
        # Measured before the optimizer's state is read; the model's weights are there already.
        free = available_memory(self.precision.device) + 4.0 * adaptation.total
        fit = partial(fit_activations, self, stage, policy.module, adaptation, free)

        def fits(largest: MicroBatchSize, here: int) -> bool:
            load = load_of(stage, largest, adaptation, self.precision)
            # Those of a GPU have it to themselves.
            each = free if self.precision.device == "cuda" else free / here
            return choose_checkpointing(model_shape(self.base.config), load, each).fits(each)

        return StagePolicy(
            policy, tuple(notes), fit, fits, lambda: getattr(policy.sampler, "measured", {})
        )

    def sampler(self, run: RunDirectory, reference: CheckpointReference) -> Sampler:
        """See `Learner`; large batches are sampled in a process for each core."""
        shelf = self.shelf(run)
        model = shelf.trained(reference)
        return shelf.sampler(model, self.base.end_tokens, torch.get_num_threads())

    def complete(self, run: RunDirectory, stage: StageSpec, folder: Path) -> None:
        """See `Learner`: the files that other programs need to answer as the run does."""
        save_tokenizer(self.encoder(stage).renderer, folder)
        self.shelf(run).complete(stage, folder)

    def first_batch_check(self, stage: StageSpec) -> BatchCheck:
        """See `Learner`: the packed path against Transformers' own."""
        return partial(check_language_policy, tokens=min(stage.micro_tokens, CHECKED_TOKENS))


def language_model(learner: Learner, what: str) -> LanguageLearner:
    """The learner for `what`, which works with language models only. Raises InputError for another
    learner."""
    if not isinstance(learner, LanguageLearner):
        problem = f"{what} needs a language model, and this run trains a {learner.name}"
        raise InputError(problem, fix="assay eval measures it")
    return learner


def path_table(learner: Learner) -> dict[str, str]:
    """For the manifest: why a language model takes the plain path; nothing for others."""
    why = why_plain(learner.base.config) if isinstance(learner, LanguageLearner) else ""
    return {"plain_path": f"{why}: {SLOWER}"} if why else {}


def make_renderer(
    tokenizer: object,
    name: str,
    options: Mapping[str, Any] | None = None,
    kept: tuple[str, ...] = (),
) -> Renderer:
    """The rendering called `name`; `auto` is the tokenizer's own template where it writes tools."""
    if options:
        tokenizer = with_options(tokenizer, options)
    made = Renderer(tokenizer, automatic(tokenizer) if name == "auto" else name, kept)
    if options and not made.reads_template:
        raise no_options(name, next(iter(options)))
    return made


def fit_activations(
    learner: LanguageLearner,
    stage: StageSpec,
    module: nn.Module,
    adaptation: Adaptation,
    free: float,
    largest: MicroBatchSize,
) -> tuple[str, ...]:
    """Turn activation checkpointing on where the stage's largest micro-batch, which a long row may
    fill alone, would not fit into `free` bytes without it; says so.

    The gradients are the same either way.
    """
    load = load_of(stage, largest, adaptation, learner.precision)
    estimate = choose_checkpointing(model_shape(learner.base.config), load, free)
    if not estimate.checkpointing:
        return ()
    save_activations(module)
    return (
        f"activations are computed twice, because memory is short: {largest.tokens:,} tokens in a "
        f"micro-batch, {largest.longest:,} in the longest row",
    )


def load_of(
    stage: StageSpec, largest: MicroBatchSize, adaptation: Adaptation, precision: Precision
) -> StepLoad:
    """What a stage's largest micro-batch holds in memory."""
    return StepLoad(
        tokens=largest.tokens,
        logit_rows=largest.scored,
        trainable=adaptation.trainable,
        optimizer=stage.optimizer.name,
        bf16=precision.compute != precision.master,
        longest=largest.longest,
    )


def refuse_unopenable(experiment: Experiment, root: Path) -> None:
    """Raise what `load.check_loadable` does, InputError for stages that cannot train, and
    InputError where answers may be longer than the model reads. No weights are read."""
    folder = model_folder(experiment.model, root)
    config, _ = check_loadable(folder)
    if experiment.stage:
        refuse_untrainable(config, folder / CONFIG)
    positions = getattr(config, "max_position_embeddings", None)
    limits = {
        f"stage.{name}": stage.sampling.max_tokens
        for name, stage in experiment.stage.items()
        if isinstance(stage, SamplingStage)
    }
    limits |= {f"evaluate.{n}": e.sampling.max_tokens for n, e in experiment.evaluate.items()}
    for place, limit in limits.items():
        refuse_longer(f"{place}.sampling.max_tokens", limit, positions)
