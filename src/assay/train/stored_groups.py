"""Groups that were sampled or collected earlier, in place of sampling."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from assay.data.episode import Episode
from assay.rl.policy import Policy
from assay.train.row_order import visits
from assay.train.train_state import Journal, Place


@dataclass(frozen=True)
class StoredGroups:
    """Candidates collected earlier, each group with its rewards; see `GroupStream`."""

    groups: tuple[tuple[Episode, ...], ...]
    prompts: int
    """Groups of one step."""
    seed: int

    def next(self, policy: Policy, place: Place, journal: Journal) -> list[list[Episode]]:
        """The `prompts` groups from position `place.cursor` of the shuffled stream."""
        chosen = visits(self.groups, self.seed, place.cursor, self.prompts)
        return [[replace(e, visit=epoch) for e in group] for epoch, group in chosen]


@dataclass(frozen=True)
class StoredPrompts:
    """Groups that a stage sampled before, in their batches; see `GroupStream`."""

    groups: Sequence[Sequence[Episode]]
    prompts: int

    @property
    def batches(self) -> int:
        """Batches that there are."""
        return -(-len(self.groups) // self.prompts)

    def next(self, policy: Policy, place: Place, journal: Journal) -> list[list[Episode]]:
        """The `prompts` groups from position `place.cursor`; none behind the last."""
        found = self.groups[place.cursor : place.cursor + self.prompts]
        return [list(group) for group in found]
