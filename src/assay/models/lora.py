"""LoRA adapters through peft: put on, switched off for a while, merged.

Their files are written and read by `weight_files`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from transformers import PreTrainedModel

from assay.errors import InputError, nearest
from assay.models.dropout import KeyedDropout
from assay.models.lora_layer import PackedLora
from assay.models.quiet import old_names_of_peft

ALL_LINEAR = "all-linear"


class LoraTargetError(InputError):
    """A LoRA target names no linear layer, or one that must not be adapted."""


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """Hu et al., 2021: W + (alpha / rank) B A, A (rank, in) random and B (out, rank) 0 at first."""

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] = (ALL_LINEAR,)
    """Names of linear layers, or the ends of their dotted names; `all-linear` is all of them but
    the output head."""
    dropout: float = 0.0
    """Share of each layer's input that its adapter does not see in training."""


def add_lora(
    model: PreTrainedModel, options: LoraOptions
) -> tuple[PeftModel, dict[str, tuple[str, ...]]]:
    """Freeze the model and put a fresh adapter on it.

    The adapter's A is drawn from torch's global generator. Returns the adapted model, which
    shares the weights of `model`, and the layers that each target matched.
    Raises LoraTargetError with the nearest names when a target matches nothing.
    """
    matched = match_targets(model, options.targets)
    layers = sorted({name for names in matched.values() for name in names})
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=options.rank,
        lora_alpha=options.alpha,  # type: ignore[arg-type]
        lora_dropout=options.dropout,
        target_modules=layers,
    )
    config._register_custom_module({nn.Linear: PackedLora})
    with old_names_of_peft():
        adapted = get_peft_model(model, config)
    assert isinstance(adapted, PeftModel)
    if options.dropout:
        for name, layer in adapted.named_modules():
            if isinstance(layer, PackedLora):
                layer.lora_dropout["default"] = KeyedDropout(options.dropout, name)
    return adapted, matched


def match_targets(model: PreTrainedModel, targets: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The linear layers that each target names; LoraTargetError when one names none."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    head = model.get_output_embeddings()
    body = tuple(name for name in linear if model.get_submodule(name) is not head)
    matched = {
        target: body
        if target == ALL_LINEAR
        else tuple(name for name in linear if f".{name}".endswith(f".{target}"))
        for target in targets
    }
    for target, names in matched.items():
        if not names:
            ends = {name.rpartition(".")[2] for name in linear} | {ALL_LINEAR}
            raise LoraTargetError(
                f"target {target!r} names no linear layer",
                field="adapt.targets",
                fix=nearest(target, ends),
            )
        if head is model.get_submodule(names[0]) and model.config.tie_word_embeddings:
            raise LoraTargetError(
                f"target {target!r} shares its weight with the embedding",
                field="adapt.targets",
                fix="merging would change the embedding too; leave the head out",
            )
    return matched


@contextmanager
def adapter_free(model: PeftModel) -> Iterator[None]:
    """Inside, the model answers as if it had no adapter: the KL reference of a LoRA run."""
    with model.disable_adapter():
        yield


def merged(model: PeftModel) -> PreTrainedModel:
    """The plain model with the adapter added into its weights; `model` is used up."""
    return model.merge_and_unload(safe_merge=True)
