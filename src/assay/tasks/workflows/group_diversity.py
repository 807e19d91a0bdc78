"""How different the programs of one group are: metrics of every step that samples programs.

A group of equal programs gives equal rewards, and so nothing to learn from. Only programs that the
validator let through count; which of them are good is not asked here.
"""

from collections.abc import Callable, Mapping, Sequence

from assay.data.episode import Reward
from assay.tasks.reward_metrics import GroupMetric
from assay.tasks.workflows.facts import valid_program
from assay.tasks.workflows.programs.shapes import Shape, known_shape


def different_share(of: Callable[[Shape], str]) -> GroupMetric:
    """How different the programs of a group are in one property, as a mean over groups.

    (different values - 1) / (programs - 1): 0 where all are alike, 1 where no two are. Groups with
    fewer than two valid programs do not count; None where no group has two.
    """

    def share(groups: Sequence[Sequence[Reward]]) -> float | None:
        found = [[of(shape) for shape in valid_shapes(group)] for group in groups]
        shares = [(len(set(each)) - 1) / (len(each) - 1) for each in found if len(each) > 1]
        return sum(shares) / len(shares) if shares else None

    return share


def valid_shapes(group: Sequence[Reward]) -> list[Shape]:
    """The shapes of the valid programs of a group."""
    sources = [valid_program(reward.facts) for reward in group]
    shapes = [known_shape(source) for source in sources if source is not None]
    return [shape for shape in shapes if shape is not None]


GROUP_DIVERSITY: Mapping[str, GroupMetric] = {
    "different_combinations_share": different_share(lambda shape: shape.combination),
    "different_trees_share": different_share(lambda shape: shape.fingerprint),
}
"""By name; a health rule looks at the second."""
