"""The settings that logs of other tools hold, arranged so that two runs can be compared fairly.

The arguments of a model are taken apart: which model it is, how it computes and answers, and how it
is reached. Values that mean the same in two logs are made equal. Nothing is judged here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

IDENTITY = frozenset(
    {
        *("pretrained", "peft", "revision", "delta", "subfolder", "gguf_file", "lora_local_path"),
        *("model", "model_path", "model_name", "path"),
    }
)
"""Arguments that say which model it is."""
ADAPTERS = frozenset({"peft", "lora_local_path"})
"""Those of them whose files hold no weights of the model itself."""
QUANTISED = re.compile(
    r"""(?<![a-z0-9])(
        i?q[1-8][a-z0-9_]* | tq[12]_0 | gguf | ggml | [48]da[48]w
        | (?:mx|nv)?(?:fp|f|nf|u?int|float)[2-8] (?:wo|dq|w?a\d+|_?e[2-5]m[0-3][a-z]*)?
        | w[2-8]a(?:\d+|fp8|int8)(?:kv\d+)? | [1-8](?:[._]\d+)?[-_]?(?:bits?|bpw)
        | e[45]m[23][a-z]* | bnb | bitsandbytes | awq | gptq(?:model)? | auto[-_]?(?:round|awq|gptq)
        | exl[23] | hqq | aqlm | vptq | quip | spqr | eetq | ptq | quanto | torchao | marlin | dwq
        | compressed[-_]tensors | (?:omni|smooth)quant | quanti[sz]ed | ternary
    )(?![a-z0-9])""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words of a model's name that say in which numbers of few bits its weights are stored."""
QUARTER = re.compile(r"20\d\d[-_ ]?q[1-4]|q[1-4][-_ ]?20\d\d", re.IGNORECASE)
"""A date that looks like one of them."""
TRANSPORT = frozenset(
    {
        *("batch_size", "max_batch_size", "parallelize", "device_map", "device_map_option"),
        *("max_memory_per_gpu", "max_cpu_memory", "offload_folder", "cache_dir", "download_dir"),
        *("tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size", "tp_plan"),
        *("gpu_memory_utilization", "swap_space", "base_url", "port", "num_concurrent"),
        *("max_retries", "timeout", "verify_certificate", "ca_cert_path", "logits_cache"),
    }
)
"""Arguments that say where a model is and how it is reached, not what it answers."""
OFF = frozenset(
    {
        *("load_in_4bit", "load_in_8bit", "autogptq", "gptqmodel", "trust_remote_code"),
        *("truncation", "truncate", "parallelize"),
    }
)
"""Arguments for which false says no more than their absence."""
BY_ITSELF = frozenset({"dtype", "kv_cache_dtype", "quantization", "load_format"})
"""Arguments for which "auto" says no more than that."""
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Where an object lay in memory; written into logs for functions, and another in every run."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class ModelArguments:
    """The arguments that a model was loaded with, by what they say."""

    identity: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    """Whatever may change an answer, among it every argument that is not known."""
    transport: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    """The kind of device without its number, `cuda` for instance."""


def model_arguments(given: Any, *names: Any) -> ModelArguments:
    """The arguments of a model, a table or text such as `pretrained=NAME,dtype=bfloat16`.

    How the weights are quantised by the model's names, those in the arguments and `names`, counts
    as an argument: it is none of what tells two models apart.
    """
    found = {
        name: value
        for name, value in arguments(given).items()
        # What says no more than the argument's absence is left out.
        if value is not None
        and (name, value) != ("revision", "main")
        and not (value == "auto" and name in BY_ITSELF)
        and not (value is False and name in OFF)
    }
    device = found.pop("device", None)
    named = found.get("pretrained") or found.get("model_path") or found.get("model")
    if found.get("tokenizer", named) == named:
        found.pop("tokenizer", None)
    called = [*names, *(v for k, v in found.items() if k in IDENTITY - ADAPTERS)]
    quantised = {"quantisation": form} if (form := quantisation(*called)) else {}
    return ModelArguments(
        {k: v for k, v in found.items() if k in IDENTITY},
        {k: v for k, v in found.items() if k not in IDENTITY | TRANSPORT} | quantised,
        {k: v for k, v in found.items() if k in TRANSPORT},
        kind_of_device(device),
    )


def quantisation(*names: Any) -> str:
    """The words by which names of a model say how it is quantised, in order; "" for none."""
    text = " ".join(QUARTER.sub(" ", str(name)) for name in names if name is not None)
    words = {re.sub("[-_]", "", match[0].lower()) for match in QUANTISED.finditer(text)}
    return " ".join(sorted(words))


def kind_of_device(device: Any) -> str | None:
    """`cuda` for `cuda:1`."""
    return None if device is None else str(device).partition(":")[0]


def arguments(given: Any) -> dict[str, Any]:
    """A table as it is, or the one that a text `NAME=VALUE,NAME=VALUE` stands for."""
    if isinstance(given, Mapping):
        return {str(name): comparable(value) for name, value in given.items()}
    pairs = (part.partition("=") for part in str(given or "").split(",") if part.strip())
    return {name.strip(): _parsed(value.strip()) for name, _, value in pairs}


def _parsed(text: str) -> Any:
    """A value of an argument, as the tools themselves take it."""
    if text.lower() in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[text.lower()]
    if not NUMBER.fullmatch(text):
        return comparable(text)
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def comparable(value: Any) -> Any:
    """The value without addresses in memory, and with the short names of torch's types."""
    if isinstance(value, str):
        return ADDRESS.sub("", value).removeprefix("torch.")
    if isinstance(value, Mapping):
        return {key: comparable(each) for key, each in value.items()}
    return [comparable(each) for each in value] if isinstance(value, list | tuple) else value
