"""Answers with the prompts that verl trains on, for a file of its RL rows: token ids of each row.

Run in verl's environment, without Assay: `RLHFDataset` loads the file, and the agent loop of single
turns writes each row's prompt as a rollout would, for an engine that ends every answer at once.
"""

import asyncio
import json
import sys
import tempfile

from omegaconf import OmegaConf
from transformers import AutoConfig
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.utils import hf_tokenizer
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.workers.rollout.replica import TokenOutput


class SilentEngine:
    """Ends every answer at once."""

    def __init__(self, end):
        self.end = end

    async def generate(self, **request):
        """The end token, whatever is asked."""
        return TokenOutput(token_ids=[self.end])


async def prompts(request, cache):
    """The prompt of each row, in token ids."""
    tokenizer = hf_tokenizer(request["model"])
    data = OmegaConf.create({"filter_overlong_prompts": False, "cache_dir": cache})
    rows = RLHFDataset(request["file"], tokenizer, data)
    lengths = {"prompt_length": 1 << 30, "response_length": 1}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": lengths}, "data": {}})
    loop = SingleTurnAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=SilentEngine(tokenizer.eos_token_id),
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(data),
        hf_model_type=AutoConfig.from_pretrained(request["model"]).model_type,
    )
    made = [await loop.run({}, **rows[index]) for index in range(len(rows))]
    return [{"prompt": list(map(int, each.prompt_ids))} for each in made]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        print(json.dumps(asyncio.run(prompts(json.load(sys.stdin), cache))))
