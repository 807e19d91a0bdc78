"""The reward as ms-swift loads it, by `external_plugins`: the reward function `assay`."""

import sys
from pathlib import Path

from swift.rewards import ORM, orms

sys.path.insert(0, str(Path(__file__).resolve().parent))

from reward import JUDGE


class AssayReward(ORM):
    """Scores the tokens of answers, so that their text and their end are as Assay sees them."""

    def __call__(self, completions, id, response_token_ids, trainer_state, **columns):
        """The reward of each answer. Raises RuntimeError for an abstention, which ms-swift would
        take for a 0."""
        return JUDGE.certain(id, response_token_ids, trainer_state.global_step + 1)


orms["assay"] = AssayReward
