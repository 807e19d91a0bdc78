"""BFCL V4's overall score and the scores of its groups, from those of the categories.

Which averages are of items and which of categories is upstream's
(`eval_runner_helper.generate_leaderboard_csv`), and so are the weights. Upstream counts a category
that was not run as 0 and shows the sum; here every group that lacks a category is N/A and names it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.judge.averages import average
from assay.judge.intervals import Interval
from assay.judge.scores import ItemScores


@dataclass(frozen=True, slots=True)
class Group:
    """An average of categories and of groups."""

    name: str
    parts: tuple["Group | str", ...]
    weights: tuple[float, ...] = ()
    """Of the parts; empty where all have the same."""
    by_items: bool = False
    """Whether a category weighs as many items as it was measured on."""


SIMPLE = Group("non_live_simple", ("simple_python", "simple_java", "simple_javascript"))
NON_LIVE = Group("non_live", (SIMPLE, "multiple", "parallel", "parallel_multiple"))
LIVE = Group(
    "live",
    ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
    by_items=True,
)
HALLUCINATION = Group("hallucination", ("irrelevance", "live_irrelevance"))
SEVERAL_TURNS = Group(
    "multi_turn",
    ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context"),
)
WEB_SEARCH = Group("web_search", ("web_search_base", "web_search_no_snippet"))
MEMORY = Group("memory", ("memory_kv", "memory_vector", "memory_rec_sum"))
AGENTS = Group("agentic", (WEB_SEARCH, MEMORY))
WEIGHTS = {AGENTS: 40.0, SEVERAL_TURNS: 30.0, LIVE: 10.0, NON_LIVE: 10.0, HALLUCINATION: 10.0}
"""The groups of the overall score, in percent of it."""
OVERALL = Group("overall", tuple(WEIGHTS), tuple(WEIGHTS.values()))
GROUPS = (*WEIGHTS, SIMPLE, WEB_SEARCH, MEMORY)


@dataclass(frozen=True, slots=True)
class GroupScore:
    """The score of a group at one checkpoint."""

    group: Group
    missing: tuple[str, ...]
    """The categories without a score; with any, the group has none."""
    mean: float | None = None
    interval: Interval | None = None
    items: int = 0

    @property
    def name(self) -> str:
        """The group's name."""
        return self.group.name


def group_score(group: Group, scores: Mapping[str, ItemScores]) -> GroupScore:
    """The score of a group from those of the categories that have one.

    Items of one source are resampled together, whatever categories they are in.
    """
    names = categories_of(group)
    missing = tuple(name for name in names if name not in scores)
    if missing:
        return GroupScore(group, missing)
    weights = _weights(group, {name: len(scores[name].item_ids) for name in names})
    whole = average([[scores[name]] for name in names], weights=[weights[name] for name in names])
    return GroupScore(group, (), whole.mean, whole.interval, whole.items)


def categories_of(group: Group) -> tuple[str, ...]:
    """The categories of a group and of the groups in it."""
    found = [(p,) if isinstance(p, str) else categories_of(p) for p in group.parts]
    return tuple(name for names in found for name in names)


def _weights(group: Group, items: Mapping[str, int]) -> dict[str, float]:
    """How much each category counts; all together 1."""
    shares: Sequence[float] = group.weights or [1.0] * len(group.parts)
    if group.by_items:
        shares = [items[name] for name in categories_of(group)]
    found: dict[str, float] = {}
    for part, share in zip(group.parts, shares, strict=True):
        own = {part: 1.0} if isinstance(part, str) else _weights(part, items)
        found |= {name: weight * share / sum(shares) for name, weight in own.items()}
    return found
