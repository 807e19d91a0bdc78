"""Reads features that were made elsewhere: one vector for each id, and what it was made of.

An `.npz` holds the arrays `ids` (N texts), `features` (N, D) and `sha256` (N texts), a
`.safetensors` the tensor `features` and, in its metadata, `ids` and `sha256` as JSON lists. The
hash is of what each vector was made of: the question's text in UTF-8, with the bytes of its images
behind it. A vector of something else than what is asked for is refused.
"""

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor

from assay.data.files import sha256_file
from assay.data.loaded import check_file
from assay.errors import InputError

ENDINGS = (".npz", ".safetensors")
ARRAYS = ("ids", "features", "sha256")


@dataclass(frozen=True)
class Precomputed:
    """The vectors of a file."""

    file: Path
    fingerprint: str
    """The sha256 of the file."""
    vectors_ND: Tensor = field(repr=False)
    """Unit vectors."""
    places: Mapping[str, tuple[int, str]] = field(repr=False)
    """By id: its row, and the sha256 of what that was made of."""

    @property
    def width(self) -> int:
        """D."""
        return self.vectors_ND.shape[1]

    def of(self, ids: Sequence[str], hashes: Sequence[str]) -> Tensor:
        """The vectors (N, D) of ids whose content has these hashes. Raises InputError."""
        for name, content in zip(ids, hashes, strict=True):
            if name not in self.places:
                fix = f"it holds {len(self.places)} ids, such as {next(iter(self.places), None)!r}"
                raise InputError(f"no features of {name!r}", file=self.file, fix=fix)
            if (stored := self.places[name][1]) != content:
                problem = f"{name!r} was made of something else"
                problem += f": its sha256 begins with {stored[:12]}, the row's with {content[:12]}"
                fix = "make them again: sha256 is of the text in UTF-8 and the bytes of its images"
                raise InputError(problem, file=self.file, field="sha256", fix=fix)
        return self.vectors_ND[[self.places[name][0] for name in ids]]


def read_precomputed(file: Path) -> Precomputed:
    """The features of a file. Raises InputError."""
    check_file(file)
    read = _npz if file.suffix == ".npz" else _safetensors
    try:
        ids, vectors_ND, hashes = read(file)
    except (KeyError, ValueError, OSError, zipfile.BadZipFile, SafetensorError) as error:
        why = " ".join(str(error).split())[:200]
        fix = f"it holds {', '.join(ARRAYS)}"
        raise InputError(f"cannot be read: {why}", file=file, fix=fix) from None
    if vectors_ND.dim() != 2 or not len(ids) == len(hashes) == len(vectors_ND) == len({*ids}):
        shape = tuple(vectors_ND.shape)
        problem = f"features of shape {shape} for {len({*ids})} ids and {len(hashes)} hashes"
        raise InputError(problem, file=file, fix="features are (N, D), ids and sha256 N each")
    if not vectors_ND.isfinite().all():
        raise InputError("holds numbers that are not finite", file=file, field="features")
    places = {name: (n, hashes[n]) for n, name in enumerate(ids)}
    return Precomputed(file, sha256_file(file), F.normalize(vectors_ND, dim=-1), places)


def _npz(file: Path) -> tuple[list[str], Tensor, list[str]]:
    with np.load(file, allow_pickle=False) as found:
        ids, features, hashes = (found[name] for name in ARRAYS)
    return [*map(str, ids)], torch.from_numpy(features.astype("<f4")), [*map(str, hashes)]


def _safetensors(file: Path) -> tuple[list[str], Tensor, list[str]]:
    with safe_open(file, framework="pt") as found:
        about, features = found.metadata() or {}, found.get_tensor("features")
    ids, hashes = json.loads(about["ids"]), json.loads(about["sha256"])
    return [*map(str, ids)], features.float(), [*map(str, hashes)]
