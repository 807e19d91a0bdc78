"""What a config asks for, against the headers of the weight files and the memory that is free.

No tensor is read and no layer made, so that a config with a million layers costs nothing. Which
weights are missing or misshapen is for the loading itself to say.
"""

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from safetensors import safe_open

from assay.models.folder import CONFIG, weight_files
from assay.models.memory import available_memory
from assay.models.supported import ModelUnsupported, shown

FLOATING = ("F64", "F32", "F16", "BF16")
"""Number formats of weights, as safetensors names them."""
OFF = 2
"""A config that asks for more than so many times the weights of the files is another model's."""


@dataclass(frozen=True, slots=True)
class Held:
    """The tensors of a model's weight files."""

    tensors: int
    values: int


def held(directory: Path) -> Held:
    """Counts of what the weight files hold. Raises ModelUnsupported for integers and the like."""
    tensors = values = 0
    for file in weight_files(directory):
        with safe_open(file, framework="pt") as weights:
            # The file has `keys` and is no mapping.
            for name in list(weights.keys()):
                part = weights.get_slice(name)
                if part.get_dtype() not in FLOATING:
                    problem = f"{name} holds {part.get_dtype()}, not weights"
                    raise ModelUnsupported(problem, file=file, fix=f"expected {FLOATING}")
                tensors, values = tensors + 1, values + prod(part.get_shape())
    return Held(tensors, values)


def least_weights(config: Any) -> int:
    """Weights of a model of `supported.FAMILIES` without norms and biases, the head tied."""
    size = (
        config.head_dim
        if getattr(config, "head_dim", None)
        else (config.hidden_size // config.num_attention_heads)
    )
    heads = 2 * (config.num_attention_heads + config.num_key_value_heads)
    layer = config.hidden_size * (heads * size + 3 * config.intermediate_size)
    return config.num_hidden_layers * layer + config.vocab_size * config.hidden_size


def refuse_oversized(directory: Path, config: Any, bytes_each: int) -> None:
    """Raise ModelUnsupported where the config asks for far more than there is: layers, weights, or
    main memory for weights of `bytes_each` bytes.
    """
    file, there, least = directory / CONFIG, held(directory), least_weights(config)
    if config.num_hidden_layers > there.tensors:
        raise ModelUnsupported(
            f"{shown(config.num_hidden_layers)} layers, and the weight files hold "
            f"{there.tensors} tensors",
            file=file,
            field="num_hidden_layers",
            fix="use the config that belongs to these weights",
        )
    if least > OFF * there.values:
        raise ModelUnsupported(
            f"asks for at least {least:,} weights, and its files hold {there.values:,}",
            file=file,
            fix="use the config that belongs to these weights",
        )
    free = available_memory("cpu")
    if least * bytes_each > free:
        needed = least * bytes_each
        raise ModelUnsupported(
            f"the weights need {needed / 2**30:.1f} GiB of memory and {free / 2**30:.1f} are free",
            file=directory,
            fix="use a smaller model, or a machine with more memory",
        )
