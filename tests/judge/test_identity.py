"""Identity rules: what identical answers come from, sums that must hold, metrics that cannot both
be true. Each rule is shown to stay silent where nothing is wrong.
"""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from assay.judge.identity import (
    contradictory_answers,
    fallback_contradiction,
    impossible_share,
    loss_parts,
    same_answers,
)
from tests.english import english

COUNTS = {"items": 50, "answers": 50, "distinct": 50}
TWINS: dict[str, Any] = {"same_weights": False, "changed_share": 0.5015, "greedy": True}
KL_LOG = [
    {"step": 1, "loss": 0.01162, "ppo_loss": 0.00034, "kl": 0.09400, "beta": 0.12},
    {"step": 2, "loss": 0.01059, "ppo_loss": 0.00083, "kl": 0.08131, "beta": 0.12},
    {"step": 3, "loss": 0.00982, "ppo_loss": 0.00092, "kl": 0.07414, "beta": 0.12},
]


@pytest.mark.parametrize(
    ("changes", "severity", "word"),
    [
        ({"same_weights": True, "changed_share": 0.0}, "error", "same weights"),
        ({"counts": {**COUNTS, "distinct": 2}}, "error", "next to no choice"),
        ({"greedy": False}, "error", "although sampled"),
        ({}, "warning", "answer the same"),
        ({"same_weights": None, "changed_share": None}, "warning", "answer the same"),
    ],
)
def test_the_cause_of_identical_answers_is_named_as_far_as_it_is_known(changes, severity, word):
    found = english(same_answers("a", "b", **{"counts": COUNTS, **TWINS, **changes}))
    assert found.severity == severity and word in found.what
    assert "50 answers to 50 items" in found.evidence


def test_rounded_losses_that_add_up_are_left_alone():
    assert loss_parts(KL_LOG) is None


def test_a_loss_whose_parts_do_not_add_up_is_found_with_its_step():
    wrong = [KL_LOG[0], {**KL_LOG[1], "loss": 0.01069}, KL_LOG[2]]
    found = english(loss_parts(wrong))
    assert found.severity == "error"
    assert "1 of 3 steps" in found.evidence and "step 2" in found.evidence
    assert "0.12 x kl" in found.evidence


@pytest.mark.parametrize(
    "step",
    [
        {"loss": 0.5},
        {"loss": 0.5, "ppo_loss": 0.1, "kl": 0.2},
        {"loss": 0.5, "ppo_loss": None},
        {"loss": 0.5, "kl": 0.2, "beta": 0.1},
    ],
)
def test_a_sum_of_which_a_part_is_unknown_is_not_judged(step):
    assert loss_parts([step]) is None


@given(st.floats(-2, 2), st.floats(0, 5), st.floats(0, 1), st.floats(0, 3), st.floats(0, 0.1))
@example(8.757947471987878e-44, 0.0, 0.0, 0.0, 0.0)
def test_sums_in_single_precision_hold(policy, kl, beta, entropy, coefficient):
    import numpy as np

    f = np.float32
    loss = f(policy) + f(beta) * f(kl) - f(coefficient) * f(entropy)
    step = {
        "loss": float(loss),
        "policy_loss": policy,
        "kl": kl,
        "kl_coef": beta,
        "entropy": entropy,
        "entropy_coef": coefficient,
    }
    assert loss_parts([step]) is None


def test_no_fallback_beside_errors_that_cause_one_is_a_contradiction():
    steps = [{"fallback_count": 0, "api_errors": 2}, {"fallback_count": 0, "api_errors": 0}]
    found = english(fallback_contradiction(steps))
    assert "api_errors 2" in found.evidence


def test_a_share_outside_its_range_is_found():
    assert impossible_share([{"signal_share": 0.0, "truncated_share": 1.0}]) is None
    found = english(impossible_share([{"step": 7, "truncated_share": 1.2}]))
    assert "truncated_share is 1.2 at step 7" in found.evidence
    assert impossible_share([{"clip_low_share": -0.1}]) is not None


def test_an_answer_cannot_be_right_and_wrong():
    right = [(1.0, "", {}), (0.0, "value_error", {}), (None, "", {})]
    assert contradictory_answers("a", right) == []
    (found,) = contradictory_answers("a", [*right, (1.0, "value_error", {})])
    assert "1 of 4 answers" in english(found).evidence
