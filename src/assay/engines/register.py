"""Registers who samples completions, by the names that `[engine] sample` has.

`own` are the engines of `rollout`. To add an engine, write its factory and enter it in `SAMPLERS`,
and its name in `experiment.tables`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.engines.environments import ENVIRONMENTS, TORCH, need_vllm
from assay.engines.proven_sampler import ProvenSampler
from assay.engines.vllm_engine import Opening, opened
from assay.experiment.experiment import Experiment
from assay.experiment.tables import patience_seconds
from assay.experiment.training_settings import LoraAdapt
from assay.models.precision import Precision
from assay.rollout.engines.register import Sampler, sampler_here


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a sampler is made for."""

    module: nn.Module
    end_tokens: frozenset[int]
    experiment: Experiment
    precision: Precision
    base: Path
    """Folder of the experiment's base model."""
    processes: int = 1
    """How many may share a batch."""


def own(wanted: Wanted) -> Sampler:
    """The engine of `rollout` that computes such a model."""
    compute = wanted.precision.compute
    return sampler_here(wanted.module, wanted.end_tokens, compute, wanted.processes)


def vllm(wanted: Wanted) -> Sampler:
    """vLLM, which is started at the first sample and shared."""
    compute = vllm_compute(wanted.experiment, wanted.precision)
    kind = str(compute).removeprefix("torch.")
    patience = patience_seconds(wanted.experiment.engine)
    start = partial(opened, Opening(str(wanted.base), kind, wanted.precision.device, patience))
    return ProvenSampler(start, wanted.module, wanted.end_tokens, compute)


def vllm_compute(experiment: Experiment, precision: Precision) -> torch.dtype:
    """The type that vLLM computes in: merged into bf16 weights, most of an adapter's small changes
    would be rounded away."""
    adapts = [stage.adapt for stage in experiment.stage.values()]
    adapted = any(isinstance(adapt, LoraAdapt) for adapt in adapts)
    return precision.master if adapted else precision.compute


SAMPLERS: dict[str, Callable[[Wanted], Sampler]] = {"own": own, "vllm": vllm}


def name_of(experiment: Experiment) -> str:
    """Who samples the completions of an experiment."""
    return "own" if experiment.engine is None else experiment.engine.sample


def sampler_of(wanted: Wanted) -> Sampler:
    """The sampler that an experiment asks for."""
    return SAMPLERS[name_of(wanted.experiment)](wanted)


def recorded(experiment: Experiment, precision: Precision) -> dict[str, Any]:
    """What a manifest says of an engine that is not `own`."""
    if name_of(experiment) == "own":
        return {}
    compute = str(vllm_compute(experiment, precision)).removeprefix("torch.")
    return {"engine": {"sample": name_of(experiment), "compute": compute}}


def packages_of(experiment: Experiment) -> dict[str, str]:
    """The engine's package and its version, which stand in no environment of Assay's."""
    if name_of(experiment) == "own":
        return {}
    pins = ENVIRONMENTS[need_vllm()].requirements
    return dict(pin.split("==") for pin in pins if pin != TORCH)  # type: ignore[misc]
