"""EGPO in both published forms: worked numbers, the promises of its bonus, and its marks."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.rl.advantages import ADVANTAGES, AdvantageInput, AdvantageOptions
from tests.rl.flat import GROUPS, batch_of

EXACT = AdvantageOptions(epsilon=0)
FORMS = ["egpo", "egpo_scaled_clip"]


def with_entropy(batch: AdvantageInput, entropy_E: list[float]) -> AdvantageInput:
    """Every episode has the given mean entropy over its chain of thought, its first token."""
    length = len(batch.episode_S) // len(batch.rewards_E)
    entropy_S = torch.full((len(batch.episode_S),), 50.0)
    entropy_S[::length] = torch.tensor(entropy_E)
    cot_mask_S = torch.arange(len(entropy_S)) % length == 0
    return replace(batch, entropy_S=entropy_S, cot_mask_S=cot_mask_S)


def worked() -> AdvantageInput:
    return with_entropy(batch_of([[1, 0, 0, 0]]), [0.3, 0.3, 2.0, 0.0])


@pytest.mark.parametrize(
    ("form", "expected"),
    [("egpo", [1.62, -0.38, -0.25, -0.5]), ("egpo_scaled_clip", [1.62, -0.4, -0.4, -0.5])],
)
def test_worked_example(form, expected):
    result_S = ADVANTAGES[form](worked(), EXACT)
    torch.testing.assert_close(result_S, torch.tensor(expected).repeat_interleave(2))


def test_diagnostics_of_the_worked_example():
    batch = worked()
    assert batch.cot_mask_S is not None
    batch = replace(batch, cot_mask_S=batch.cot_mask_S & (batch.episode_S != 3))
    paper = ADVANTAGES["egpo"].diagnose(batch, EXACT)
    assert paper == pytest.approx(
        {
            "cot_tokens_mean": 0.75,
            "share_without_cot": 0.25,
            "bonus_mean": (0.12 + 0.12 + 0.25) / 4,
            "share_capped": 0.25,
            # The advantages are 1.5, -0.5, -0.5 and -0.5.
            "bonus_to_advantage": (0.12 + 0.12 + 0.25) / 3,
        }
    )
    fork = ADVANTAGES["egpo_scaled_clip"].diagnose(batch, EXACT)
    assert fork["bonus_mean"] == pytest.approx((0.12 + 0.1 + 0.1) / 4)
    assert fork["share_capped"] == 0.5


@pytest.mark.parametrize("form", FORMS)
def test_the_bonus_beside_the_advantages_does_not_depend_on_silent_groups(form):
    alone, among = batch_of([[1, 0, 0, 0]]), batch_of([[1, 0, 0, 0], [1, 1, 1, 1], [0, 0]])
    entropies = [0.3, 0.3, 2.0, 0.0]
    first = ADVANTAGES[form].diagnose(with_entropy(alone, entropies), EXACT)
    second = ADVANTAGES[form].diagnose(with_entropy(among, [*entropies, *[9.0] * 6]), EXACT)
    assert second["bonus_to_advantage"] == pytest.approx(first["bonus_to_advantage"])
    assert second["bonus_mean"] == pytest.approx(first["bonus_mean"] * 4 / 10)
    silent = with_entropy(batch_of([[1, 1]]), [9.0, 9.0])
    assert ADVANTAGES[form].diagnose(silent, EXACT)["bonus_to_advantage"] == 0


@pytest.mark.parametrize("form", FORMS)
@given(group=GROUPS, data=st.data())
def test_bonus_is_never_negative_and_never_flips_a_sign(form, group, data):
    entropies = [data.draw(st.floats(0, 12)) for _ in group]
    batch = with_entropy(batch_of([group]), entropies)
    plain_S = ADVANTAGES["grpo"](batch, AdvantageOptions())
    result_S = ADVANTAGES[form](batch, AdvantageOptions())
    assert (result_S >= plain_S).all()
    assert torch.equal(result_S.sign(), plain_S.sign())
    assert (result_S[plain_S == 0] == 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_without_any_chain_of_thought_it_is_grpo_and_says_so(form):
    batch = replace(worked(), cot_mask_S=torch.zeros(8, dtype=torch.bool))
    assert torch.equal(ADVANTAGES[form](batch, EXACT), ADVANTAGES["grpo"](batch, EXACT))
    assert ADVANTAGES[form].diagnose(batch, EXACT)["share_without_cot"] == 1
