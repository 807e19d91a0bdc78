"""Writes a model's config.json so that Transformers 4 reads the model that Transformers 5 wrote.

Transformers 5 has other names for some settings, and 4 takes its own defaults where it finds none
of the names that it knows: rotary positions above all. Both spellings are written, and Transformers
5 reads back the config that it had. Tried with TESTED.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from assay.models.folder import CONFIG

TESTED = "Transformers 4.57.6 and 5.23.0"
"""Read a written folder as one model: `tests/models/test_transformers_4.py`."""

LAYERED = {
    "gemma3_text": {"full_attention": "rope_theta", "sliding_attention": "rope_local_base_freq"},
    "gemma3n_text": {"full_attention": "rope_theta", "sliding_attention": "rope_local_base_freq"},
    "modernbert-decoder": {
        "full_attention": "global_rope_theta",
        "sliding_attention": "local_rope_theta",
    },
    "olmo3": {"full_attention": "rope_theta"},
}
"""Transformers 4's names of the rotary base of each layer type, by model type; it has no others."""
NEOX = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}
"""GPT-NeoX has other names."""
LAYERS = {"granitemoehybrid": {"linear_attention": "mamba", "full_attention": "attention"}}
"""Transformers 4's names of layer types, by model type; 5 reads them as its own."""
APART = ("rope_theta", "partial_rotary_factor")
"""What Transformers 4 has beside its `rope_scaling`."""


def save_config(config: PreTrainedConfig, directory: Path) -> None:
    """Write config.json with the names of Transformers 4 and 5."""
    config.save_pretrained(directory)
    file = directory / CONFIG
    written = json.loads(file.read_text(encoding="utf-8"))
    whole = both_spellings(config, written)
    file.write_text(json.dumps(whole, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def both_spellings(config: PreTrainedConfig, written: Mapping[str, Any]) -> dict[str, Any]:
    """What Transformers 5 wrote of a config, with Transformers 4's names beside its own."""
    named = {old: written[new] for old, new in config.attribute_map.items() if new in written}
    named |= old_rotary(written)
    if "dtype" in written:
        named["torch_dtype"] = written["dtype"]
    old = LAYERS.get(written.get("model_type", ""), {})
    kinds = [old.get(kind, kind) for kind in written.get("layer_types") or ()]
    own = dict(written) | ({"layer_types": kinds} if old and kinds else {})
    parts = {
        name: both_spellings(part, written[name])
        for name in config.sub_configs
        if isinstance(part := getattr(config, name, None), PreTrainedConfig) and name in written
    }
    return {name: plain(value) for name, value in (named | own | parts).items()}


def plain(value: Any) -> Any:
    """Infinity as Python's JSON has it; Transformers 5 writes a table that 4 cannot read."""
    if isinstance(value, Mapping):
        return float(value["__float__"]) if "__float__" in value else value
    return [plain(one) for one in value] if isinstance(value, list) else value


def old_rotary(written: Mapping[str, Any]) -> dict[str, Any]:
    """Transformers 4's names of `rope_parameters`, which may be a table for each layer type."""
    parameters, family = written.get("rope_parameters") or {}, written.get("model_type", "")
    if family in LAYERED:
        named = {old: parameters[kind]["rope_theta"] for kind, old in LAYERED[family].items()}
        parameters = parameters["full_attention"]
    elif "rope_theta" in parameters:
        named = {name: parameters[name] for name in APART if name in parameters}
        if family.startswith("gpt_neox"):
            named |= {NEOX[name]: value for name, value in named.items()}
    else:
        return {}
    scaling = {name: value for name, value in parameters.items() if name not in APART}
    # A family's default may be another than none, so that none is said.
    return named | {"rope_scaling": None if scaling == {"rope_type": "default"} else scaling}
