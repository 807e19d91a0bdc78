"""Loads state dicts completely or not at all, and hashes the loaded weights.

Every missing, unexpected and wrongly shaped key is listed. Tied weights are one tensor under
several names: one name in a file stands for all, two must agree. LoRA and files are not known here.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.errors import MOST_NAMES, InputError

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Every key that keeps a state dict from fitting a model."""

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    misshapen: tuple[tuple[str, Shape, Shape], ...] = ()
    """Name, shape in the file, shape in the model."""
    untied: tuple[tuple[str, ...], ...] = ()
    """Names that are one weight in the model but carry different values in the file."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.misshapen or self.untied)

    def describe(self) -> str:
        """Every key, in one line."""
        shapes = [f"{name} {list(have)} for {list(want)}" for name, have, want in self.misshapen]
        kinds = {
            "missing": self.missing,
            "unexpected": self.unexpected,
            "wrong shape": shapes,
            "tied but different": [" = ".join(names) for names in self.untied],
        }
        return "; ".join(
            f"{len(keys)} {kind}: {', '.join(keys)}" for kind, keys in kinds.items() if keys
        )

    def refuse(self, file: object = None) -> None:
        """Raise InputError, with every key, where there is one."""
        if self:
            raise InputError(
                f"state dict does not fit the model: {self.describe()}",
                file=None if file is None else str(file),
                fix="nothing was loaded; use the checkpoint of exactly this model",
            )


def tied_names(state: Mapping[str, Tensor]) -> list[tuple[str, ...]]:
    """Names that share one tensor, each set sorted: shared storage, offset and shape."""
    owners: dict[tuple[object, ...], list[str]] = {}
    for name, tensor in state.items():
        place = (tensor.device, tensor.untyped_storage().data_ptr(), tensor.storage_offset())
        if tensor.numel():
            owners.setdefault((*place, tuple(tensor.shape), tensor.stride()), []).append(name)
    return [tuple(sorted(names)) for names in owners.values() if len(names) > 1]


def untied_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict with each tied weight once, under the first of its names in sorted order."""
    aliases = {name for names in tied_names(state) for name in names[1:]}
    return {name: tensor for name, tensor in state.items() if name not in aliases}


def compare(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Mismatch:
    """What keeps `given` from filling `expected`, a model's state dict whose ties are visible."""
    ties = tied_names(expected)
    covered = {name for names in ties for name in names if any(n in given for n in names)}
    shapes = {
        name: (tuple(given[name].shape), tuple(tensor.shape))
        for name, tensor in expected.items()
        if name in given
    }
    return Mismatch(
        missing=tuple(sorted(expected.keys() - given.keys() - covered)),
        unexpected=tuple(sorted(given.keys() - expected.keys())),
        misshapen=tuple(
            (n, have, want) for n, (have, want) in sorted(shapes.items()) if have != want
        ),
        untied=tuple(names for names in ties if not _agree(names, given)),
    )


def _agree(names: Collection[str], given: Mapping[str, Tensor]) -> bool:
    values = [given[name] for name in names if name in given]
    return all(torch.equal(values[0], value) for value in values[1:])


def copy_strictly(
    expected: Mapping[str, Tensor], given: Mapping[str, Tensor], *, file: object = None
) -> None:
    """Copy `given` into the tensors of `expected` in place; dtypes and devices may differ.

    Raises InputError, before anything is copied, when a key is missing, unexpected or
    wrongly shaped, or when tied weights differ, and InputError.
    """
    compare(expected, given).refuse(file)
    refuse_not_finite(given.items(), file)
    with torch.no_grad():
        for name, tensor in given.items():
            expected[name].copy_(tensor)


def refuse_not_finite(tensors: Iterable[tuple[str, Tensor]], file: object) -> None:
    """Raise InputError, with the names, where a tensor holds an infinity or what is no number."""
    wrong = [name for name, tensor in tensors if not is_finite(tensor)]
    if wrong:
        names = ", ".join(wrong[:MOST_NAMES])
        names += f" and {len(wrong) - MOST_NAMES} more" if len(wrong) > MOST_NAMES else ""
        problem = f"weights that are not finite: {names}"
        raise InputError(problem, file=str(file), fix="copy or download them again")


def is_finite(tensor: Tensor) -> bool:
    """Whether every value is a finite number. Least and greatest are, or are not, as all are."""
    if not tensor.numel() or not tensor.is_floating_point():
        return True
    return bool(torch.isfinite(torch.stack(torch.aminmax(tensor.detach()))).all())


def weight_fingerprint(model: nn.Module) -> str:
    """sha256 over the sorted names, dtypes, shapes and bytes of all weights, tied ones once.

    Streams tensor by tensor; equal for equal weights on any device.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(untied_state(model.state_dict()).items()):
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        digest.update(raw.numpy().data)
    return digest.hexdigest()
