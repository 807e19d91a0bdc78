"""Loads a model folder completely or not at all: fp32 weights, tokenizer, end tokens, fingerprint.

First compares the size that the config asks for with the headers of the weight files and the free
memory, without reading a tensor. Also makes glibc keep freed memory: a training step allocates the
same large tensors again and again, and mapping their pages anew costs more than cheap operations on
them. Adapters are added in `adapt`; checkpoints are read by `weight_files`.

Of a checkpoint that is made of several models, such as one that also reads images, the text model
alone is loaded: its config becomes that of a causal language model and its weights are read by that
model's names. `write_back` puts trained weights in their place: files, names, the other weights'
bytes and all files beside them stay as they came.
"""

import ctypes
import hashlib
import json
import platform
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from assay.data.files import find_damage
from assay.data.renderings.template import apply_template, template_source
from assay.data.row import Message
from assay.errors import InputError, listed
from assay.models.folder import CONFIG, INDEX, check_model_folder, read_object, weight_files
from assay.models.memory import available_memory
from assay.models.plain_forward import keep_fp32_products, refuse_unfaithful
from assay.models.precision import Precision
from assay.models.supported import (
    causal_class,
    quiet_transformers,
    read_config,
    read_tokenizer,
    reason,
    refuse_ids,
    shown,
    why_plain,
)

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


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
KEEP_ALL = 2**31 - 1


def keep_freed_memory() -> None:
    """Serve every tensor from a heap that is never trimmed.

    Only allocations made later are concerned; calling it again changes nothing.
    """
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, KEEP_ALL)


FLOATING = ("F64", "F32", "F16", "BF16")
"""Number formats of weights, as safetensors names them."""
OFF = 2
"""A config that asks for more than this many times the weights in the files is another model's."""


@dataclass(frozen=True, slots=True)
class LoadedTensors:
    """The tensors of a model's weight files."""

    tensors: int
    values: int


def held(directory: Path) -> LoadedTensors:
    """Counts of what the weight files hold. Raises InputError for integers and the like."""
    tensors = values = 0
    for file in weight_files(directory):
        with safe_open(file, framework="pt") as weights:
            # The file has `keys` and is no mapping.
            for name in list(weights.keys()):
                part = weights.get_slice(name)
                if part.get_dtype() not in FLOATING:
                    problem = f"{name} holds {part.get_dtype()}, not weights"
                    raise InputError(problem, file=file, fix=f"expected {FLOATING}")
                tensors, values = tensors + 1, values + prod(part.get_shape())
    return LoadedTensors(tensors, values)


def least_weights(config: Any) -> int:
    """Weights of a model: without norms and biases, the head tied, where the packed path takes it;
    else as Transformers counts them. Raises InputError where it cannot make the model.
    """
    if why_plain(config):
        return counted_weights(config)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = 2 * (config.num_attention_heads + config.num_key_value_heads)
    layer = config.hidden_size * (heads * size + 3 * config.intermediate_size)
    return config.num_hidden_layers * layer + config.vocab_size * config.hidden_size


def counted_weights(config: PreTrainedConfig, classes: Any = AutoModelForCausalLM) -> int:
    """Weights of the model that Transformers makes of a config, tied ones once."""
    try:
        with quiet_transformers(), torch.device("meta"):
            model = classes.from_config(config)
    except Exception as error:
        problem = f"Transformers makes no model of it: {reason(error)}"
        raise InputError(problem, fix="restore the model's own config") from error
    return sum(parameter.numel() for parameter in model.parameters())


def refuse_oversized(
    directory: Path, config: Any, bytes_each: int, classes: Any = AutoModelForCausalLM
) -> None:
    """Raise InputError where the config asks for far more than there is: layers, weights, or
    main memory for weights of `bytes_each` bytes. `classes` as `load_strictly` has it.
    """
    file, there = directory / CONFIG, held(directory)
    fix = "use the config that belongs to these weights"
    layers = config.get_text_config().num_hidden_layers
    if layers > there.tensors:
        problem = f"{shown(layers)} layers, and the weight files hold {there.tensors} tensors"
        raise InputError(problem, file=file, field="num_hidden_layers", fix=fix)
    counted = classes is not AutoModelForCausalLM
    least = counted_weights(config, classes) if counted else least_weights(config)
    if least > OFF * there.values or (counted and OFF * least < there.values):
        words = "" if counted else "at least "
        problem = f"asks for {words}{least:,} weights, and its files hold {there.values:,}"
        raise InputError(problem, file=file, fix=fix)
    needed, free = least * bytes_each / 2**30, available_memory("cpu") / 2**30
    if needed > free:
        problem = f"the weights need {needed:.1f} GiB of memory and {free:.1f} are free"
        fix = "use a smaller model, or a machine with more memory"
        raise InputError(problem, file=directory, fix=fix)


GENERATION = "generation_config.json"
UNREAD = ("optimizer.pt",)
"""Of a checkpoint: what is no part of its model, and goes in time."""
MASTER_BYTES = 4
"""Of a weight in main memory."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready for use, in evaluation mode on the policy's device."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    fingerprint: str
    """sha256 of the weights, see `weight_fingerprint`."""
    end_tokens: frozenset[int]


def load_model(directory: Path, precision: Precision) -> LoadedModel:
    """Load the causal language model in `directory` with master weights of `precision`.

    The model's own sampling defaults are dropped: only its end tokens are kept. The checksums
    of a folder that Assay made are compared first. Raises InputError, what `check_loadable`
    does, InputError (with every key) and InputError.
    """
    keep_freed_memory()
    for damage in find_damage(directory, unless=UNREAD):
        raise InputError(damage.problem, file=damage.file, fix="restore it, or make it again")
    config, tokenizer = check_loadable(directory)
    model = load_strictly(directory, config, precision.master)
    refuse_not_finite([*model.named_parameters(), *model.named_buffers()], directory)
    ends = end_token_ids(model, tokenizer)
    model.generation_config = GenerationConfig(
        eos_token_id=sorted(ends), pad_token_id=config.get_text_config().pad_token_id
    )
    fingerprint = weight_fingerprint(model)
    model.to(precision.device)  # type: ignore[arg-type]
    if why_plain(config):
        refuse_unfaithful(model, directory)
        if precision.compute != precision.master:
            keep_fp32_products(model)
    return LoadedModel(model, tokenizer, fingerprint, ends)


def check_loadable(directory: Path) -> tuple[PreTrainedConfig, PreTrainedTokenizerBase]:
    """Config and tokenizer of a model that can be loaded, as far as is known without its weights.

    Raises InputError, RenderingError.
    """
    check_model_folder(directory)
    config = read_config(directory)
    refuse_oversized(directory, config, MASTER_BYTES)
    tokenizer = read_tokenizer(directory)
    refuse_missing_ids(directory, config, tokenizer)
    return config, tokenizer


def load_strictly(
    directory: Path,
    config: PreTrainedConfig,
    dtype: torch.dtype,
    classes: Any = AutoModelForCausalLM,
) -> PreTrainedModel:
    """Load through Transformers and turn everything it would only warn about into an error.

    `classes` is the automatic class that knows the model. Of a checkpoint of several models the one
    of `config` is read alone.
    """
    composite = is_composite(directory, config)
    source: dict[str, Any] = {"pretrained_model_name_or_path": directory}
    if composite:
        classes = causal_class(config)
        state = text_state(directory, config)
        source = {"pretrained_model_name_or_path": None, "state_dict": state}
    with quiet_transformers():
        loaded: Any = classes.from_pretrained(
            **source,
            config=config,
            dtype=dtype,
            attn_implementation=attention_of(config),
            use_safetensors=True,
            trust_remote_code=False,
            # A wrong shape would otherwise raise before the other keys are known.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    model: PreTrainedModel = loaded[0]
    if composite and (directory / GENERATION).is_file():
        model.generation_config = GenerationConfig.from_pretrained(directory)
    report: dict[str, Any] = loaded[1]
    wrong = ((name, tuple(have), tuple(want)) for name, have, want in report["mismatched_keys"])
    # Pairs that the config ties and Transformers left apart, since the file's values differ.
    ties = sorted(model.get_expanded_tied_weights_keys(all_submodels=True).items())
    apart = (pair for pair in ties if len({id(model.get_parameter(name)) for name in pair}) > 1)
    missing, unexpected = (sorted(report[f"{kind}_keys"]) for kind in ("missing", "unexpected"))
    mismatch = Mismatch(tuple(missing), tuple(unexpected), tuple(sorted(wrong)), tuple(apart))
    mismatch.refuse(directory)
    return model


def attention_of(config: PreTrainedConfig) -> str:
    """Transformers' name of the attention that is used; all that read images have the fast one."""
    known = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
    return "eager" if known and not causal_class(config)._supports_sdpa else "sdpa"


def refuse_missing_ids(
    directory: Path, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Raise InputError when tokenizer or end tokens have ids that the embedding has not."""
    size = config.get_text_config().vocab_size
    highest = max(tokenizer.get_vocab().values())
    if highest >= size:
        problem = f"tokenizer has ids up to {highest}, the embedding has {size} rows"
        fix = "use the tokenizer that belongs to these weights"
        raise InputError(problem, file=directory, fix=fix)
    file = directory / GENERATION
    if file.is_file():
        refuse_ids(read_object(file).get("eos_token_id"), size, file, "eos_token_id")


def end_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Ids that end a completion: those of config, generation config and tokenizer, and the token
    that the chat template puts after an assistant message.
    """
    generation = model.generation_config.eos_token_id if model.generation_config else None
    config = getattr(model.config.get_text_config(), "eos_token_id", None)
    stated: list[Any] = [generation, config, tokenizer.eos_token_id, chat_end_token(tokenizer)]
    lists = [[ids] if isinstance(ids, int) else ids or [] for ids in stated]
    return frozenset(int(i) for ids in lists for i in ids)


def chat_end_token(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The special token that closes an assistant message, or None without such a template.

    It is the last token of a rendered conversation but for white space, when that is special.
    """
    if not tokenizer.chat_template:
        return None
    messages = (Message("user", "a"), Message("assistant", "b"))
    text = apply_template(tokenizer, template_source(tokenizer), messages, (), False)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    while ids and not str(tokenizer.decode(ids[-1:])).strip():
        ids.pop()
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return ids[-1] if ids and ids[-1] in special | set(tokenizer.all_special_ids) else None


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

    def refuse(self, file: object = None) -> None:
        """Raise InputError, with every key, where there is one."""
        shapes = [f"{name} {list(have)} for {list(want)}" for name, have, want in self.misshapen]
        kinds = {
            "missing": self.missing,
            "unexpected": self.unexpected,
            "wrong shape": shapes,
            "tied but different": [" = ".join(names) for names in self.untied],
        }
        told = [f"{len(keys)} {kind}: {', '.join(keys)}" for kind, keys in kinds.items() if keys]
        if told:
            problem = f"state dict does not fit the model: {'; '.join(told)}"
            fix = "nothing was loaded; use the checkpoint of exactly this model"
            where = None if file is None else str(file)
            raise InputError(problem, file=where, fix=fix)


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


def compare(expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> Mismatch:
    """What keeps `tensors` from filling `expected`, a model's state dict whose ties are visible."""
    ties = tied_names(expected)
    covered = {name for names in ties for name in names if any(n in tensors for n in names)}
    shapes = {
        name: (tuple(tensors[name].shape), tuple(tensor.shape))
        for name, tensor in expected.items()
        if name in tensors
    }
    return Mismatch(
        missing=tuple(sorted(expected.keys() - tensors.keys() - covered)),
        unexpected=tuple(sorted(tensors.keys() - expected.keys())),
        misshapen=tuple(
            (n, have, want) for n, (have, want) in sorted(shapes.items()) if have != want
        ),
        untied=tuple(names for names in ties if not _agree(names, tensors)),
    )


def _agree(names: Collection[str], tensors: Mapping[str, Tensor]) -> bool:
    values = [tensors[name] for name in names if name in tensors]
    return all(torch.equal(values[0], value) for value in values[1:])


def copy_strictly(
    expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor], *, file: object = None
) -> None:
    """Copy `tensors` into the tensors of `expected` in place; dtypes and devices may differ.

    Raises InputError, before anything is copied, when a key is missing, unexpected or
    wrongly shaped, or when tied weights differ, and InputError.
    """
    compare(expected, tensors).refuse(file)
    refuse_not_finite(tensors.items(), file)
    with torch.no_grad():
        for name, tensor in tensors.items():
            expected[name].copy_(tensor)


def refuse_not_finite(tensors: Iterable[tuple[str, Tensor]], file: object) -> None:
    """Raise InputError, with the names, where a tensor holds an infinity or what is no number."""
    wrong = [name for name, tensor in tensors if not is_finite(tensor)]
    if wrong:
        problem = f"weights that are not finite: {listed(wrong)}"
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


SAMPLE = 512
"""Rows that stand for the whole embedding."""
NEAR = 0.1
"""Of the others' median distance to their mean: a closer row is the mean."""


def untrained_rows(folder: Path, vocabulary: int, ids: Sequence[int]) -> set[int]:
    """Those of the ids whose row is untrained in a matrix of so many rows: the embedding, or the
    output head."""
    rows: set[int] = set()
    for file in weight_files(folder):
        with safe_open(file, framework="pt") as weights:
            for name in list(weights.keys()):
                part = weights.get_slice(name)
                if len(part.get_shape()) == 2 and part.get_shape()[0] == vocabulary:
                    step = max(1, vocabulary // SAMPLE)
                    sample_SD = rows_of(part, range(0, vocabulary, step))
                    rows |= untrained(sample_SD, rows_of(part, ids), ids)
    return rows


def rows_of(part: object, ids: Sequence[int]) -> Tensor:
    """Rows (R, D) of a matrix in a file."""
    return torch.cat([part[i : i + 1] for i in ids]).float()  # type: ignore[index]


def untrained(sample_SD: Tensor, rows_RD: Tensor, ids: Sequence[int]) -> set[int]:
    """The ids of rows that are 0, the mean of the sample, or equal to another row of them."""
    mean_D = sample_SD.mean(dim=0)
    usual = (sample_SD - mean_D).norm(dim=1).median()
    near_R = (rows_RD - mean_D).norm(dim=1) < NEAR * usual
    same_R = (torch.cdist(rows_RD, rows_RD) == 0).sum(dim=1) > 1
    empty_R = ~rows_RD.any(dim=1)
    return {i for i, bad in zip(ids, (near_R | same_R | empty_R).tolist(), strict=True) if bad}
