"""Answers with what another tool makes of a file of its rows: token ids of each row's prompt and,
where it has an answer, its sequence and which positions are trained.

Run in the tool's environment, without Assay. TRL: SFTTrainer and GRPOTrainer are made, with a model
of a few random weights, and prepare the file as they would before training. ms-swift: its data set
loader reads the file, and its template, with the arguments that `swift sft` and `swift rlhf` give
it, encodes each row. verl, for RL rows: `RLHFDataset` loads the file, and the agent loop of single
turns writes each row's prompt as a rollout would, for an engine that ends every answer at once.
"""

import json
import sys
import tempfile
from contextlib import redirect_stdout


def tiny_model(vocabulary):
    """A model of a few random weights."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=vocabulary, **sizes, **heads))


def trl(request, folder):
    """What SFTTrainer makes of each row, and the prompt that GRPOTrainer asks."""
    from datasets import load_dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

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


def swift(request, folder):
    """Tokens of each row, and which are trained; of one without an answer its prompt."""
    from swift.dataset import load_dataset
    from swift.model import get_processor
    from swift.template import get_template

    rows, _ = load_dataset([request["file"]], split_dataset_ratio=0.0, load_from_cache_file=False)
    processor = get_processor(request["model"], model_type="qwen3")
    kind = request["template"]
    template = get_template(processor, template_type=kind, add_non_thinking_prefix=False)
    made = []
    for row in rows:
        asks = row["messages"][-1]["role"] not in ("assistant", "tool_call")
        template.set_mode("transformers" if asks else "train")
        each = template.encode(row)
        tokens = each["input_ids"]
        trained = None if asks else [label != -100 for label in each["labels"]]
        made.append({"prompt": tokens} if asks else {"tokens": tokens, "trained": trained})
    return made


def verl(request, folder):
    """The prompt of each row."""
    import asyncio

    from omegaconf import OmegaConf
    from transformers import AutoConfig
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap
    from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
    from verl.utils import hf_tokenizer
    from verl.utils.dataset.rl_dataset import RLHFDataset
    from verl.workers.rollout.replica import TokenOutput

    class SilentEngine:
        """Ends every answer at once."""

        async def generate(self, **request):
            """The end token, whatever is asked."""
            return TokenOutput(token_ids=[tokenizer.eos_token_id])

    tokenizer = hf_tokenizer(request["model"])
    data = OmegaConf.create({"filter_overlong_prompts": False, "cache_dir": folder})
    rows = RLHFDataset(request["file"], tokenizer, data)
    lengths = {"prompt_length": 1 << 30, "response_length": 1}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": lengths}, "data": {}})

    async def run():
        # It belongs to the event loop that runs.
        loop = SingleTurnAgentLoop(
            trainer_config=DictConfigWrap(config),
            server_manager=SilentEngine(),
            tokenizer=tokenizer,
            processor=None,
            dataset_cls=RLHFDataset,
            data_config=DictConfigWrap(data),
            hf_model_type=AutoConfig.from_pretrained(request["model"]).model_type,
        )
        return [await loop.run({}, **rows[index]) for index in range(len(rows))]

    return [{"prompt": list(map(int, each.prompt_ids))} for each in asyncio.run(run())]


if __name__ == "__main__":
    request = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        made = {"trl": trl, "swift": swift, "verl": verl}[request["format"]](request, folder)
    print(json.dumps(made))
