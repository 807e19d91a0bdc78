"""Builds everything a run needs, once: task, data, model, evaluations, fingerprints.

Trains and samples nothing.
"""

import gc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.data.renderings.exported_template import save_tokenizer
from assay.experiment.experiment import Experiment
from assay.experiment.reward_tables import RewardSettings
from assay.experiment.stage_tables import StageSpec
from assay.lab.monitor.observer import Observer
from assay.lab.setup.checkpoint_models import ModelShelf, model_folder
from assay.lab.setup.evaluation import RenderedEvaluation, rendered_evaluation, trained_rows
from assay.lab.setup.helper_models import HelperModels
from assay.lab.setup.prepare import DataSet, make_renderer, prepare, renderer_of
from assay.models.adapt import Adaptation, save_activations
from assay.models.memory import (
    MemoryEstimate,
    StepLoad,
    available_memory,
    choose_checkpointing,
    model_shape,
)
from assay.models.precision import Precision, choose_precision
from assay.runs.manifest_file import read_manifest
from assay.runs.run_directory import RunDirectory
from assay.sandbox.isolation import choose_isolation
from assay.tasks.running import RewardRunner, WeightedReward
from assay.tasks.task import RewardFunction, Task, task


@dataclass(frozen=True)
class BaseFacts:
    """Facts of the base model, kept after its weights are released."""

    tokenizer: Any
    fingerprint: str
    end_tokens: frozenset[int]
    config: Any

    @property
    def positions(self) -> int | None:
        """Tokens that the model can read at once; None where its configuration does not say."""
        return getattr(self.config, "max_position_embeddings", None)


@dataclass(frozen=True)
class Session:
    """One run at work. The parts are made when they are first asked for, then kept."""

    experiment: Experiment
    run: RunDirectory
    seed: int
    observer: Observer
    checked: Mapping[str, Any] | None = None
    """Findings before the run, see `lab.check.before_run`; None if it was not checked."""

    def __post_init__(self) -> None:
        choose_isolation(self.experiment.sandbox or "namespaces")

    def going_on(self, **changes: Any) -> "Session":
        """A copy with other fields; cached parts that do not depend on them are kept."""
        other = replace(self, **changes)
        parts = ["task", "precision", "base", "sets", "helpers"]
        parts += ["evaluations"] if other.seed == self.seed else []
        other.__dict__.update({p: self.__dict__[p] for p in parts if p in self.__dict__})
        return other

    @cached_property
    def task(self) -> Task:
        """The experiment's skill."""
        return task(self.experiment.task)

    @cached_property
    def precision(self) -> Precision:
        """The number formats that the run began in; those of the machine before it has started."""
        precision = choose_precision()
        noted = read_manifest(self.run).get("machine", {}).get("precision", {})
        if noted.get("device") != precision.device:
            return precision
        names = {"float32": torch.float32, "bfloat16": torch.bfloat16}
        compute = names.get(noted.get("compute"), precision.compute)
        return replace(precision, compute=compute, reason=str(noted.get("reason")))

    @cached_property
    def shelf(self) -> ModelShelf:
        """The loader of the run's models."""
        folder = model_folder(self.experiment.model, self.run.root)
        return ModelShelf(self.experiment, self.run, folder, self.precision)

    @cached_property
    def base(self) -> BaseFacts:
        """Tokenizer, fingerprint and end tokens of the base model; the weights are let go."""
        loaded = self.shelf.load_base()
        facts = BaseFacts(
            loaded.tokenizer, loaded.fingerprint, loaded.end_tokens, loaded.model.config
        )
        del loaded
        gc.collect()
        return facts

    @cached_property
    def sets(self) -> Mapping[str, DataSet]:
        """The experiment's data sets."""
        return {
            name: prepare(
                name,
                spec,
                self.task,
                renderer_of(self.experiment, name, self.base.tokenizer),
                self.run.root,
            )
            for name, spec in self.experiment.data.items()
        }

    @cached_property
    def evaluations(self) -> Mapping[str, RenderedEvaluation]:
        """The experiment's evaluations."""
        given = (self.task, self.sets, self.base.tokenizer, self.seed)
        trained = trained_rows(self.experiment, self.sets)
        return {
            name: rendered_evaluation(name, spec, *given, trained, self.run.root)
            for name, spec in self.experiment.evaluate.items()
        }

    @cached_property
    def helpers(self) -> HelperModels:
        """The experiment's helper models by name, each opened when it is first asked for."""
        return HelperModels(self.experiment.helpers, self.run.root, self.precision)

    def complete(self, stage: StageSpec, folder: Path) -> None:
        """Add the files to a checkpoint's folder that other programs need to answer as the run
        does."""
        save_tokenizer(make_renderer(self.base.tokenizer, stage.rendering), folder)
        self.shelf.complete(stage, folder)

    def reward_runner(
        self, reward: RewardFunction | WeightedReward, settings: RewardSettings
    ) -> RewardRunner:
        """A runner for a reward, in namespaces unless the experiment says otherwise."""
        return RewardRunner(
            reward,
            deadline=settings.reward_deadline,
            workers=settings.reward_workers,
            sandbox=self.experiment.sandbox or "namespaces",
        )


def fit_activations(
    session: Session, stage: StageSpec, module: nn.Module, adaptation: Adaptation
) -> MemoryEstimate:
    """Turn activation checkpointing on where a micro-batch would not fit without it.

    The gradients are the same either way. The weights are in memory already, so they are not
    asked for a second time.
    """
    precision = session.precision
    load = StepLoad(
        tokens=stage.micro_tokens,
        logit_rows=stage.micro_tokens // 2,
        trainable=adaptation.trainable,
        optimizer=stage.optimizer.name,
        bf16=precision.compute != precision.master,
    )
    shape = model_shape(session.base.config)
    free = available_memory(precision.device) + 4.0 * shape.parameters
    estimate = choose_checkpointing(shape, load, free)
    if estimate.checkpointing:
        save_activations(module)
        session.observer.note("activations are computed twice, because memory is short")
    return estimate
