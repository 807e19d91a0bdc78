"""Writes and reads a checkpoint's weights as safetensors: the whole model, or its adapter alone.

Written and fsynced into a directory that the caller renames when complete; read back strictly.
Adapters trained one upon another are one file that plain peft loads: W + s B A + s' B' A' is
W + s [B s'/s B'] [A; A'], so ranks r and r' make one adapter of rank r + r' over the whole model
that its config names. The last rows are the stage's own; a layer without an adapter has zeros
there, so that one rank and scale hold for every layer. Optimizer and random state are saved by
`train.checkpoint`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import revert_weight_conversion

from assay.data.files import sync
from assay.data.renderings.template import write_tokenizer
from assay.errors import InputError
from assay.models.folder import (
    ADAPTER,
    CONFIG,
    MODULE,
    WEIGHTS,
    check_whole,
    read_object,
    weight_files,
)
from assay.models.inference import merged_weight
from assay.models.load import copy_strictly, load_strictly, untied_state
from assay.models.plain_forward import causal_of, padded_moments, score_padded
from assay.models.scoring import Moments, evaluating, score_actions, score_moments
from assay.models.supported import why_plain

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
    """The part of a folder's adapter that its own stage trained. Raises InputError."""
    for name in (ADAPTER, ADAPTER_CONFIG):
        if not (folder / name).is_file():
            raise InputError("is missing", file=folder / name, fix="not an adapter?")
    check_whole(folder / ADAPTER)
    config = read_object(folder / ADAPTER_CONFIG)
    with safe_open(folder / ADAPTER, framework="pt") as weights:
        below = int((weights.metadata() or {}).get(RANK_BELOW, 0))
    tensors = load_file(folder / ADAPTER)
    if not below:
        return Adapter(tensors, config)
    rank = config["r"] - below
    alpha = config["lora_alpha"] * rank / config["r"]
    own = {
        name: (tensor[:, -rank:].contiguous() if name.endswith(UP) else tensor[-rank:].contiguous())
        for name, tensor in tensors.items()
    }
    # A is drawn at random and never all 0, where a stage has an adapter.
    left_alone = {n.removesuffix(DOWN) for n, t in own.items() if n.endswith(DOWN) and not t.any()}
    kept = {n: t for n, t in own.items() if n.removesuffix(DOWN).removesuffix(UP) not in left_alone}
    return Adapter(kept, config | {"r": rank, "lora_alpha": alpha})


def stand_on(folder: Path, base: Path, below: Sequence[Path]) -> None:
    """Make the adapter in `folder` usable alone over the whole model in `base`.

    `below` are the folders of the adapters between the two, the lowest first. Raises
    InputError where one of them is damaged.
    """
    config = read_object(folder / ADAPTER_CONFIG) | {"base_model_name_or_path": str(base.resolve())}
    if below:
        chain = [*map(own_adapter, below), own_adapter(folder)]
        config |= _stack(chain, folder / ADAPTER)
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / ADAPTER_CONFIG).write_text(text, encoding="utf-8")


def _stack(chain: Sequence[Adapter], file: Path) -> dict[str, Any]:
    """Write the chain as one adapter; returns the entries in which its config differs."""
    own, rank = chain[-1], sum(adapter.rank for adapter in chain)
    layers = sorted({layer for adapter in chain for layer in adapter.layers})
    tensors: dict[str, Tensor] = {}
    for layer in layers:
        first = next(adapter.tensors for adapter in chain if layer in adapter.layers)
        columns, rows = first[layer + DOWN].shape[1], first[layer + UP].shape[0]
        downs, ups = [], []
        for adapter in chain:
            none = first[layer + DOWN].new_zeros
            downs.append(adapter.tensors.get(layer + DOWN, none(adapter.rank, columns)))
            up = adapter.tensors.get(layer + UP, none(rows, adapter.rank))
            ups.append(up * (adapter.scale / chain[-1].scale))
        tensors |= {
            layer + DOWN: torch.cat(downs).contiguous(),
            layer + UP: torch.cat(ups, dim=1).contiguous(),
        }
    save_file(tensors, file, metadata={"format": "pt", RANK_BELOW: str(rank - own.rank)})
    targets = [layer.removeprefix("base_model.model.") for layer in layers]
    return {"r": rank, "lora_alpha": own.scale * rank, "target_modules": targets}


METADATA = {"format": "pt"}


def save_weights(
    model: PreTrainedModel | PeftModel,
    directory: Path,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> None:
    """Write the model's weights into `directory`, which exists, and fsync them.

    A LoRA model's adapter alone, as peft names its files; otherwise the whole model with tied
    weights once and its config. With the tokenizer the folder of a whole model is complete: any
    program of the ecosystem loads it, and `path:` does.
    """
    if isinstance(model, PeftModel):
        state = {name: t.contiguous() for name, t in _adapter_state(model).items()}
        save_file(state, directory / ADAPTER, metadata=METADATA)
        model.peft_config["default"].save_pretrained(str(directory))
    else:
        save_file(in_file_names(model), directory / WEIGHTS, metadata=METADATA)
        # As Transformers' own save does: a model built from a config does not name itself yet.
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(directory)
        file = directory / CONFIG
        written = json.loads(file.read_text(encoding="utf-8"))
        whole = both_spellings(model.config, written)
        file.write_text(json.dumps(whole, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        model.generation_config.save_pretrained(directory)  # type: ignore[union-attr]
    if tokenizer is not None:
        write_tokenizer(tokenizer, directory)
    for path in [*directory.iterdir(), directory]:
        sync(path)


def whole_state(model: PreTrainedModel) -> dict[str, Tensor]:
    """The weights by name, each tied one under the name that Transformers files have.

    Programs that read files by name (vLLM, llama.cpp) look for the embedding and not for the head.
    """
    ties = model.get_expanded_tied_weights_keys(all_submodels=True)
    state = model.state_dict()
    kept = {name: tensor for name, tensor in state.items() if name not in ties}
    return {name: tensor.contiguous() for name, tensor in untied_state(kept).items()}


def in_file_names(model: PreTrainedModel) -> dict[str, Tensor]:
    """`whole_state` under the names of the family's files, as Transformers' own save gives them."""
    state = whole_state(model)
    if not renamed_in_files(model):
        return state
    # Experts that are one tensor in memory are parts of it in a file, which must not share memory.
    return {n: t.clone() for n, t in revert_weight_conversion(model, state).items()}


def renamed_in_files(model: PreTrainedModel) -> bool:
    """Whether the family's files have other names or shapes than the model, such as experts."""
    return bool(get_model_conversion_mapping(model, add_legacy=False))


def load_weights(model: PreTrainedModel | PeftModel, directory: Path) -> None:
    """Read a checkpoint of this very model back into it, completely or not at all.

    Raises InputError (a file is absent or damaged), InputError
    (with every key).
    """
    if isinstance(model, PeftModel):
        stored = own_adapter(directory)
        config = model.peft_config["default"].to_dict()
        for key in ("peft_type", "r", "lora_alpha", "use_rslora", "use_dora"):
            if not _equal(stored.config.get(key), config.get(key)):
                problem = f"adapter has {stored.config.get(key)}, the model's has {config.get(key)}"
                raise InputError(problem, file=directory / ADAPTER_CONFIG, field=key)
        copy_strictly(_adapter_state(model), stored.tensors, file=directory)
        return
    _check_architecture(model, directory)
    files = weight_files(directory)
    for file in files:
        check_whole(file)
    if renamed_in_files(model):
        state = load_strictly(directory, model.config, model.dtype).state_dict()
    else:
        state = {name: tensor for file in files for name, tensor in load_file(file).items()}
    copy_strictly(model.state_dict(), state, file=directory)


def save_module(module: nn.Module, folder: Path) -> None:
    """Write the weights of any other module, by their names."""
    save_file(untied_state(module.state_dict()), folder / MODULE)


def load_module(module: nn.Module, folder: Path) -> None:
    """Read what `save_module` wrote, completely or not at all.

    Raises InputError (the file is absent or damaged), InputError.
    """
    check_whole(folder / MODULE)
    copy_strictly(module.state_dict(), load_file(folder / MODULE), file=folder)


def _adapter_state(model: PeftModel) -> dict[str, Tensor]:
    """The adapter's tensors, sharing storage with the model, under peft's file names."""
    return get_peft_model_state_dict(model, save_embedding_layers=False)


def _equal(one: Any, other: Any) -> bool:
    """Equal, numbers up to rounding: a stacked adapter's alpha was multiplied and divided."""
    if isinstance(one, float) and isinstance(other, float | int):
        return isclose(one, other)
    return one == other


def _check_architecture(model: PreTrainedModel, directory: Path) -> None:
    file = directory / CONFIG
    if not file.is_file():
        raise InputError("is missing", file=file, fix="not a checkpoint of a whole model?")
    theirs, ours = read_object(file).get("architectures") or [], type(model).__name__
    if theirs != [ours]:
        raise InputError(
            f"checkpoint of {', '.join(theirs) or 'an unnamed architecture'}, the model is {ours}",
            file=file,
            field="architectures",
            fix="load it with its own base model",
        )


State = dict[str, Tensor]
"""Whole weights as another engine takes them over."""


def whole_weights(module: nn.Module, dtype: torch.dtype) -> State:
    """The weights by the plain model's names, tied ones under each of theirs, an adapter added in
    fp32; `module` stays as it is."""
    causal = causal_of(module)
    state = whole_state(causal)
    if isinstance(module, PeftModel):
        plain = {name: tensor for name, tensor in state.items() if ".lora_" not in name}
        state = {name.replace(".base_layer.", "."): tensor for name, tensor in plain.items()}
        for name, part in causal.named_modules():
            if isinstance(part, LoraLayer) and part.active_adapters:
                state[f"{name}.weight"] = merged_weight(part)[0]
    state = {name: tensor.detach().to(dtype).contiguous() for name, tensor in state.items()}
    ties = causal.get_expanded_tied_weights_keys(all_submodels=True)
    return state | {tied: state[name].clone() for tied, name in ties.items() if name in state}


def by_file_names(module: nn.Module, state: State) -> State:
    """The same under the names of the family's files."""
    causal = causal_of(module)
    return revert_weight_conversion(causal, state) if renamed_in_files(causal) else state


@contextmanager
def rounded(module: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Inside, the weights are as after rounding to `dtype`; then bit for bit what they were. Of a
    small update, rounded weights lose a part: what an engine should answer is computed with them.

    Holds a copy of them meanwhile. Nothing is done where the weights are of that type.
    """
    parameters = [p for p in module.parameters() if p.dtype != dtype]
    kept = [parameter.detach().clone() for parameter in parameters]
    try:
        with torch.no_grad():
            for parameter in parameters:
                parameter.copy_(parameter.to(dtype))
        yield
    finally:
        with torch.no_grad():
            for parameter, tensor in zip(parameters, kept, strict=True):
                parameter.copy_(tensor)


@contextmanager
def bare(module: nn.Module) -> Iterator[bool]:
    """Inside, the module answers without its adapter; gives whether it has one."""
    if isinstance(module, PeftModel):
        with module.disable_adapter():
            yield True
    else:
        yield False


def logps_of(
    module: nn.Module,
    contexts: list[list[int]],
    actions: list[list[int]],
    temperature: float = 1.0,
) -> Tensor:
    """Log-probs (S, float64, on the CPU) of actions after their contexts, in the type of the
    weights, without gradient and dropout."""
    score: Any = score_padded if why_plain(causal_of(module).config) else score_actions
    with torch.no_grad(), evaluating(module):
        logps_S, _ = score(module, *laid_out(contexts, actions), temperature=temperature)
    return logps_S.double().cpu()


def drawn_moments(
    module: nn.Module, contexts: list[list[int]], actions: list[list[int]], temperature: float
) -> Moments:
    """The same with entropies and variances (`scoring.score_moments`)."""
    score: Any = padded_moments if why_plain(causal_of(module).config) else score_moments
    with evaluating(module):
        scores = score(module, *laid_out(contexts, actions), temperature)
    return tuple(each_S.double().cpu() for each_S in scores)


def laid_out(
    contexts: list[list[int]], actions: list[list[int]]
) -> tuple[list[tuple[int, ...]], Tensor, Tensor]:
    """Contexts, actions (S) and offsets (N + 1)."""
    actions_S = torch.tensor([token for tail in actions for token in tail])
    return [*map(tuple, contexts)], actions_S, torch.tensor([0, *map(len, actions)]).cumsum(0)
