"""Rules about groups, on the files of the reports and on groups that are sound."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.lab.improve.training_rules import (
    break_ties,
    effective_share,
    fallback_scores,
    flat_weights,
    kl_on_ties,
    standardised_twice,
    tied_groups,
)
from tests.lab.improve.evidence_of import candidate, evidence, groups, stage

SOUND = groups(*[[0, 1, 1, 0, 1]] * 9, [0, 0, 0, 0, 0])
POOR = groups(*[[0, 0, 0, 0, 0]] * 795, *[[2, 0, 0, 0, 0]] * 5)
"""Report 002's older file: 5 of 800 queries have a positive candidate."""
TAUS = [{"step": 1, "seconds": 1.0, "tau": 2.0}, {"step": 2, "seconds": 1.0, "tau": 0.5}]


def test_the_reports_file_of_5_in_800_is_named_with_its_shares_at_both_levels():
    (found,) = tied_groups(evidence(stage(found=POOR)))
    assert found.stake.share == pytest.approx(795 / 800) and found.stake.at_most
    assert found.change == ("improve_what.tied_low",) and found.cost.work == "data"
    ties, positives, distinct = (fact.figures for fact in found.evidence)
    assert (ties["tied"], ties["groups"], ties["share"]) == ("795", "800", "99.4%")
    assert (positives["queries"], positives["query_share"]) == ("5", "0.6%")
    assert (positives["positive"], positives["candidate_share"]) == ("5", "0.1%")
    assert (distinct["distinct"], distinct["rewards"]) == ("2", "0, 2")


def test_groups_that_are_always_right_need_harder_queries_and_not_easier_ones():
    (found,) = tied_groups(evidence(stage(found=groups([1, 1], [1, 1], [0, 1]))))
    assert found.change == ("improve_what.tied_high",)


def test_sound_groups_are_left_alone():
    """664 of 800 queries with a positive candidate, as in the unified file."""
    unified = groups(*[[2, 0, 1.6, 0]] * 664, *[[0, 0, 0, 0]] * 136)
    for found in (SOUND, unified):
        assert not [*tied_groups(evidence(stage(found=found)))]
        assert not [*kl_on_ties(evidence(stage(found=found, changes={"kl": {"coef": 0.1}})))]
        assert not [*break_ties(evidence(stage(found=found)))]
        assert not [*fallback_scores(evidence(stage(found=found)))]


def test_what_is_right_is_said_by_the_part_that_says_it():
    """A reward that adds the probability of the right answer is above 0 where nothing was right."""
    wrong = (candidate(0.2, correct=0.0), candidate(0.2, correct=0.0))
    (found,) = tied_groups(evidence(stage(found=[wrong] * 2)))
    assert found.change == ("improve_what.tied_low",)
    assert found.evidence[1].figures["positive"] == "0"


@pytest.mark.parametrize(("coef", "listed"), [(0.12, 1), (0.0, 0)])
def test_only_a_kl_term_pulls_on_tied_groups(coef, listed):
    lines = [{"step": 1, "seconds": 1.0, "kl_coef": coef}]
    made = stage(found=POOR, lines=lines, changes={"kl": {"coef": coef}})
    found = [*kl_on_ties(evidence(made))]
    assert len(found) == listed
    assert all(each.evidence[0].figures["coef"] == "0.12" for each in found)


def test_a_number_that_tells_tied_candidates_apart_is_worth_the_groups_that_it_unties():
    """Probabilities of the right answer differ where all answers were wrong: `gold_probability`."""
    group = (
        candidate(0.0, gold_probability=0.1, relevance=0.3, fallback_=1.0),
        candidate(0.0, gold_probability=0.4, relevance=0.3),
    )
    made = (*[group] * 3, *groups([0, 0]))
    (found,) = break_ties(evidence(stage(found=made)))
    assert found.evidence[0].figures == {"number": "gold_probability", "broken": "3", "tied": "4"}
    assert found.stake.share == 3 / 4 and found.aim == "explore"


def test_what_scored_an_answer_is_no_measure_of_it():
    group = tuple(
        replace(candidate(0.0), numbers={"accuracy/fallback": mark}) for mark in (0.0, 1.0)
    )
    assert not [*break_ties(evidence(stage(found=[group] * 2)))]


@pytest.mark.parametrize(
    ("rewards", "tau", "weights"),
    [
        ([2, 0, 0, 0, 0], 2.0, [0.4046, *[0.1488] * 4]),
        ([2, 0, 0, 0, 0], 0.5, [0.9317, *[0.0171] * 4]),
        ([1, 1, 1, 1, 1], 0.5, [0.2] * 5),
    ],
)
def test_the_effective_number_of_candidates_follows_from_the_worked_weights(rewards, tau, weights):
    """domain.md, section 10: RCE weights."""
    entropy = -sum(weight * math.log(weight) for weight in weights)
    (group,) = groups(rewards)
    assert effective_share(group, tau) == pytest.approx(math.exp(entropy) / 5, rel=2e-3)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6), st.floats(0.1, 5), st.floats(-3, 3))
def test_effective_share_is_bounded_and_knows_no_shift(rewards, tau, shift):
    one, other = groups(rewards, [reward + shift for reward in rewards])
    share = effective_share(one, tau)
    assert 1 / len(rewards) - 1e-9 <= share <= 1 + 1e-9
    assert effective_share(other, tau) == pytest.approx(share, rel=1e-6)


def test_close_rewards_at_a_large_tau_are_named_and_normalising_helps():
    found = groups(*[[0.60, 0.62, 0.58, 0.61]] * 4)
    rce = stage("rce", found=found, lines=TAUS)
    (flat,) = flat_weights(evidence(rce))
    assert flat.change == ("improve_what.normalise",) and flat.stake.share == 1
    assert flat.evidence[0].figures["tau"] == "0.5"
    assert effective_share(found[0], 0.5, normalised=True) < 0.8 < effective_share(found[0], 0.5)
    assert not [*flat_weights(evidence(stage("rce", found=groups([2, 0], [0, 2]), lines=TAUS)))]
    assert not [*flat_weights(evidence(stage("rl", found=found, lines=TAUS)))], "GRPO has no tau"


def test_rewards_that_are_standardised_twice_lose_their_scale():
    """The reports' double normalisation: 0.01 apart weighs as 2 apart."""
    made = groups([2, 0], [1.01, 1.0], [1, 1])
    twice = stage(found=made, changes={"rewards": "normalised"}, as_reported=True)
    (found,) = standardised_twice(evidence(twice, as_reported=True))
    figures = found.evidence[0].figures
    assert figures == {"groups": "2", "least": "0.005", "most": "1"}
    assert found.stake.share == pytest.approx(2 / 3)
    assert not [*standardised_twice(evidence(stage(found=made)))]


def test_fallback_scores_above_a_tenth_are_named_where_they_trained():
    def marked(count: int):
        every = [candidate(1.0, fallback=n < count) for n in range(100)]
        return [tuple(every[n : n + 4]) for n in range(0, 100, 4)]

    assert not [*fallback_scores(evidence(stage(found=marked(10))))]
    (found,) = fallback_scores(evidence(stage(found=marked(11))))
    assert found.stake.share == 0.11 and found.aim == "correct"
