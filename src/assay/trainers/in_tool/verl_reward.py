"""The reward as verl loads it: a reward manager that asks `reward.py` of its folder."""

import sys
from pathlib import Path

from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

sys.path.insert(0, str(Path(__file__).resolve().parent))

from reward import JUDGE


class AssayRewardManager(RewardManagerBase):
    """Scores the tokens of an answer, so that its text and its end are as Assay sees them."""

    def __init__(self, config, tokenizer, compute_score, **addresses):
        super().__init__(config, tokenizer, compute_score)

    async def run_single(self, data):
        """The reward of one answer. Raises RuntimeError for an abstention."""
        item = data[-1]
        tokens = item.batch["responses"]
        length = int(item.batch["attention_mask"][-tokens.shape[-1] :].sum())
        about = item.non_tensor_batch
        # As the files of rollouts name an answer.
        key = f"{about['uid']}_{about['session_id']}"
        ids, answers = [about["extra_info"]["id"]], [tokens[:length].tolist()]

        def ask():
            return JUDGE.certain(ids, answers, int(about["global_steps"]), [key])[0]

        value = await self.loop.run_in_executor(None, ask)
        return {"reward_score": value, "reward_extra_info": {"acc": value}}
