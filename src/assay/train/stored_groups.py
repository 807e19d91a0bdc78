"""Groups that were sampled earlier, handed out again in their batches in place of sampling."""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.data.episode import Episode
from assay.rl.policy import Policy
from assay.train.train_state import Recorder, TrainState


@dataclass(frozen=True)
class StoredPrompts:
    """See `sampled_groups.GroupStream`."""

    groups: Sequence[Sequence[Episode]]
    prompts: int

    @property
    def batches(self) -> int:
        """Batches that there are."""
        return -(-len(self.groups) // self.prompts)

    def next(self, policy: Policy, state: TrainState, recorder: Recorder) -> list[list[Episode]]:
        """The next `prompts` groups from position `state.cursor`; none behind the last."""
        found = self.groups[state.cursor : state.cursor + self.prompts]
        state.cursor += self.prompts
        return [list(group) for group in found]
