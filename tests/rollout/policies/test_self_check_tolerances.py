"""What the self-check allows: constants in fp32, multiples of measured rounding in bf16."""

from collections.abc import Mapping

import pytest
import torch

from assay.errors import RunFailure
from assay.rollout.policies.self_check import Differences, Gradients, gradient_excess, judge

QUERY, KEY_BIAS, UP = "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.k_proj.bias", "mlp.up"
NORMS = {QUERY: 3.0, KEY_BIAS: 1e-9, UP: 4.0}


def differences(
    *,
    logp: float = 0.0,
    rollout: float = 0.0,
    rounding: float | None = None,
    loss: float = 0.0,
    errors: Mapping[str, float] | None = None,
) -> Differences:
    """A hundred tokens of which one differs in fp32, all in bf16."""
    tokens = torch.ones(100) if rounding is not None else torch.eye(100)[0]
    return Differences(
        logp_S=logp * tokens,
        rollout_S=rollout * tokens,
        rounding_S=None if rounding is None else torch.full((100,), rounding),
        loss=loss,
        slope=1.0,
        gradients=Gradients(
            NORMS, dict.fromkeys(NORMS, 0.0) | dict(errors or {}), dict.fromkeys(NORMS, 0.0)
        ),
    )


def fails(found: Differences) -> str:
    """What a check is stopped for, "" where it passes."""
    try:
        judge(found)
    except RunFailure as failure:
        return str(failure)
    return ""


def test_in_fp32_the_largest_difference_counts():
    assert not fails(differences(logp=0.9e-4))
    assert "one sequence at a time differ" in fails(differences(logp=1.1e-4))
    assert not fails(differences(rollout=2.9e-4))
    assert "rollout and training differ" in fails(differences(rollout=3.1e-4))
    assert not fails(differences(loss=1.0e-4))
    assert "losses differ" in fails(differences(loss=1.2e-4))


def test_in_bf16_the_mean_counts_in_units_of_the_plain_paths_own_rounding():
    # 4 x 0.02 + 0.1 / sqrt(100) and 6 x 0.02 + 0.1 / sqrt(100)
    assert not fails(differences(logp=0.089, rounding=0.02))
    assert "one sequence at a time" in fails(differences(logp=0.091, rounding=0.02))
    assert not fails(differences(rollout=0.129, rounding=0.02))
    assert "rollout and training" in fails(differences(rollout=0.131, rounding=0.02))


def test_a_gradient_is_judged_by_parameter_and_what_cancellation_left_at_its_familys_scale():
    assert not fails(differences(errors={QUERY: 2.9e-3}))
    for error in ({QUERY: 3.1e-3, UP: 3.9e-3}, {UP: float("nan")}, {KEY_BIAS: 3.1e-4}):
        assert "gradients differ" in fails(differences(errors=error))
    assert not fails(differences(errors={KEY_BIAS: 2.9e-4}))


def test_rounding_of_the_family_or_the_parameter_is_allowed_for():
    own = Gradients({QUERY: 3.0, UP: 4.0}, {QUERY: 0.3, UP: 0.0}, {QUERY: 0.03, UP: 0.0})
    excess, relative = gradient_excess(own, 0.06)
    assert excess == pytest.approx(0.1 / (0.06 + 4 * 0.01))
    assert relative == pytest.approx(0.1)
    other = "layers.1.self_attn.q_proj.weight"
    shaken = Gradients({QUERY: 3.0, other: 4.0}, {QUERY: 0.3, other: 0.0}, {QUERY: 0.0, other: 0.1})
    assert gradient_excess(shaken, 0.02)[0] == pytest.approx(0.1 / (0.02 + 4 * 0.02))
