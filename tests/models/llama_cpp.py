"""Tiny models of three families that were trained on 20 questions, and what Transformers makes of
their folders in a process of its own: beside it stands the running llama.cpp.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import GenerationConfig, PreTrainedTokenizerFast

from assay.engines.environments import ask
from assay.models.gguf_file import PRE_TOKENIZERS, WHOLE_WORDS, check_gguf, write_gguf
from assay.models.weight_files import save_weights
from tests.models.folders import tiny_model

PIECES = (
    *(
        "it's we'll I'D they'Ve O'Neil ''s",
        "12 3456789 ١٢٣ ⅷ ½ 2026-11-28",
        "a  b   c\td\n\ne \r\n f",
    ),
    *(
        "你好，世界。 日本語 テスト 한국어",
        "😀👩‍👩‍👧‍👦🏽 ❤️ \u00e9",
        "def f(x):\n    return x**2  # ok\n",
    ),
    *("<|im_start|>x<|im_end|> <think>y</think>", "  leading", "trailing  ", "$3.50 (50%) — «ok»…"),
    *("HELLO World ǅ ß", "\u200b\u00a0\u3000x\u2028y", "\n\n\n  \n", "ſs 's'S don’t can't"),
    *("क्षत्रिय สวัสดี مرحبا", "a\x00b\x7f", "one,two,,three", "::{}[]<>||\\//", "x" * 40, "42"),
)
"""Twenty questions: contractions, numbers, white space, scripts, emoji, control tokens."""
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] }}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def words(splits: str, begins: bool) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that splits as llama.cpp's `splits`; with `begins`, texts start with a
    token of their own. Padding is the end, as in many tuned models."""
    raw = Tokenizer(models.BPE(ignore_merges=splits in WHOLE_WORDS))
    raw.pre_tokenizer = PRE_TOKENIZERS[splits]()
    raw.decoder = decoders.ByteLevel()
    if splits == "qwen2":
        raw.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    raw.train_from_iterator([*PIECES, *PIECES], trainer)
    special = ["<|begin|>", "<|im_start|>", "<|im_end|>", "<|over|>"]
    raw.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in special])
    raw.add_tokens(
        [AddedToken(each, normalized=False) for each in ("<think>", "</think>", "two  spaces")]
    )
    if begins:
        first = ("<|begin|>", raw.token_to_id("<|begin|>"))
        raw.post_processor = processors.TemplateProcessing("<|begin|> $A", None, [first])
    roles = {"eos_token": "<|im_end|>", "pad_token": "<|im_end|>"}
    roles |= {"bos_token": "<|begin|>"} if begins else {}
    return PreTrainedTokenizerFast(tokenizer_object=raw, chat_template=TEMPLATE, **roles)


def chat(piece: str) -> list[dict[str, str]]:
    """A conversation in which a piece is asked."""
    return [{"role": "system", "content": "Say it."}, {"role": "user", "content": piece}]


def trained(kind: str, splits: str, begins: bool, **sizes: Any) -> tuple[Any, Any]:
    """A model that answers each piece with another one, and ends in two ways; its tokenizer."""
    tokenizer = words(splits, begins)
    ends: list[Any] = [tokenizer.convert_tokens_to_ids(e) for e in ("<|im_end|>", "<|over|>")]
    wide = {"hidden_size": 64, "head_dim": 16, "vocab_size": len(tokenizer) + 3}
    model: Any = tiny_model(kind, **{**wide, **sizes})
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=ends[0])
    options: dict[str, Any] = {"add_generation_prompt": True, "return_dict": False}
    prompts = [tokenizer.apply_chat_template(chat(piece), **options) for piece in PIECES]
    answers = [tokenizer(piece[:24], add_special_tokens=False)["input_ids"] for piece in PIECES]
    answers = [[*answers[i - 7], ends[i % 2]] for i in range(len(answers))]
    longest = max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
    ids, labels = torch.zeros(20, longest, dtype=torch.long), torch.full((20, longest), -100)
    for i, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        size = len(prompt) + len(answer)
        ids[i, :size] = torch.tensor([*prompt, *answer])
        labels[i, len(prompt) : size] = torch.tensor(answer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    loss = torch.zeros(())
    for _ in range(150):
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss < 0.05, "untrained: its answers are near ties"
    return model.eval(), tokenizer


def exported(folder: Path, model: Any, tokenizer: Any, dtype: torch.dtype) -> Path:
    """A folder with the model in a format, and its `model.gguf`."""
    model.to(dtype)
    model.config.dtype = dtype
    folder.mkdir()
    save_weights(model, folder, tokenizer)
    check_gguf(model, tokenizer)
    write_gguf(model, folder, folder / "model.gguf")
    return folder


READER = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
request = json.load(sys.stdin)

def read(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    chats = []
    for messages in request["chats"]:
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        with torch.no_grad():
            size = request["max_tokens"]
            out = model.generate(torch.tensor([ids]), max_new_tokens=size, do_sample=False)
        answer = out[0, len(ids):].tolist()
        stop = "eos" if answer[-1] in ends else "limit"
        chats.append({"prompt": ids, "answer": answer, "stop": stop})
    texts = [tokenizer(text)["input_ids"] for text in request["texts"]]
    return {"texts": texts, "chats": chats, "ends": sorted(ends)}

print(json.dumps([read(folder) for folder in request["folders"]]))
"""


def by_llama_cpp(file: Path, request: dict[str, Any], ids: Sequence[int]) -> dict[str, Any]:
    """The running llama.cpp's answer to a request, and which of `ids` end its answers."""
    script = Path(__file__).with_name("loaded_by_llamacpp.py")
    return ask("llamacpp", script, {**request, "file": str(file), "ids": ids})


def by_transformers(folders: Sequence[Path], request: dict[str, Any]) -> list[dict[str, Any]]:
    """The same request as `loaded_by_llamacpp` answers, from each folder."""
    sent = json.dumps({**request, "folders": [*map(str, folders)]})
    done = subprocess.run(
        [sys.executable, "-c", READER], input=sent, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])
