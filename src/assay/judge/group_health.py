"""Whether stored groups of scored candidates can teach anything: signal, positives, fallbacks.

Report 002 trained on a file of which 5 of 800 queries had a positive candidate, and compared it
with one of 664 of 800: shares are given of candidates and of queries, each by its name. Groups are
given as numbers; nothing is read here.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from assay.errors import Finding

FEWEST_POSITIVE = 0.05
"""Share of queries with a positive candidate below which a file is refused."""
LEAST_SIGNAL = 0.05
"""Share of groups whose rewards differ below which a file is refused."""
LITTLE = 0.5
"""Share below which there is a warning."""
EQUAL = 1e-12
"""Rewards that differ by less are equal."""
NO_POSITIVES, NO_SIGNAL = "few_queries_with_a_positive", "few_groups_with_signal"
FAULTS = (NO_POSITIVES, NO_SIGNAL)
"""The faults that `allow` may accept."""


@dataclass(frozen=True, slots=True)
class CandidateGroup:
    """The candidates of one query."""

    rewards: tuple[float, ...]
    positive: int
    """Candidates with a score above 0."""
    fallback: int = 0
    """Candidates that a looser rule scored, or none, used or not."""
    all: int | None = None
    """Candidates with those that are not used; None: none is left out."""

    @property
    def has_signal(self) -> bool:
        """Whether rewards differ: equal ones give no advantage."""
        return bool(self.rewards) and max(self.rewards) - min(self.rewards) > EQUAL


@dataclass(frozen=True, slots=True)
class GroupHealth:
    """Counts over the groups of a file."""

    queries: int
    candidates: int
    """Those that are used."""
    positive_queries: int
    """Queries with at least one positive candidate."""
    positive_candidates: int
    zero_range_groups: int
    """Groups of equal rewards: each contributes exactly 0 to a policy gradient."""
    distinct_rewards: int
    """Different rewards over all groups."""
    fallback_candidates: int
    all_candidates: int
    """Used or not."""

    def numbers(self) -> dict[str, float]:
        """The measurements by their name and unit."""
        queries, used = max(self.queries, 1), max(self.candidates, 1)
        return {
            "queries": self.queries,
            "candidates": self.candidates,
            "queries with a positive candidate, share": self.positive_queries / queries,
            "positive candidates, share": self.positive_candidates / used,
            "groups of equal rewards, share": self.zero_range_groups / queries,
            "distinct rewards": self.distinct_rewards,
            "scored by a fallback, share of candidates": self.fallback_candidates
            / max(self.all_candidates, 1),
        }


def health_of(groups: Sequence[CandidateGroup]) -> GroupHealth:
    """The counts over groups."""
    return GroupHealth(
        queries=len(groups),
        candidates=sum(len(group.rewards) for group in groups),
        positive_queries=sum(group.positive > 0 for group in groups),
        positive_candidates=sum(group.positive for group in groups),
        zero_range_groups=sum(not group.has_signal for group in groups),
        distinct_rewards=len({round(r, 9) for group in groups for r in group.rewards}),
        fallback_candidates=sum(group.fallback for group in groups),
        all_candidates=sum(
            len(group.rewards) if group.all is None else group.all for group in groups
        ),
    )


def group_findings(
    health: GroupHealth, place: str, allow: Collection[str] = ()
) -> Iterator[Finding]:
    """What is wrong with the groups of a table: errors below the shares that are refused, warnings
    where there is little, and where an error is allowed by its name. FAULTS allows all."""
    queries, with_signal = max(health.queries, 1), health.queries - health.zero_range_groups
    positive = health.positive_candidates / max(health.candidates, 1)
    found = (
        (
            health.positive_queries / queries,
            FEWEST_POSITIVE,
            NO_POSITIVES,
            f"{health.positive_queries} of {health.queries} queries have a positive candidate",
            f"{health.positive_queries / queries:.1%} of the queries, {positive:.1%} of "
            f"{health.candidates} candidates are positive",
        ),
        (
            with_signal / queries,
            LEAST_SIGNAL,
            NO_SIGNAL,
            f"{with_signal} of {health.queries} groups have rewards that differ",
            f"{health.zero_range_groups / queries:.1%} of the groups contribute exactly 0 to a "
            f"policy gradient; {health.distinct_rewards} distinct rewards",
        ),
    )
    fix = "make selections with a better selector, a larger pool or more candidates"
    for share, least, name, what, evidence in found:
        refused = share < least and name not in allow
        way = f'{fix}, or write allow = ["{name}"]' if refused else fix
        if share < least and not refused:
            way = f"{fix}; {name} is allowed here"
        if share < LITTLE:
            yield Finding("error" if refused else "warning", f"{place}: {what}", evidence, way)
