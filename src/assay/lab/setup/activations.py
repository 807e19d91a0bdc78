"""Decides by the memory estimate whether a stage keeps its activations or computes them twice."""

from torch import nn

from assay.experiment.stage_tables import StageSpec
from assay.lab.setup.session import Session
from assay.models.adapt import Adaptation, save_activations
from assay.models.memory import (
    MemoryEstimate,
    StepLoad,
    available_memory,
    choose_checkpointing,
    model_shape,
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
