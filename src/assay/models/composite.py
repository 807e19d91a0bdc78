"""The text model inside a checkpoint that is made of several, such as one that also reads images.

Its config becomes that of a causal language model and its weights are read by that model's names;
the other models' weights are never loaded. `write_back` puts trained weights in their place: files,
names, the other weights' bytes and all files beside them stay as they came.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedConfig

from assay.models.folder import CONFIG, INDEX, weight_files
from assay.models.quiet import quiet_transformers
from assay.models.supported import ModelUnsupported, read_object

HEAD = "lm_head.weight"


def is_composite(directory: Path, config: PreTrainedConfig) -> bool:
    """Whether the folder holds more than the model that `config`, of `read_config`, is of."""
    return read_object(directory / CONFIG).get("model_type") != config.model_type


@dataclass(frozen=True, slots=True)
class TextWeights:
    """Where the text model's weights lie in the files of a composite checkpoint."""

    files: Mapping[str, Path]
    """By the text model's own name."""
    names: Mapping[str, str]
    """The name in the file, by the text model's own."""


def text_weights(directory: Path, config: PreTrainedConfig) -> TextWeights:
    """Find the text model by its embedding, whose name ends as the text model's own does.

    Raises ModelUnsupported unless there is exactly one.
    """
    embedding, first, parts = own_names(config)
    body = embedding.removeprefix(first)
    where = {name: file for file in weight_files(directory) for name in names_of(file)}
    layers = [name.split(".")[0] for name in parts if name != body.split(".")[0]]
    prefixes = [
        prefix
        for name in where
        if (prefix := name.removesuffix(body)) != name
        and (not prefix or prefix.endswith("."))
        and any(other.startswith(f"{prefix}{layer}.") for other in where for layer in layers)
    ]
    heads = [name for name in where if name == HEAD or name.endswith(f".{HEAD}")]
    if len(prefixes) != 1 or len(heads) > 1:
        problem = f"its files hold {len(prefixes)} text models and {len(heads)} heads"
        raise ModelUnsupported(problem, file=directory, fix="copy or download it again")
    (prefix,) = prefixes
    names = {
        first + rest: name
        for name in where
        if (rest := name.removeprefix(prefix)) != name or not prefix
        if rest.split(".")[0] in parts
    }
    names |= {HEAD: name for name in heads}
    return TextWeights({own: where[name] for own, name in names.items()}, names)


def own_names(config: PreTrainedConfig) -> tuple[str, str, set[str]]:
    """The name of a causal model's embedding, the prefix of its body, and the body's parts."""
    with quiet_transformers(), torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    embedding = model.get_input_embeddings().weight
    name = next(n for n, parameter in model.named_parameters() if parameter is embedding)
    first = name.split(".")[0] + "."
    parts = {n.removeprefix(first).split(".")[0] for n in model.state_dict() if n.startswith(first)}
    return name, first, parts


def names_of(file: Path) -> list[str]:
    """The tensors of a safetensors file."""
    with safe_open(file, framework="pt") as weights:
        return list(weights.keys())


def text_state(directory: Path, config: PreTrainedConfig) -> dict[str, Tensor]:
    """The text model's tensors as its files hold them, by its own names. Raises ModelUnsupported."""
    found = text_weights(directory, config)
    state: dict[str, Tensor] = {}
    for file in sorted(set(found.files.values())):
        with safe_open(file, framework="pt") as weights:
            for own, name in found.names.items():
                if found.files[own] == file:
                    state[own] = weights.get_tensor(name)
    return state


def write_back(
    directory: Path,
    config: PreTrainedConfig,
    state: Mapping[str, Tensor],
    folder: Path,
    dtype: torch.dtype | None,
) -> None:
    """Write the checkpoint of `directory` into `folder` with the text model's weights replaced.

    `state` has the text model's names; its numbers are written in `dtype`, or in that of the tensor
    they replace. Raises ModelUnsupported where the two do not hold the same weights.
    """
    names = text_weights(directory, config).names
    refuse_others(names, state, directory)
    own = {name: one for one, name in names.items()}
    size = 0
    for file in weight_files(directory):
        with safe_open(file, framework="pt") as weights:
            tensors = dict(replaced(weights, own, state, dtype))
            save_file(tensors, folder / file.name, metadata=weights.metadata())
        (folder / file.name).chmod(0o644)
        size += sum(tensor.nbytes for tensor in tensors.values())
    for file in kept_files(directory):
        shutil.copyfile(file, folder / file.name)
    index = folder / INDEX
    if index.is_file():
        stated = json.loads(index.read_text(encoding="utf-8"))
        if stated.get("metadata", {}).get("total_size") not in (None, size):
            stated["metadata"]["total_size"] = size
            index.write_text(json.dumps(stated, indent=2) + "\n", encoding="utf-8")


def refuse_others(
    names: Mapping[str, str], state: Mapping[str, Tensor], directory: Path
) -> None:
    """Raise ModelUnsupported unless both have the same weights; a tied head may be in the files too."""
    differ = sorted((names.keys() ^ state.keys()) - {HEAD})
    if differ:
        problem = f"the text model's weights have other names in its files: {', '.join(differ[:3])}"
        raise ModelUnsupported(problem, file=directory, fix="export a model of another family")


def replaced(
    weights: Any, own: Mapping[str, str], state: Mapping[str, Tensor], dtype: torch.dtype | None
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of one file. A head that the model ties is the embedding."""
    for name in list(weights.keys()):
        old = weights.get_tensor(name)
        trained = state.get(own.get(name, ""))
        if trained is None and own.get(name) == HEAD:
            trained = next(t for n, t in state.items() if n.endswith("embed_tokens.weight"))
        yield name, old if trained is None else trained.to(dtype or old.dtype).contiguous()


UNKEPT = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


def kept_files(directory: Path) -> Iterator[Path]:
    """Configs, tokenizer, processor and whatever else lies beside the weights."""
    for file in sorted(directory.iterdir()):
        if file.is_file() and file.suffix not in UNKEPT and not file.name.startswith("."):
            yield file
