"""What ms-swift loads by `external_plugins`: the reward function `assay`, and the ends of answers.

ms-swift 4.6 takes every padding token out of what it sampled with Transformers, and learns from the
rest. Where a model pads with its end token, as SmolLM2 does, no end of an answer would be trained.
"""

import sys
from pathlib import Path

from swift.rewards import ORM, orms
from swift.template import Template

sys.path.insert(0, str(Path(__file__).resolve().parent))

from reward import JUDGE


class AssayReward(ORM):
    """Scores the tokens of answers, so that their text and their end are as Assay sees them."""

    def __call__(self, completions, id, response_token_ids, trainer_state, **columns):
        """The reward of each answer. Raises RuntimeError for an abstention, which ms-swift would
        take for a 0."""
        return JUDGE.certain(id, response_token_ids, trainer_state.global_step + 1)


orms["assay"] = AssayReward


prepare = Template.init_processor


def pad_otherwise(self, processor):
    """Pads with a special token that ends no answer, where there is one."""
    prepare(self, processor)
    tokenizer, ends = self.tokenizer, JUDGE.settings["end_tokens"]
    if tokenizer.pad_token_id in ends:
        others = [token for token in tokenizer.all_special_ids if token not in ends]
        if not others:
            raise RuntimeError("the model pads with its end token, and has no other special token")
        tokenizer.pad_token_id = others[0]


Template.init_processor = pad_otherwise
