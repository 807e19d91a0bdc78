"""The text model inside a checkpoint that is made of several, such as one that also reads images.

Its config becomes that of a causal language model and its weights are read by that model's names;
the other models' weights are never loaded. `write_back` puts trained weights in their place: files,
names, the other weights' bytes and all files beside them stay as they came.
"""

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig

from assay.errors import InputError
from assay.models.folder import CONFIG, INDEX, read_object, weight_files
from assay.models.supported import quiet_transformers

HEAD = "lm_head.weight"
UNKEPT = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
"""Of what lies beside the weights all else is kept."""


def is_composite(directory: Path, config: PreTrainedConfig) -> bool:
    """Whether the folder holds more than the model that `config`, of `read_config`, is of."""
    stated = str(read_object(directory / CONFIG).get("model_type"))
    return stated in CONFIG_MAPPING and not isinstance(config, CONFIG_MAPPING[stated])


def text_weights(directory: Path, config: PreTrainedConfig) -> dict[str, tuple[str, Path]]:
    """The text model's weights by its own names: name and file in a composite checkpoint. It is
    found by its embedding, whose name ends as the text model's own does.

    Raises InputError unless there is exactly one.
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
        raise InputError(problem, file=directory, fix="copy or download it again")
    (prefix,) = prefixes
    names = {
        first + rest: name
        for name in where
        if (rest := name.removeprefix(prefix)) != name or not prefix
        if rest.split(".")[0] in parts
    }
    if heads:
        names[HEAD] = heads[0]
    return {own: (name, where[name]) for own, name in names.items()}


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
    """The text model's tensors as its files hold them, by its own names."""
    tensors = text_weights(directory, config)
    state: dict[str, Tensor] = {}
    for file in sorted({file for _, file in tensors.values()}):
        with safe_open(file, framework="pt") as weights:
            state |= {own: weights.get_tensor(n) for own, (n, at) in tensors.items() if at == file}
    return state


def write_back(
    directory: Path,
    config: PreTrainedConfig,
    states: Iterable[dict[str, Tensor]],
    folder: Path,
    dtype: torch.dtype | None,
) -> frozenset[torch.dtype]:
    """Write the checkpoint of `directory` into `folder` with the text model's weights replaced.

    `states` hold the same weights by the names that they may have in files; numbers are written in
    `dtype`, or in that of the tensor they replace. Returns the formats of the text model's. Raises
    InputError where no names are those of the files.
    """
    names = {own: name for own, (name, _) in text_weights(directory, config).items()}
    state = in_names(names, states, directory, config)
    own = {name: one for one, name in names.items()}
    size, formats = 0, set[torch.dtype]()
    for file in weight_files(directory):
        with safe_open(file, framework="pt") as weights:
            tensors = dict(replaced(weights, own, state, dtype))
            save_file(tensors, folder / file.name, metadata=weights.metadata())
        (folder / file.name).chmod(0o644)  # safetensors' own are readable by their owner only
        size += sum(tensor.nbytes for tensor in tensors.values())
        formats |= {tensor.dtype for name, tensor in tensors.items() if name in own}
    for file in sorted(directory.iterdir()):
        if file.is_file() and file.suffix not in UNKEPT and not file.name.startswith("."):
            shutil.copyfile(file, folder / file.name)
    if (index := folder / INDEX).is_file():
        # Another number format changes the total size that it states.
        stated = json.loads(index.read_text(encoding="utf-8"))
        if stated.get("metadata", {}).get("total_size", size) != size:
            stated["metadata"]["total_size"] = size
            index.write_text(json.dumps(stated, indent=2) + "\n", encoding="utf-8")
    return frozenset(formats)


def in_names(
    names: Mapping[str, str],
    states: Iterable[dict[str, Tensor]],
    directory: Path,
    config: PreTrainedConfig,
) -> dict[str, Tensor]:
    """The state that has the names of the files; a tied head is there if the files have one."""
    differ: set[str] = set()
    for state in states:
        if HEAD in names and HEAD not in state:
            state = state | {HEAD: state[own_names(config)[0]]}
        differ = names.keys() ^ state.keys()
        if not differ:
            return state
    problem = (
        f"the text model's weights have other names in its files: {', '.join(sorted(differ)[:3])}"
    )
    raise InputError(problem, file=directory, fix="it is not written back")


def replaced(
    weights: Any, own: Mapping[str, str], state: Mapping[str, Tensor], dtype: torch.dtype | None
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of one file."""
    for name in list(weights.keys()):
        old = weights.get_tensor(name)
        if name in own:
            # Tied weights share memory, which a file does not.
            yield name, state[own[name]].detach().to(dtype or old.dtype, copy=True).contiguous()
        else:
            yield name, old
