"""The two files of report 002 are told apart, by shares of queries and of candidates."""

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
    numbers = health.numbers()
    assert numbers["queries with a positive candidate, share"] == 5 / 800 == 0.00625
    assert numbers["groups of equal rewards, share"] == 795 / 800
    assert numbers["positive candidates, share"] == 5 / 4000
    found = [*group_findings(health, "selections.rl")]
    assert [each.severity for each in found] == ["error", "error"]
    assert "5 of 800 queries" in found[0].what and "0.6%" in found[0].evidence
    assert "99.4% of the groups contribute exactly 0" in found[1].evidence


def test_the_reports_file_of_664_in_800_has_nothing_wrong():
    assert not severities(664, 800)


def test_a_fault_is_accepted_by_its_own_name_alone():
    assert severities(5, 800, NO_POSITIVES) == ["warning", "error"]
    assert severities(5, 800, NO_SIGNAL) == ["error", "warning"]
    assert severities(5, 800, NO_POSITIVES, NO_SIGNAL) == ["warning", "warning"]
