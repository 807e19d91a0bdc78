"""Rules about results: what is not shown better is not kept, what cannot differ is said."""

import pytest

from assay.lab.improve.result_rules import (
    keep_start,
    look_at_dev,
    more_items,
    nothing_changed,
    same_picks,
    stop_early,
    take_best,
)
from assay.runs.checkpoints import Selection
from tests.lab.improve.evidence_of import evidence, measured, stage

RCE, EARLY, LATE = "rce.step-000004", "rl.step-000002", "rl.step-000004"
GOOD, HALF, POOR = [1.0] * 40, [1.0, 0.0] * 20, [0.0] * 40
KEPT = Selection(RCE, RCE, "dev", 0.6, 2)


def results(start, last):
    return measured({"base": POOR, RCE: start, LATE: last})


@pytest.mark.parametrize(
    ("start", "last", "share", "bound"),
    [(GOOD, HALF, 0.5, False), (HALF, HALF, None, True)],
)
def test_grpo_that_is_worse_or_not_shown_better_is_not_the_default(start, last, share, bound):
    """Report 004, 3.1: RCE alone, GRPO only where it is asked for."""
    (found,) = keep_start(evidence(stage(), measured=[results(start, last)]))
    assert (found.about, found.aim, found.cost.work) == ("rl", "protect", "settings")
    assert found.stake.at_most == bound and (share is None or found.stake.share == share)
    assert found.evidence[0].figures["start"] == RCE


def test_grpo_that_is_shown_better_is_kept():
    assert not [*keep_start(evidence(stage(), measured=[results(HALF, GOOD)]))]


def test_better_on_one_evaluation_is_enough_to_keep_a_stage():
    other = measured({RCE: HALF, LATE: GOOD}, name="other")
    assert not [*keep_start(evidence(stage(), measured=[results(HALF, HALF), other]))]


def test_nothing_is_said_of_a_stage_that_was_not_measured_beside_its_start():
    alone = measured({"base": POOR, LATE: POOR})
    found = evidence(stage(), measured=[alone])
    assert not [*keep_start(found)] and not [*more_items(found)] and not [*nothing_changed(found)]


def test_supervised_stages_need_more_than_an_undecided_difference():
    undecided = measured({"base": HALF, RCE: [*HALF[:39], 1.0]})
    worse = measured({"base": GOOD, RCE: HALF})
    assert not [*keep_start(evidence(stage("rce"), measured=[undecided]))]
    assert [*keep_start(evidence(stage("rce"), measured=[worse]))]


def test_a_good_checkpoint_that_was_trained_to_death_is_named_with_its_loss():
    (found,) = stop_early(evidence(stage(looks={0: HALF, 2: GOOD, 4: HALF})))
    assert found.evidence[0].figures["peak"] == EARLY
    assert found.stake.share == 0.5 and not found.stake.at_most


def test_a_fall_inside_noise_is_no_reason_to_stop():
    assert not [*stop_early(evidence(stage(looks={2: GOOD, 4: [*GOOD[:38], 0.0, 0.0]})))]
    assert not [*stop_early(evidence(stage(looks={2: HALF, 4: GOOD})))]


def validated(*losses: float):
    steps = enumerate(losses, 1)
    return [{"step": step, "seconds": 1.0, "validation_loss": loss} for step, loss in steps]


def test_a_validation_loss_that_rises_after_its_lowest_value_is_named_with_the_steps_since():
    lines = validated(5.0, 4.0, 3.0, 3.1, 3.21, 3.3, 3.39, 3.5, 3.61, 3.7)
    (found,) = stop_early(evidence(stage(lines=lines)))
    assert found.evidence[0].figures["step"] == "3" and found.stake.share == 0.7
    assert not [*stop_early(evidence(stage(lines=validated(5.0, 4.0, 3.0, 2.0, 1.9))))]
    wavering = validated(3.0, 3.4, 3.1, 3.5, 3.05, 3.4, 3.1, 3.3, 3.2)
    assert not [*stop_early(evidence(stage(lines=wavering)))]


def test_grpo_that_no_gate_looks_at_is_named():
    (found,) = look_at_dev(evidence(stage()))
    assert found.cost.work == "measure" and found.stake.unit == "steps"
    assert not [*look_at_dev(evidence(stage(selection=KEPT)))]
    assert not [*look_at_dev(evidence(stage("rce")))]


def test_a_stage_that_starts_from_the_last_checkpoint_while_another_was_chosen_is_named():
    rce = stage("rce", selection=Selection("rce.step-000002", "base", "dev", 0.6, 2))
    (found,) = take_best(evidence(rce, stage()))
    assert (found.about, found.evidence[0].figures["best"]) == ("rl", "rce.step-000002")
    last = stage("rce", selection=Selection(RCE, "base", "dev", 0.6, 2))
    assert not [*take_best(evidence(last, stage()))]


def test_an_undecided_difference_names_the_items_that_settle_it_and_what_they_cost():
    last = [1.0 - value for value in HALF[:5]] + HALF[5:]
    (found,) = more_items(evidence(stage(), measured=[results(HALF, last)]))
    needed = int(found.evidence[1].figures["needed"])
    assert needed > 40 and found.cost.seconds == pytest.approx(2 * (needed - 40) * 0.25)
    assert not [*more_items(evidence(stage(), measured=[results(POOR, GOOD)]))]


SAME = [[n, n + 1] for n in range(40)]
OTHER = [[n + 1, n] for n in range(40)]


def test_checkpoints_with_the_same_picks_are_said_to_be_unable_to_differ():
    found = measured({RCE: HALF, EARLY: HALF, LATE: HALF}, {RCE: OTHER, EARLY: SAME, LATE: SAME})
    (said,) = same_picks(evidence(stage(), measured=[found]))
    (fact,) = said.evidence
    assert (fact.figures["control"], fact.figures["other"]) == (EARLY, LATE)
    assert fact.figures["queries"] == "40" and said.stake.share == pytest.approx(1 / 3)


def test_another_order_is_another_prompt():
    found = measured({RCE: HALF, LATE: HALF}, {RCE: OTHER, LATE: SAME})
    assert not [*same_picks(evidence(stage(), measured=[found]))]


def test_answers_of_a_language_model_are_no_picks():
    assert not [*same_picks(evidence(stage(), measured=[measured({RCE: HALF, LATE: HALF})]))]


@pytest.mark.parametrize(("coef", "what"), [(0.15, "loosen_kl"), (0.0, "larger_steps")])
def test_a_stage_that_changed_no_answer_moves_further_or_is_held_less(coef, what):
    made = stage(changes={"kl": {"coef": coef}})
    found = evidence(made, measured=[results(HALF, HALF)])
    (said,) = nothing_changed(found)
    assert said.change == (f"improve_what.{what}",) and said.stake.share == 1
    assert not [*nothing_changed(evidence(made, measured=[results(HALF, POOR)]))]
