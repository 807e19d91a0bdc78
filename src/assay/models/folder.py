"""Checks that a model's folder is complete before anything is loaded from it, and compares the
weights of two: whether they are the same, how many differ, by how much.

Reads names, the shard index, file headers and, without torch, values; models are read by `load`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
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


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises InputError."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
        raise ValueError(f"it holds {type(content).__name__}")
    except (OSError, ValueError, RecursionError) as error:
        why, line = " ".join(str(error).split())[:200], getattr(error, "lineno", None)
        fix = "copy or download it again"
        raise InputError(f"is no JSON object: {why}", file=file, line=line, fix=fix) from error


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


TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}
TYPES |= {"I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"}
"""NumPy's types by the format's names; it has none for bf16, the upper half of an fp32."""


@dataclass(frozen=True, slots=True)
class WeightDifference:
    """How two sets of weights with the same names and shapes differ."""

    values: int
    changed: int
    moved: float
    """Sum of the absolute differences."""

    @property
    def share(self) -> float:
        """Share of the values that differ."""
        return self.changed / self.values

    @property
    def mean(self) -> float:
        """Mean absolute difference over all values, those that did not change too."""
        return self.moved / self.values


def compare_weights(control: Path, other: Path) -> WeightDifference | None:
    """The values that differ between two checkpoint folders.

    None where they cannot be laid side by side: an adapter beside a whole model, other names,
    other shapes, a type that NumPy cannot read. Raises InputError where a folder has no
    weights.
    """
    left, right = _places(control), _places(other)
    if left.keys() != right.keys():
        return None
    values, changed, moved = 0, 0, 0.0
    for name in left:
        one, two = _tensor(left[name], name), _tensor(right[name], name)
        if one is None or two is None or one.shape != two.shape:
            return None
        values += one.size
        changed += int((one != two).sum())
        moved += float(np.abs(one.astype(np.float64) - two.astype(np.float64)).sum())
    return WeightDifference(values, changed, moved)


def _places(folder: Path) -> Mapping[str, Path]:
    """The file of every tensor: an adapter's or a module's where there is one, else the model's."""
    alone = [folder / name for name in (ADAPTER, MODULE) if (folder / name).is_file()]
    files = alone or weight_files(folder)
    places = {}
    for file in files:
        check_whole(file)
        with safe_open(file, framework="np") as weights:
            places |= dict.fromkeys(weights.keys(), file)
    return places


def _tensor(file: Path, name: str) -> NDArray[np.generic] | None:
    """A tensor's values, mapped from the file (eight bytes of the header's length, the header as
    JSON, the data); None for a type that NumPy lacks."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        entry = json.loads(stream.read(length))[name]
    kind, shape = TYPES.get(entry["dtype"]), tuple(entry["shape"])
    if kind is None:
        return None
    if 0 in shape:
        return np.zeros(shape, kind)
    begin = 8 + length + entry["data_offsets"][0]
    values = np.memmap(file, kind, "r", begin, shape)
    if entry["dtype"] != "BF16":
        return values
    return (values.astype(np.uint32) << 16).view(np.float32)
