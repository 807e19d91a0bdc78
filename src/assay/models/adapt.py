"""Chooses what of a model is trained: everything, a LoRA adapter, or all but what is frozen.

Returns the share that is trained as data, for the display and the manifest. How adapters and
name patterns work is in `lora` and `freeze`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel

from assay.errors import InputError
from assay.models.freeze import freeze_matching
from assay.models.lora import LoraOptions, add_lora

Kind = Literal["full", "lora", "freeze"]


class NothingToTrain(InputError):
    """The adaptation freezes every weight."""


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What of the model is trained."""

    kind: Kind
    trainable: int
    """Weights that receive gradients, tied ones once."""
    total: int
    """All weights, an adapter's included, tied ones once."""
    matched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Each LoRA target or freeze pattern, with the names it matched."""

    @property
    def share(self) -> float:
        """Trained weights as a fraction of all."""
        return self.trainable / self.total


def train_all(model: PreTrainedModel) -> tuple[PreTrainedModel, Adaptation]:
    """Train every weight."""
    model.requires_grad_(True)
    return model, measure(model, "full", {})


def train_lora(model: PreTrainedModel, options: LoraOptions) -> tuple[PeftModel, Adaptation]:
    """Train a fresh LoRA adapter and nothing else; raises LoraTargetError."""
    adapted, matched = add_lora(model, options)
    return adapted, measure(adapted, "lora", matched)


def train_unfrozen(
    model: PreTrainedModel, patterns: tuple[str, ...]
) -> tuple[PreTrainedModel, Adaptation]:
    """Train all weights but those whose names match a pattern.

    Raises FreezePatternError for a pattern without a match, NothingToTrain when all is frozen.
    """
    matched = freeze_matching(model, patterns)
    adaptation = measure(model, "freeze", matched)
    if not adaptation.trainable:
        raise NothingToTrain("every weight is frozen", field="adapt.patterns", fix="drop a pattern")
    return model, adaptation


def measure(model: nn.Module, kind: Kind, matched: Mapping[str, tuple[str, ...]]) -> Adaptation:
    """Count the weights of a model that has been adapted."""
    parameters = list(model.parameters())
    trainable = sum(p.numel() for p in parameters if p.requires_grad)
    return Adaptation(kind, trainable, sum(p.numel() for p in parameters), matched)


def save_activations(model: nn.Module) -> None:
    """Activation checkpointing: layers keep only their input and run again going backward."""
    # Transformers renamed it within the versions that Assay works with.
    enable: Any = getattr(model, "activation_checkpointing_enable", None)
    enable = enable or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
