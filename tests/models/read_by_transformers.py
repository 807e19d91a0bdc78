"""What a version of Transformers reads; run, in folders, in an environment of its own."""

import json
import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def readings(model: Any, tokenizer: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """What a model and its tokenizer make of ids and of a text."""
    ids = torch.tensor([asked["ids"]])
    with torch.no_grad():
        table = model(ids).logits[0].log_softmax(-1)
        written = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False
        )
    tokens = tokenizer(asked["text"])["input_ids"]
    messages = [{"role": "user", "content": "hi"}]
    template = tokenizer.chat_template is not None
    return {
        "logps": table[:, :: asked["step"]].tolist(),
        "greedy": written[0, ids.shape[1] :].tolist(),
        "tokens": tokens,
        "decoded": tokenizer.decode(tokens),
        "chat": tokenizer.apply_chat_template(messages, tokenize=False) if template else None,
        "specials": sorted(tokenizer.all_special_tokens),
    }


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    answer = {}
    for name, folder in asked["folders"].items():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        stated = AutoModelForCausalLM.from_pretrained(folder, torch_dtype="auto").dtype
        told = readings(model, AutoTokenizer.from_pretrained(folder), asked)
        answer[name] = told | {"dtype": str(stated)}
    print(json.dumps(answer))
