"""Reads the weights of selectors that Lever-Plus trained: a file of `torch.save`.

`{epoch, phase, model_state_dict, ...}` of its trainers, `{state_dict, ...}` of Lightning, or the
weights alone. Only tensors and plain values are unpickled. Its names are written as
`PointerSelector` and `BiEncoderSelector` have them (yunsoft2019/Lever-Plus c228df3,
`pointer_selector_v2.py`, `pointer_selector_v1_backup_biencoder.py`); versions that compute anything
else are named and refused.
"""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.data.loaded import check_file
from assay.errors import InputError

PREFIXES = ("module.", "lever_lm.", "pointer_selector.", "model.")
"""What wrappers put before a name."""
RENAMED = {
    "cross_attn_layers.0.": "cross_attn.",
    "attn_norms.0.": "attn_norm.",
    "query_update_gate.": "gate.",
}
OTHERS: Mapping[str, str] = {
    "stop_token": "version 4-10: it may stop",
    "refine_score.": "version 4-9: it ranks in two stages",
    "slot_emb.": "version 4-8: it picks by slots",
    "dpp_proj.": "version 4-7: it spreads picks by a determinant",
    "topic_prototypes": "version 4-6: it covers topics",
    "attn_Wq.": "version 4-5: additive attention",
    "cand_encoder.": "version 4-4: candidates attend to each other",
    "div_lambda": "version 4-3: it spreads picks",
    "decoder_gru.": "version 4-2: a GRU updates its query",
    "query_update_weight": "version 1: its query moves by a weight",
    "cross_attn_layers.1.": "a pointer of several layers of attention",
    "transformer.": "a Lever-LM of version 0",
}
"""By a name that only they have: what the other versions are; of several the first."""


@dataclass(frozen=True, slots=True)
class ForeignSelector:
    """A selector of a file."""

    kind: str
    """Of `kinds.MAKERS`."""
    width: int
    """Of the features that it reads."""
    settings: Mapping[str, Any]
    """What `[selector]` would have to say, as far as the file tells."""
    state: Mapping[str, Tensor]


def read_foreign(file: Path) -> ForeignSelector:
    """The selector of a file. Raises InputError, DataError where there is none."""
    weights = {_plain(name): tensor for name, tensor in _weights(file).items()}
    names = "".join(f"\n{name}" for name in weights)
    for name, what in OTHERS.items():
        if f"\n{name}" in names:
            problem = f"holds a selector of Lever-Plus, {what}"
            fix = (
                "pointers of one layer, with and without the gate of 4-1, and bi-encoders are read"
            )
            raise InputError(problem, file=file, fix=fix)
    if "input_proj.weight" in weights:
        hidden, width = weights["input_proj.weight"].shape
        settings = {"hidden": hidden, "gate": "gate.weight" in weights}
        return ForeignSelector("pointer", width, settings, weights)
    if "query_proj.0.weight" in weights:
        width = weights["query_proj.0.weight"].shape[1]
        scale = weights.pop("temperature", None)
        settings = {} if scale is None else {"temperature": float(scale.reshape(-1)[0])}
        return ForeignSelector("bi_encoder", width, settings, weights)
    few = ", ".join(list(weights)[:3]) or "no tensor"
    raise InputError(f"holds no selector of Lever-Plus: {few}", file=file)


def _weights(file: Path) -> Mapping[str, Tensor]:
    check_file(file)
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        why = " ".join(str(error).split()).partition(".")[0][:200]
        fix = "write the weights alone: torch.save(model.state_dict(), FILE)"
        raise InputError(f"is not read as plain tensors: {why}", file=file, fix=fix) from None
    for key in ("model_state_dict", "state_dict"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict):
        raise InputError(f"holds a {type(found).__name__}, no weights", file=file)
    # Lightning's file may hold the encoder beside the selector.
    inner = [name for name in found if "pointer_selector." in str(name)]
    names = inner or list(found)
    return {str(n): found[n].float() for n in names if isinstance(found[n], Tensor)}


def _plain(name: str) -> str:
    while prefix := next((each for each in PREFIXES if name.startswith(each)), ""):
        name = name.removeprefix(prefix)
    for theirs, ours in RENAMED.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name
