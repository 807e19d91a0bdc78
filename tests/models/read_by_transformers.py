"""Runs in an environment of its own: what another version of Transformers reads in folders."""

import json
import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

asked = json.load(sys.stdin)
answer = {}
for name, folder in asked["folders"].items():
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([asked["ids"]])
    with torch.no_grad():
        table = model(ids).logits[0].log_softmax(-1)
    written = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": "hi"}]
    template = tokenizer.chat_template is not None
    answer[name] = {
        "logps": table[:, :: asked["step"]].tolist(),
        "greedy": written[0, ids.shape[1] :].tolist(),
        "tokens": tokenizer(asked["text"])["input_ids"],
        "decoded": tokenizer.decode(tokenizer(asked["text"])["input_ids"]),
        "chat": tokenizer.apply_chat_template(messages, tokenize=False) if template else None,
        "specials": sorted(tokenizer.all_special_tokens),
        "dtype": str(AutoModelForCausalLM.from_pretrained(folder, torch_dtype="auto").dtype),
    }
print(json.dumps(answer))
