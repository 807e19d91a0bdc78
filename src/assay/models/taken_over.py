"""Takes over a checkpoint that another program wrote, and proves that it is the same model here.

`open_theirs` opens it with the program's own loader, Transformers or peft; `refuse_unlike` compares
what that computes of a probe with what the lab's loader computes of the stored checkpoint. What is
stored counts, not which keys a configuration has: adapters of a kind that is not known here agree,
or are refused.
"""

import copy
import re
import warnings
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from peft import PEFT_TYPE_TO_CONFIG_MAPPING, PeftModel, get_peft_model_state_dict
from peft import __version__ as peft_version
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from assay.errors import InputError, listed
from assay.models.folder import ADAPTER, CONFIG, check_whole, read_object, weight_files
from assay.models.load import MASTER_BYTES, load_strictly, refuse_not_finite, refuse_oversized
from assay.models.lora import merged
from assay.models.plain_forward import causal_of, logits_from
from assay.models.supported import old_names_of_peft, quiet_transformers, read_config, reason
from assay.models.weight_files import ADAPTER_CONFIG

MERGE = "merge it with the peft that wrote it, save the whole model, and take that over"
HELD = "what is taken over is LoRA, what peft merges, or whole weights"
UNDER_PEFT = "base_model.model."
"""Before the names of a model's modules where an adapter is on it."""
INSIDE = re.compile(r"\.(base_layer|original_module|modules_to_save|lora_\w+)\b.*")
"""Behind the name of a module that an adapter changes: its parts."""


def open_theirs(folder: Path, base: Callable[[], PreTrainedModel]) -> PreTrainedModel | PeftModel:
    """A checkpoint as Transformers opens it, or as peft does over `base`, a model that is used up;
    in fp32, and nothing of it missing or ignored. Raises InputError."""
    if not (folder / ADAPTER_CONFIG).is_file():
        if not (folder / CONFIG).is_file():
            raise InputError("is missing", file=folder / CONFIG, fix="not a whole model?")
        for file in weight_files(folder):
            check_whole(file)
        config = read_config(folder)
        refuse_oversized(folder, config, MASTER_BYTES)
        return load_strictly(folder, config, torch.float32).eval()
    if not (folder / ADAPTER).is_file():
        fix = "pickled weights are not read; save it as safetensors"
        raise InputError("is missing", file=folder / ADAPTER, fix=fix)
    check_whole(folder / ADAPTER)
    refuse_unknown_to_peft(folder)
    try:
        with quiet_transformers(), old_names_of_peft(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = PeftModel.from_pretrained(base(), folder)
            if not hasattr(model.base_model, "merge_and_unload"):  # such as a trained prompt
                problem = f"{peft_type(model)} is no change of weights, which a run here is made of"
                file = folder / ADAPTER_CONFIG
                raise InputError(problem, file=file, field="peft_type", fix=HELD)
            kept = get_peft_model_state_dict(model, save_embedding_layers=False)
            own = {each.data_ptr() for each in (*model.parameters(), *model.buffers())}
            # Others are computed from these for the file.
            weights = {
                n: t for n, t in kept.items() if t.is_floating_point() and t.data_ptr() in own
            }
            with torch.no_grad():
                for tensor in weights.values():
                    tensor.fill_(torch.nan)  # what the file does not fill stays that
            loaded: Any = model.load_adapter(folder, ONLY)
    except InputError:
        raise
    except Exception as error:  # whatever peft meets in a configuration or in the weights
        problem = f"peft does not open it over this base model: {reason(error)}"
        raise InputError(problem, file=folder / ADAPTER_CONFIG, fix="restore it") from error
    if loaded.unexpected_keys:
        problem = f"peft opens it without {listed(sorted(loaded.unexpected_keys))}, which it holds"
        raise InputError(problem, file=folder / ADAPTER, fix="restore its adapter_config.json")
    if absent := [n for n, tensor in weights.items() if tensor.numel() and tensor.isnan().all()]:
        problem = f"lacks {listed(absent)}, which its adapter_config.json asks for"
        raise InputError(problem, file=folder / ADAPTER, fix="restore one of the two")
    refuse_not_finite(weights.items(), folder / ADAPTER)
    return model.eval()


def refuse_unknown_to_peft(folder: Path) -> None:
    """Raise InputError for a kind of adapter or a setting that peft here would leave out."""
    file, config = folder / ADAPTER_CONFIG, read_object(folder / ADAPTER_CONFIG)
    kind = PEFT_TYPE_TO_CONFIG_MAPPING.get(config.get("peft_type"))  # type: ignore[arg-type]
    if kind is None:
        problem = f"peft {peft_version} knows no adapters of type {config.get('peft_type')!r}"
        raise InputError(problem, file=file, field="peft_type", fix=MERGE)
    known = {each.name for each in fields(kind)}
    # A later version writes its new settings also where they are off.
    for key, value in config.items():
        if key not in known and value:
            problem = f"peft {peft_version} does not know this setting"
            raise InputError(problem, file=file, field=key, fix=MERGE)


def peft_type(model: PeftModel) -> str:
    """The kind of its adapter."""
    return str(model.peft_config[ONLY].to_dict()["peft_type"].value)


def whole(model: PreTrainedModel | PeftModel, file: Path) -> PreTrainedModel:
    """The plain model with the adapter merged by peft; `model` is used up. Tied weights that the
    adapter changes one of are apart afterwards. Raises InputError."""
    if not isinstance(model, PeftModel):
        return model
    kind, tied = peft_type(model), causal_of(model).config.tie_word_embeddings
    separate_ties(causal_of(model))
    give_biases(causal_of(model))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of weights that are no longer tied
            plain = merged(model)
    except Exception as error:  # each kind of adapter says in its own way that it cannot
        problem = f"peft cannot merge this {kind} adapter: {reason(error)}"
        raise InputError(problem, file=file, fix=HELD) from error
    head, embedding = plain.get_output_embeddings(), plain.get_input_embeddings()
    if tied:
        plain.config.tie_word_embeddings = torch.equal(head.weight, embedding.weight)  # type: ignore[union-attr, arg-type]
        plain.tie_weights()
    return plain


def refuse_other_model(config: PreTrainedConfig, base: Path, folder: Path) -> None:
    """Raise InputError where whole weights are of another kind of model than the base, or of one
    with another vocabulary."""
    start = read_config(base)
    for key in ("model_type", "vocab_size"):
        have, want = (getattr(each.get_text_config(), key) for each in (config, start))
        if have != want:
            problem = f"is {have}, and {want} in the base model"
            fix = "--model path:DIR, a folder of the model, with its tokenizer, as training began"
            raise InputError(problem, file=folder / CONFIG, field=key, fix=fix)


def separate_ties(model: nn.Module) -> None:
    """Give every name of a shared weight a copy of its own."""
    first = {id(weight): name for name, weight in model.named_parameters()}
    for name, weight in [*model.named_parameters(remove_duplicate=False)]:
        if first[id(weight)] != name:
            owner, _, own = name.rpartition(".")
            setattr(model.get_submodule(owner), own, nn.Parameter(weight.detach().clone()))


def give_biases(causal: PreTrainedModel) -> None:
    """Give layers zeros as biases where an adapter has trained some and they have none, as far as
    the family's config knows layers with biases."""
    adapted = [n for n, part in causal.named_modules() if getattr(part, "lora_bias", {}).get(ONLY)]
    for switch in BIASES:
        if getattr(causal.config, switch, None) is not False:
            continue
        config = copy.deepcopy(causal.config)
        setattr(config, switch, True)
        with quiet_transformers(), torch.device("meta"):
            named = AutoModelForCausalLM.from_config(config).state_dict()
        empty = {n.removesuffix(".bias"): t for n, t in named.items() if n.endswith(".bias")}
        empty = {n: t for n, t in empty.items() if causal.get_submodule(n).bias is None}
        if empty.keys() & adapted:
            setattr(causal.config, switch, True)
            for name, bias in empty.items():
                layer: Any = causal.get_submodule(name)
                layer = getattr(layer, "base_layer", layer)
                layer.bias = nn.Parameter(torch.zeros(bias.shape))


BIASES = ("attention_bias", "mlp_bias")
"""Switches of configs, off in most models."""
ONLY = "default"
"""peft's name of an adapter that is alone."""
PROBED = 64
"""Tokens of the probe, spread over the vocabulary."""
ROUNDING = 2.0**-21
"""Relative error that is given to each module's output to see what rounding may do: a few of fp32's
steps, as a sum of products has them."""
MARGIN = 4.0
"""How much larger than that a difference may be."""
ROWS = 4096
"""Rows of the embeddings that are compared at once."""


def refuse_unlike(theirs: nn.Module, ours: nn.Module, file: Path) -> None:
    """Raise InputError with the first layer where two models compute other numbers than rounding
    gives; both in fp32 on the CPU. All rows of the embeddings are compared, and the scores of all
    tokens at each position of a probe."""
    causal = causal_of(theirs)
    vocabulary = causal.config.get_text_config().vocab_size
    longest = getattr(causal.config.get_text_config(), "max_position_embeddings", None) or PROBED
    ids_T = torch.linspace(0, vocabulary - 1, min(PROBED, longest)).long()
    ids_T = ids_T[torch.randperm(len(ids_T), generator=torch.Generator().manual_seed(0))]
    want, rough = outputs(theirs, ids_T), outputs(theirs, ids_T, ROUNDING)
    for name, own in outputs(ours, ids_T).items():
        if name in want and not near(own, want[name], rough[name]):
            raise unlike(INSIDE.sub("", name) or LOGITS, own, want[name], file)
    embeddings = causal.get_input_embeddings(), causal_of(ours).get_input_embeddings()
    for rows in torch.arange(vocabulary).split(ROWS):
        with torch.no_grad():
            left, right = (each(rows) for each in embeddings)
        if not near(right, left, left * (1 + ROUNDING)):
            raise unlike("the input embedding", right, left, file)


LOGITS = "the scores of the next token"


def unlike(layer: str, own: Tensor, want: Tensor, file: Path) -> InputError:
    """The error of another model."""
    how = f"has shape {[*own.shape]} for {[*want.shape]}"
    if own.shape == want.shape:
        how = f"differs by {float((own - want).abs().max()):.2g}"
    problem = f"is another model here than where it was trained: {layer} {how}"
    return InputError(problem, file=file, fix=MERGE)


def refuse_unsteady(opened: Callable[[], nn.Module], file: Path) -> None:
    """Raise InputError where the program itself opens another model each time, as peft does that
    draws an adapter's start at random and takes it out of the base."""
    try:
        refuse_unlike(opened(), opened(), file)
    except InputError as error:
        problem = "peft opens it as another model each time: the one that was trained is not in it"
        fix = "merge it where it is trained, save the whole model, and take that over"
        raise InputError(problem, file=file, fix=fix) from error


def near(own: Tensor, want: Tensor, rough: Tensor) -> bool:
    """Whether numbers differ by no more than rounding may make of them."""
    if own.shape != want.shape:
        return False
    allowed = MARGIN * float((rough - want).abs().max()) + ROUNDING * float(want.abs().max())
    return float((own - want).abs().max()) <= allowed


def outputs(model: nn.Module, ids_T: Tensor, error: float = 0.0) -> dict[str, Tensor]:
    """What each module gives, in the order they end, by the plain model's names; last and named ""
    the logits (T, V). `error` is the relative size of normal noise on what the innermost give."""
    tensors: dict[str, Tensor] = {}
    noise = torch.Generator().manual_seed(0)

    def seeing(name: str, inner: bool) -> Callable[[nn.Module, Any, Any], Any]:
        def see(module: nn.Module, inputs: Any, output: Any) -> Any:
            first = output[0] if isinstance(output, tuple) else output
            if not isinstance(first, Tensor) or not first.is_floating_point():
                return None
            if inner and error and first is output:
                output = first = first * (1 + error * torch.randn(first.shape, generator=noise))
            if name:
                tensors[name] = first.detach()
            return output

        return see

    hooks = [
        module.register_forward_hook(
            seeing(name.removeprefix(UNDER_PEFT), not [*module.children()])
        )
        for name, module in model.named_modules()
    ]
    try:
        with torch.no_grad():
            logits_TV = logits_from(model, ids_T[None], None, 0)[0]
    finally:
        for hook in hooks:
            hook.remove()
    return tensors | {"": logits_TV}
