"""Answers with what TRL trains on, for a file of its rows: what SFTTrainer makes of each row, and
the prompt that GRPOTrainer asks.

Run in TRL's environment, without Assay: both trainers are made, with a model of a few random
weights, and prepare the file as they would before training.
"""

import json
import sys
import tempfile

from datasets import load_dataset
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer


def tiny_model(vocabulary):
    """A model of a few random weights."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=vocabulary, **sizes, **heads))


def prepared(request, folder):
    """The prompt of each row and, where it has an answer, its tokens and which are trained."""
    tokenizer = AutoTokenizer.from_pretrained(request["model"])
    model = tiny_model(len(tokenizer))
    rows = load_dataset("json", data_files=request["file"], split="train", cache_dir=folder)
    common = {"output_dir": folder, "report_to": "none", "use_cpu": True}
    grpo = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **columns: [0.0] * len(completions),
        args=GRPOConfig(per_device_train_batch_size=8, **common),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    made = [{"prompt": grpo._tokenize_prompts([row["prompt"]])[0][0]} for row in rows]
    if "completion" not in rows.column_names:
        return made
    answered = [index for index, answer in enumerate(rows["completion"]) if answer]
    sft = SFTTrainer(
        model=model,
        args=SFTConfig(max_length=None, **common),
        train_dataset=rows.select(answered),
        processing_class=tokenizer,
    )
    for index, trained in zip(answered, sft.train_dataset, strict=True):
        made[index]["tokens"] = trained["input_ids"]
        made[index]["trained"] = [label != -100 for label in trained["labels"]]
    return made


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(prepared(json.load(sys.stdin), folder)))
