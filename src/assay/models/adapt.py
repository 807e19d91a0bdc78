"""Chooses which weights are trained: all, a LoRA adapter, or all but those frozen by name.

Frozen names are `fnmatch` patterns. Returns the trained share as data, for the display and the
manifest; adapters themselves are in `lora`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

from peft import PeftModel
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from assay.errors import InputError, nearest
from assay.models.lora import ALL_LINEAR, LoraOptions, add_lora, left_out


def freeze_matching(model: nn.Module, patterns: Sequence[str]) -> None:
    """Freeze what matches, train the rest.

    A tied weight is frozen when any of its names matches. Raises InputError, before
    anything changes, with the nearest names when a pattern matches nothing.
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    matched = {p: tuple(name for name in named if fnmatchcase(name, p)) for p in patterns}
    for pattern, names in matched.items():
        if not names:
            problem = f"pattern {pattern!r} matches no weight"
            raise InputError(problem, field="adapt.patterns", fix=nearest(pattern, named))
    model.requires_grad_(True)
    for names in matched.values():
        for name in names:
            named[name].requires_grad_(False)


Kind = Literal["full", "lora", "freeze"]


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What of the model is trained."""

    kind: Kind
    trainable: int
    """Weights that receive gradients, tied ones once."""
    total: int
    """All weights, an adapter's included, tied ones once."""
    narrow: tuple[str, ...] = ()
    """Layers of which one side is smaller than the adapter's rank."""
    left_out: tuple[str, ...] = ()
    """Linear layers that `all-linear` does not adapt: an adapter would do nothing there."""

    @property
    def share(self) -> float:
        """Trained weights as a fraction of all."""
        return self.trainable / self.total

    @property
    def left(self) -> str:
        """What `all-linear` leaves out, in words; empty for nothing."""
        ends = sorted({name.rpartition(".")[2] for name in self.left_out})
        return f"{ALL_LINEAR} leaves out {', '.join(ends)}" if ends else ""


Module = TypeVar("Module", bound=nn.Module)


def train_all(model: Module) -> tuple[Module, Adaptation]:
    """Train every weight."""
    model.requires_grad_(True)
    return model, measure(model, "full")


def train_lora(model: PreTrainedModel, options: LoraOptions) -> tuple[PeftModel, Adaptation]:
    """Train a fresh LoRA adapter and nothing else; raises InputError."""
    unread = left_out(model) if ALL_LINEAR in options.targets else ()
    adapted, layers = add_lora(model, options)
    thin = tuple(n for n in layers if min(model.get_parameter(f"{n}.weight").shape) < options.rank)
    return adapted, replace(measure(adapted, "lora"), left_out=unread, narrow=thin)


def train_unfrozen(model: Module, patterns: Sequence[str]) -> tuple[Module, Adaptation]:
    """Train all weights but those whose names match a pattern.

    Raises InputError for a pattern without a match, and where all is frozen.
    """
    freeze_matching(model, patterns)
    adaptation = measure(model, "freeze")
    if not adaptation.trainable:
        raise InputError("every weight is frozen", field="adapt.patterns", fix="drop a pattern")
    return model, adaptation


def measure(model: nn.Module, kind: Kind) -> Adaptation:
    """Count the weights of a model that has been adapted."""
    parameters = list(model.parameters())
    trainable = sum(p.numel() for p in parameters if p.requires_grad)
    return Adaptation(kind, trainable, sum(p.numel() for p in parameters))


def save_activations(model: nn.Module) -> None:
    """Activation checkpointing: layers keep only their input and run again going backward."""
    # Transformers renamed it within the versions that Assay works with.
    enable: Any = getattr(model, "activation_checkpointing_enable", None)
    enable = enable or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    # Layers do so in training mode only, and on the plain path the model is in evaluation mode.
    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer) and not layer.training:
            layer.training = True
            for name, value in vars(layer).items():
                if "dropout" in name and isinstance(value, float):
                    setattr(layer, name, 0.0)
