"""A checkpoint's weight files: the whole model, or its adapter alone, as safetensors.

Written and fsynced into a directory that the caller renames when it is complete; read back
strictly. Optimizer and random state are the trainer's.
"""

import json
from math import isclose
from pathlib import Path
from typing import Any

from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from assay.data.built_once import fsync_path
from assay.errors import InputError
from assay.models.folder import (
    ADAPTER,
    CONFIG,
    WEIGHTS,
    ModelFolderError,
    check_whole,
    weight_files,
)
from assay.models.stacked import ADAPTER_CONFIG, own_adapter
from assay.models.state_dicts import copy_strictly, untied_state

METADATA = {"format": "pt"}


class ArchitectureMismatch(InputError):
    """A checkpoint belongs to a model of another kind."""


def save_weights(
    model: PreTrainedModel | PeftModel,
    directory: Path,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> None:
    """Write the model's weights into `directory`, which exists, and fsync them.

    A LoRA model's adapter alone, as peft names its files; otherwise the whole model with tied
    weights once and its config. With the tokenizer the folder of a whole model is complete: any
    program of the ecosystem loads it, and `path:` does.
    """
    if isinstance(model, PeftModel):
        state = {name: t.contiguous() for name, t in _adapter_state(model).items()}
        save_file(state, directory / ADAPTER, metadata=METADATA)
        model.peft_config["default"].save_pretrained(str(directory))
    else:
        save_file(whole_state(model), directory / WEIGHTS, metadata=METADATA)
        # As Transformers' own save does: a model built from a config does not name itself yet.
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(directory)
        model.generation_config.save_pretrained(directory)  # type: ignore[union-attr]
    if tokenizer is not None:
        tokenizer.save_pretrained(directory)
    for path in [*directory.iterdir(), directory]:
        fsync_path(path)


def whole_state(model: PreTrainedModel) -> dict[str, Tensor]:
    """The weights by name, each tied one under the name that Transformers files have.

    Programs that read files by name (vLLM, llama.cpp) look for the embedding and not for the head.
    """
    ties = model.get_expanded_tied_weights_keys(all_submodels=True)
    state = model.state_dict()
    kept = {name: tensor for name, tensor in state.items() if name not in ties}
    return {name: tensor.contiguous() for name, tensor in untied_state(kept).items()}


def load_weights(model: PreTrainedModel | PeftModel, directory: Path) -> None:
    """Read a checkpoint of this very model back into it, completely or not at all.

    Raises ModelFolderError (a file is absent or damaged), ArchitectureMismatch, StateDictMismatch
    (with every key).
    """
    if isinstance(model, PeftModel):
        copy_strictly(_adapter_state(model), _read_adapter(model, directory), file=directory)
        return
    _check_architecture(model, directory)
    files = weight_files(directory)
    for file in files:
        check_whole(file)
    state = {name: tensor for file in files for name, tensor in load_file(file).items()}
    copy_strictly(model.state_dict(), state, file=directory)


def _adapter_state(model: PeftModel) -> dict[str, Tensor]:
    """The adapter's tensors, sharing storage with the model, under peft's file names."""
    return get_peft_model_state_dict(model, save_embedding_layers=False)


def _read_adapter(model: PeftModel, directory: Path) -> dict[str, Tensor]:
    """The stage's own adapter, once its config is seen to be that of the model's adapter."""
    stored = own_adapter(directory)
    config = model.peft_config["default"].to_dict()
    for key in ("peft_type", "r", "lora_alpha", "use_rslora"):
        if not _equal(stored.config.get(key), config.get(key)):
            raise ArchitectureMismatch(
                f"adapter has {stored.config.get(key)}, the model's has {config.get(key)}",
                file=directory / ADAPTER_CONFIG,
                field=key,
            )
    return stored.tensors


def _equal(one: Any, other: Any) -> bool:
    """Equal, numbers up to rounding: a stacked adapter's alpha was multiplied and divided."""
    if isinstance(one, float) and isinstance(other, float | int):
        return isclose(one, other)
    return one == other


def _check_architecture(model: PreTrainedModel, directory: Path) -> None:
    file = directory / CONFIG
    if not file.is_file():
        raise ModelFolderError("is missing", file=file, fix="not a checkpoint of a whole model?")
    theirs, ours = _read_json(file).get("architectures") or [], type(model).__name__
    if theirs != [ours]:
        raise ArchitectureMismatch(
            f"checkpoint of {', '.join(theirs) or 'an unnamed architecture'}, the model is {ours}",
            file=file,
            field="architectures",
            fix="load it with its own base model",
        )


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise ModelFolderError(f"is not JSON: {error}", file=file, line=error.lineno) from error
