"""The two files of report 002 are told apart, by shares of queries and of candidates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.group_health import (
    NO_POSITIVES,
    NO_SIGNAL,
    CandidateGroup,
    group_findings,
    health_of,
)


def groups(positive: int, of: int, each: int = 5) -> list[CandidateGroup]:
    """A file in which the first candidate of `positive` queries has a positive score."""
    right = CandidateGroup((2.0, *[0.0] * (each - 1)), 1)
    return [right] * positive + [CandidateGroup((0.0,) * each, 0)] * (of - positive)


def severities(positive: int, of: int, *allow: str) -> list[str]:
    health = health_of(groups(positive, of))
    return [finding.severity for finding in group_findings(health, "selections.rl", allow)]


def test_the_reports_file_of_5_in_800_is_refused_for_both_reasons():
    health = health_of(groups(5, 800))
    assert health.positive_query_share == 5 / 800 == 0.00625
    assert health.zero_range_share == 795 / 800
    assert health.positive_candidate_share == 5 / 4000
    found = [*group_findings(health, "selections.rl")]
    assert [each.severity for each in found] == ["error", "error"]
    assert "5 of 800 queries" in found[0].what and "0.6%" in found[0].evidence
    assert "99.4% of the groups contribute exactly 0" in found[1].evidence


def test_the_reports_file_of_664_in_800_has_nothing_wrong():
    health = health_of(groups(664, 800))
    assert health.positive_query_share == pytest.approx(0.83)
    assert not severities(664, 800)


def test_shares_of_candidates_and_of_queries_are_two_numbers():
    mixed = [CandidateGroup((1.0, 1.0, 0.0), 2), CandidateGroup((0.0, 0.0, 0.0), 0)]
    numbers = health_of(mixed).numbers()
    assert numbers["queries with a positive candidate, share"] == 1 / 2
    assert numbers["positive candidates, share"] == 2 / 6


def test_a_fault_is_accepted_by_its_own_name_alone():
    assert severities(5, 800, NO_POSITIVES) == ["warning", "error"]
    assert severities(5, 800, NO_SIGNAL) == ["error", "warning"]
    assert severities(5, 800, NO_POSITIVES, NO_SIGNAL) == ["warning", "warning"]


def test_groups_of_equal_positives_have_no_signal():
    health = health_of([CandidateGroup((2.0, 2.0), 2)] * 100)
    assert health.positive_query_share == 1
    (found,) = group_findings(health, "selections.rl")
    assert found.severity == "error" and NO_SIGNAL in found.fix


def test_candidates_that_are_left_out_count_for_the_share_of_fallbacks_alone():
    health = health_of([CandidateGroup((2.0, 0.0), 1, fallback=2, all=4)])
    assert health.candidates == 2 and health.fallback_share == 0.5


@given(st.lists(st.lists(st.floats(-5, 5), max_size=6), min_size=1, max_size=8))
def test_counts_are_those_of_a_slow_count(rewards):
    made = [CandidateGroup(tuple(r), sum(x > 0 for x in r)) for r in rewards]
    health = health_of(made)
    assert health.candidates == sum(map(len, rewards))
    assert health.positive_queries == len([r for r in rewards if any(x > 0 for x in r)])
    flat = [r for r in rewards if all(abs(x - y) <= 1e-12 for x in r for y in r)]
    assert health.zero_range_groups == len(flat)
    assert 0 <= health.fallback_share <= 1


def test_a_file_without_queries_is_refused_and_nothing_is_divided_by_0():
    assert [each.severity for each in group_findings(health_of([]), "x")] == ["error", "error"]
