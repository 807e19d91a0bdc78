"""Checks that a model's folder is complete before anything is loaded from it.

Reads names, the shard index and file headers; tensors are read by `load`.
"""

import json
from pathlib import Path, PurePosixPath

from safetensors import SafetensorError, safe_open

from assay.errors import InputError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_model.safetensors"
MODULE = "module.safetensors"
"""Weights of what is no language model."""
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")


def check_model_folder(directory: Path) -> None:
    """Raise InputError unless config, tokenizer and every whole weight file are there."""
    if directory.is_file():
        fix = "name the model's folder, or a .gguf file"
        raise InputError("is a file", file=directory, fix=fix)
    if not directory.is_dir():
        raise InputError("no such folder", file=directory)
    if not (directory / CONFIG).is_file():
        raise InputError("is missing", file=directory / CONFIG, fix="not a model folder?")
    for shard in weight_files(directory):
        check_whole(shard)
    if not any((directory / name).is_file() for name in TOKENIZERS):
        problem = "has no tokenizer"
        raise InputError(problem, file=directory, fix="expected " + " or ".join(TOKENIZERS))


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model, each of which exists; InputError otherwise.

    A lone `model.safetensors` wins over an index, as in Transformers.
    """
    if (directory / WEIGHTS).is_file():
        return [directory / WEIGHTS]
    if (directory / INDEX).is_file():
        return _indexed_files(directory)
    fix = f"expected {WEIGHTS} or {INDEX}"
    if any(directory.glob("*.bin")):
        fix = "pickled .bin weights are not read; convert them to safetensors"
    elif (directory / ADAPTER).is_file():
        fix = "it holds a LoRA adapter only; load its base model, or merge and save it first"
    raise InputError("has no weights", file=directory, fix=fix)


def _indexed_files(directory: Path) -> list[Path]:
    index = directory / INDEX
    try:
        shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        entries = dict(shards)
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise InputError("is not a shard index", file=index, field="weight_map") from error
    for tensor, name in entries.items():
        if not isinstance(name, str) or not name:
            problem = f"{name!r} is no file name"
            fix = "copy or download it again"
            raise InputError(problem, file=index, field=f"weight_map.{tensor}", fix=fix)
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\0" in name:
            problem = f"{name!r} leaves the model's folder"
            fix = "its shards lie beside it"
            raise InputError(problem, file=index, field=f"weight_map.{tensor}", fix=fix)
    names = sorted(set(entries.values()))
    if not names:
        raise InputError("names no shard", file=index, field="weight_map")
    missing = [name for name in names if not (directory / name).is_file()]
    if missing:
        problem = f"missing shard {', '.join(missing)}"
        raise InputError(problem, file=index, fix="copy or download it again")
    return [directory / name for name in names]


def check_whole(file: Path) -> None:
    """Raise InputError when a safetensors file is cut short or is something else."""
    try:
        with safe_open(file, framework="np"):
            pass
    except SafetensorError as error:
        problem = f"is not a whole safetensors file: {error}"
        raise InputError(problem, file=file, fix="copy or download it again") from error
