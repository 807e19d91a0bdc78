"""Adapters trained one upon another, in one file that plain peft loads.

W + s B A + s' B' A' is W + s [B s'/s B'] [A; A']: two adapters of ranks r and r' are one of rank
r + r'. A checkpoint's folder holds the whole chain down to a whole model, and its config names that
model's folder. The last rows are the stage's own; a layer that an adapter left alone has zeros in
its rows, so that one rank and one scale hold for every layer.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from assay.models.folder import ADAPTER, ModelFolderError, check_whole

ADAPTER_CONFIG = "adapter_config.json"
RANK_BELOW = "rank_below"
"""Key of the file's metadata: how many of the rows belong to adapters below."""
DOWN, UP = ".lora_A.weight", ".lora_B.weight"


@dataclass(frozen=True, slots=True)
class Adapter:
    """What one stage trained: its layers' A (r, in) and B (out, r), added as alpha / r B A."""

    tensors: dict[str, Tensor]
    """By peft's names in a file."""
    config: dict[str, Any]
    """peft's, with the rank and alpha of this adapter alone."""

    @property
    def rank(self) -> int:
        """r."""
        return self.config["r"]

    @property
    def scale(self) -> float:
        """alpha / r."""
        return self.config["lora_alpha"] / self.rank

    @property
    def layers(self) -> set[str]:
        """The layers it changes."""
        return {name.removesuffix(DOWN) for name in self.tensors if name.endswith(DOWN)}


def own_adapter(folder: Path) -> Adapter:
    """The part of a folder's adapter that its own stage trained. Raises ModelFolderError."""
    for name in (ADAPTER, ADAPTER_CONFIG):
        if not (folder / name).is_file():
            raise ModelFolderError("is missing", file=folder / name, fix="not an adapter?")
    check_whole(folder / ADAPTER)
    config, below = read_adapter_config(folder), rank_below(folder / ADAPTER)
    tensors = load_file(folder / ADAPTER)
    if not below:
        return Adapter(tensors, config)
    rank = config["r"] - below
    alpha = config["lora_alpha"] * rank / config["r"]
    own = {name: _own_rows(name, tensor, rank) for name, tensor in tensors.items()}
    # A is drawn at random and never all 0, where a stage has an adapter.
    left_alone = {n.removesuffix(DOWN) for n, t in own.items() if n.endswith(DOWN) and not t.any()}
    kept = {n: t for n, t in own.items() if n.removesuffix(DOWN).removesuffix(UP) not in left_alone}
    return Adapter(kept, config | {"r": rank, "lora_alpha": alpha})


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """peft's config of the folder's adapter. Raises ModelFolderError."""
    file = folder / ADAPTER_CONFIG
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ModelFolderError(f"is not JSON: {error}", file=file, line=error.lineno) from error


def rank_below(file: Path) -> int:
    """Rows of an adapter's file that were trained by adapters below; 0 for most."""
    with safe_open(file, framework="pt") as weights:
        return int((weights.metadata() or {}).get(RANK_BELOW, 0))


def stand_on(folder: Path, base: Path, below: Sequence[Path]) -> None:
    """Make the adapter in `folder` answer by itself over the whole model in `base`.

    `below` are the folders of the adapters between the two, the lowest first. Raises
    ModelFolderError where one of them is damaged.
    """
    config = read_adapter_config(folder) | {"base_model_name_or_path": str(base.resolve())}
    if below:
        chain = [*map(own_adapter, below), own_adapter(folder)]
        config |= _stack(chain, folder / ADAPTER)
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / ADAPTER_CONFIG).write_text(text, encoding="utf-8")


def _stack(chain: Sequence[Adapter], file: Path) -> dict[str, Any]:
    """Write the chain as one adapter; returns what its config says otherwise than the last's."""
    own, rank = chain[-1], sum(adapter.rank for adapter in chain)
    layers = sorted({layer for adapter in chain for layer in adapter.layers})
    tensors: dict[str, Tensor] = {}
    for layer in layers:
        tensors |= _stacked_layer(layer, chain)
    save_file(tensors, file, metadata={"format": "pt", RANK_BELOW: str(rank - own.rank)})
    targets = [layer.removeprefix("base_model.model.") for layer in layers]
    return {"r": rank, "lora_alpha": own.scale * rank, "target_modules": targets}


def _stacked_layer(layer: str, chain: Sequence[Adapter]) -> dict[str, Tensor]:
    """A and B of one layer, at the scale of the last adapter."""
    first = next(adapter.tensors for adapter in chain if layer in adapter.layers)
    columns, rows = first[layer + DOWN].shape[1], first[layer + UP].shape[0]
    downs, ups = [], []
    for adapter in chain:
        none = first[layer + DOWN].new_zeros
        downs.append(adapter.tensors.get(layer + DOWN, none(adapter.rank, columns)))
        up = adapter.tensors.get(layer + UP, none(rows, adapter.rank))
        ups.append(up * (adapter.scale / chain[-1].scale))
    return {
        layer + DOWN: torch.cat(downs).contiguous(),
        layer + UP: torch.cat(ups, dim=1).contiguous(),
    }


def _own_rows(name: str, tensor: Tensor, rank: int) -> Tensor:
    return tensor[:, -rank:].contiguous() if name.endswith(UP) else tensor[-rank:].contiguous()
