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

    @property
    def positive_query_share(self) -> float:
        """Of the queries, those with a positive candidate."""
        return self.positive_queries / max(self.queries, 1)

    @property
    def positive_candidate_share(self) -> float:
        """Of the candidates, the positive ones."""
        return self.positive_candidates / max(self.candidates, 1)

    @property
    def zero_range_share(self) -> float:
        """Of the groups, those of equal rewards."""
        return self.zero_range_groups / max(self.queries, 1)

    @property
    def fallback_share(self) -> float:
        """Of all candidates, those that the benchmark's metric did not score."""
        return self.fallback_candidates / max(self.all_candidates, 1)

    def numbers(self) -> dict[str, float]:
        """The measurements by their name and unit."""
        return {
            "queries": self.queries,
            "candidates": self.candidates,
            "queries with a positive candidate, share": self.positive_query_share,
            "positive candidates, share": self.positive_candidate_share,
            "groups of equal rewards, share": self.zero_range_share,
            "distinct rewards": self.distinct_rewards,
            "scored by a fallback, share of candidates": self.fallback_share,
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
    positive = f"{health.positive_queries} of {health.queries} queries"
    candidates = f"{health.positive_candidate_share:.1%} of {health.candidates} candidates"
    yield from _finding(
        health.positive_query_share,
        FEWEST_POSITIVE,
        f"{place}: {positive} have a positive candidate",
        f"{health.positive_query_share:.1%} of the queries, {candidates} are positive",
        NO_POSITIVES,
        allow,
    )
    with_signal = health.queries - health.zero_range_groups
    yield from _finding(
        with_signal / max(health.queries, 1),
        LEAST_SIGNAL,
        f"{place}: {with_signal} of {health.queries} groups have rewards that differ",
        f"{health.zero_range_share:.1%} of the groups contribute exactly 0 to a policy gradient; "
        f"{health.distinct_rewards} distinct rewards",
        NO_SIGNAL,
        allow,
    )


def _finding(
    share: float, least: float, what: str, evidence: str, name: str, allow: Collection[str]
) -> Iterator[Finding]:
    if share >= LITTLE:
        return
    fix = "make selections with a better selector, a larger pool or more candidates"
    if share >= least:
        yield Finding("warning", what, evidence, fix)
    elif name in allow:
        yield Finding("warning", what, evidence, f"{fix}; {name} is allowed here")
    else:
        yield Finding("error", what, evidence, f'{fix}, or write allow = ["{name}"]')
