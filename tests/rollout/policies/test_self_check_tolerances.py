"""What the self-check allows: constants in fp32, multiples of measured rounding in bf16."""

from collections.abc import Mapping

import pytest
import torch

from assay.errors import RunFailure
from assay.rollout.policies.self_check import (
    ATTENTION,
    ROLLOUT,
    Differences,
    Gradients,
    family_of,
    gradient_excess,
    judge,
)

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


def passes(found: Differences, place: str | None = None) -> str:
    """The family that a check is stopped for, "" where it passes."""
    try:
        judge(found, lambda: place)
    except RunFailure as failure:
        return str(failure).partition("the paths part in: ")[2].partition(";")[0]
    return ""


def test_in_fp32_the_largest_difference_counts():
    assert passes(differences(logp=0.9e-4)) == ""
    assert passes(differences(logp=1.1e-4), QUERY) == ATTENTION
    assert passes(differences(logp=1.1e-4)) == "embeddings and head", "after the last sublayer"
    assert passes(differences(rollout=2.9e-4)) == ""
    assert passes(differences(rollout=3.1e-4), QUERY) == ROLLOUT
    assert passes(differences(loss=1.0e-4)) == ""
    assert passes(differences(loss=1.2e-4), UP) == "MLP"


def test_in_bf16_the_mean_counts_in_units_of_the_plain_paths_own_rounding():
    # 4 x 0.02 + 0.1 / sqrt(100) and 6 x 0.02 + 0.1 / sqrt(100)
    assert passes(differences(logp=0.089, rounding=0.02)) == ""
    assert passes(differences(logp=0.091, rounding=0.02), UP) == "MLP"
    assert passes(differences(rollout=0.129, rounding=0.02)) == ""
    assert passes(differences(rollout=0.131, rounding=0.02)) == ROLLOUT


def test_a_gradient_is_judged_by_parameter_and_named_by_family():
    assert passes(differences(errors={QUERY: 2.9e-3})) == ""
    assert passes(differences(errors={QUERY: 3.1e-3, UP: 3.9e-3})) == ATTENTION
    assert passes(differences(errors={QUERY: 3.1e-3}), UP) == "MLP", "the place found goes first"
    assert passes(differences(errors={UP: float("nan")})) == "MLP"


def test_what_cancellation_left_of_a_gradient_is_judged_at_its_familys_scale():
    assert passes(differences(errors={KEY_BIAS: 2.9e-4})) == ""
    assert passes(differences(errors={KEY_BIAS: 3.1e-4})) == ATTENTION


def test_rounding_of_the_family_or_the_parameter_is_allowed_for():
    own = Gradients({QUERY: 3.0, UP: 4.0}, {QUERY: 0.3, UP: 0.0}, {QUERY: 0.03, UP: 0.0})
    excess, relative = gradient_excess(own, 0.06)
    assert excess == pytest.approx(0.1 / (0.06 + 4 * 0.01))
    assert relative == pytest.approx(0.1)
    other = "layers.1.self_attn.q_proj.weight"
    shaken = Gradients({QUERY: 3.0, other: 4.0}, {QUERY: 0.3, other: 0.0}, {QUERY: 0.0, other: 0.1})
    assert gradient_excess(shaken, 0.02)[0] == pytest.approx(0.1 / (0.02 + 4 * 0.02))


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("base_model.model.model.layers.3.self_attn.o_proj.lora_A.default.weight", ATTENTION),
        ("model.layers.3.self_attn.q_norm.weight", "norms"),
        ("lm_head.weight", "embeddings and head"),
        ("score.weight", "other weights"),
    ],
)
def test_parameters_belong_to_families(name, family):
    assert family_of(name) == family
