"""Loads models from checkpoints: plain weights, a policy to train, or a folder as one whole model.

The checkpoint of a LoRA stage is an adapter over the stage's start, so the chain of starts is
followed to the base model. Nothing is trained or sampled here.
"""

import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from assay.data.files import built_once, cache_root, sha256_file, write_checksums
from assay.data.hashing import canonical_json, sha256_text
from assay.engines.proven_sampler import ProvenSampler
from assay.engines.vllm_engine import Opening, opened
from assay.experiment.checkpoint_reference import BASE, CheckpointReference
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import StageSpec, kept_reference
from assay.experiment.training_settings import FreezeAdapt, LoraAdapt
from assay.models.adapt import Adaptation, train_all, train_lora, train_unfrozen
from assay.models.folder import ADAPTER
from assay.models.load import LoadedModel, load_model
from assay.models.lora import LoraOptions, merged
from assay.models.precision import Precision, choose_precision
from assay.models.source import parse_source, resolve
from assay.models.supported import read_tokenizer
from assay.models.weight_files import load_weights, save_weights, stand_on
from assay.rollout.engines.register import TOKEN_ENGINES, Sampler, engine_of
from assay.rollout.policies.language import LanguagePolicy
from assay.runs.run_directory import RunDirectory
from assay.runs.run_names import (
    checked_directory,
    checkpoint_directory,
    located,
    resolve_checkpoint,
    run_checkpoint,
    stage_start,
)


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
        """The model of a checkpoint with any adapter merged, freshly read.

        Raises CheckpointDamaged where a file of it is not as it was written.
        """
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
        checkpoint = checked_directory(self.run, reference)
        if isinstance(stage.adapt, LoraAdapt):
            shelf, start = self.start(stage)
            adapted, _ = adapt(shelf.plain(start), stage)
            assert isinstance(adapted, PeftModel)
            load_weights(adapted, checkpoint)
            return adapted.eval()
        model = self.load_base().model
        load_weights(model, checkpoint)
        return model

    def start(self, stage: StageSpec) -> tuple["ModelShelf", CheckpointReference]:
        """The shelf of the run that holds a stage's start, and the start's name there."""
        run, reference = stage_start(self.run, stage)
        if run == self.run:
            return self, reference
        return ModelShelf(read_experiment(run.spec), run, self.base, self.precision), reference

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
        """The sampling engine that a model takes: vLLM where the experiment says so."""
        engine = self.experiment.engine
        if engine is not None and engine.sample == "vllm":
            adapts = [stage.adapt for stage in self.experiment.stage.values()]
            # Merged into bf16 weights, most of an adapter's small changes would be rounded away.
            low_rank = any(isinstance(adapt, LoraAdapt) for adapt in adapts)
            compute = self.precision.master if low_rank else self.precision.compute
            kind = str(compute).removeprefix("torch.")
            start = partial(opened, Opening(str(self.base), kind, self.precision.device))
            return ProvenSampler(start, module, end_tokens, compute)
        make = TOKEN_ENGINES[engine_of(module)]
        return make(module, end_tokens, self.precision.compute, processes)

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
            kind = bool(lora.rslora), bool(lora.dora)
            options = LoraOptions(lora.rank, lora.alpha, lora.targets, lora.dropout or 0.0, *kind)
            return train_lora(model, options)
        case FreezeAdapt(patterns=patterns):
            return train_unfrozen(model, patterns)
        case _:
            return train_all(model)


def model_folder(source: str, root: Path, images: bool = False) -> Path:
    """The local folder of a model source; `run:` names are looked up in the lab at `root`. With
    `images` the model may read them.
    """
    return resolve(
        parse_source(source),
        relative_to=root,
        resolve_run=lambda name: run_folder(name, root),
        images=images,
    )


def run_folder(name: str, root: Path) -> Path:
    """The folder of `NAME@STAGE.last` and the like as a whole model, which `load_model` compares
    with its checksums. Raises RunNotFound, and CheckpointDamaged for an adapter's.
    """
    run, reference, folder = run_checkpoint(name, root)
    return merged_folder(run, reference, folder) if (folder / ADAPTER).is_file() else folder


def merged_folder(run: RunDirectory, reference: CheckpointReference, adapter: Path) -> Path:
    """A whole model in the cache made of an adapter and what it was trained on."""
    run, reference = located(run, reference)
    experiment = read_experiment(run.spec)
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
