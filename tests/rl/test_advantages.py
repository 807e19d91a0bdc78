"""Advantage estimators: worked numbers, and the properties that must hold for any rewards."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.rl.advantages import ADVANTAGES, AdvantageInput, AdvantageOptions
from tests.rl.flat import GROUPS, REWARDS, batch_of

CENTRED = ["grpo", "mean_only", "rloo", "opo", "gpg", "pass_at_k", "egpo", "egpo_scaled_clip"]
OPTIONS = AdvantageOptions()

WHITENED = {name for name, each in ADVANTAGES.items() if each.whitened}


def advantage(name: str, batch: AdvantageInput, options: AdvantageOptions = OPTIONS):
    if name.startswith("egpo"):
        entropy_S = torch.linspace(0, 3, len(batch.episode_S))
        batch = replace(batch, entropy_S=entropy_S, cot_mask_S=batch.mask_S)
    if name == "gdpo":
        one_part = batch.rewards_E[:, None]
        batch = replace(batch, parts_EK=one_part, part_weights_K=torch.ones(1))
    return ADVANTAGES[name](batch, options)


def test_every_estimator_is_under_test_here():
    assert set(CENTRED) | WHITENED == set(ADVANTAGES)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("grpo", AdvantageOptions(epsilon=0, ddof=0), [1.7320508] + [-0.5773503] * 3),
        ("pass_at_k", AdvantageOptions(scale_by_std=False), [1, 0, 0, 0]),
    ],
)
def test_worked_group_with_one_success(name, options, expected):
    result_S = advantage(name, batch_of([[1, 0, 0, 0]], length=1), options)
    torch.testing.assert_close(result_S, torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize("name", CENTRED)
@given(reward=st.floats(-1000, 1000, width=32), size=st.integers(2, 9), others=GROUPS)
def test_group_of_equal_rewards_gets_exactly_zero(name, reward, size, others):
    result_S = advantage(name, batch_of([[reward] * size, others]))
    assert (result_S[: 2 * size] == 0).all()


@pytest.mark.parametrize("name", CENTRED)
def test_equal_rewards_with_rounding_noise_get_exactly_zero(name):
    # 0.1 + 0.2 and 0.3 differ in the last bit; dividing by a deviation of 1e-17 would not be 0.
    batch = batch_of([[0.1 + 0.2, 0.3, 0.3]])
    assert (advantage(name, batch) == 0).all()
    float32 = replace(batch, rewards_E=torch.tensor([0.1, 0.1, 0.1 + 1e-8], dtype=torch.float32))
    assert (advantage(name, float32) == 0).all()


def test_whitening_moves_a_group_of_equal_rewards_unless_the_whole_batch_is_equal():
    mixed = batch_of([[1, 1], [0, 0]])
    assert (advantage("reinforce_pp", mixed) != 0).all()
    assert (advantage("reinforce_pp", batch_of([[0.1] * 3, [0.1] * 4])) == 0).all()
    uneven = replace(
        batch_of([[1, 1], [1, 0]]), mask_S=torch.tensor([1, 1, 1, 1, 1, 0, 1, 1]).bool()
    )
    assert (advantage("reinforce_pp_baseline", uneven)[:4] != 0).all()
    assert (advantage("reinforce_pp_baseline", batch_of([[1, 1], [0, 0]])) == 0).all()


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_an_episode_alone_in_its_group_by_option(name):
    batch = batch_of([[0.7]])
    assert (advantage(name, batch) == 0).all()
    if name in ("mean_only", "rloo", "opo", "gpg"):
        kept_S = advantage(name, batch, AdvantageOptions(lone="reward"))
        torch.testing.assert_close(kept_S, torch.full((2,), 0.7))


@pytest.mark.parametrize("name", [n for n in ADVANTAGES if not n.startswith("egpo")])
@given(groups=st.lists(GROUPS, min_size=1, max_size=3), data=st.data())
def test_permuting_episodes_permutes_advantages(name, groups, data):
    rewards = [r for group in groups for r in group]
    # pass_at_k rewards one of several best; only without ties is it a function of the reward.
    groups = [[r + i * 0.03 for i, r in enumerate(group)] for group in groups]
    batch = batch_of(groups)
    order = torch.tensor(data.draw(st.permutations(range(len(rewards)))))
    shuffled = replace(batch, rewards_E=batch.rewards_E[order], group_E=batch.group_E[order])
    before = advantage(name, batch).reshape(-1, 2)
    after = advantage(name, shuffled).reshape(-1, 2)
    torch.testing.assert_close(after, before[order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@given(groups=st.lists(GROUPS, min_size=2, max_size=3))
@settings(max_examples=20, deadline=None)
def test_untrained_tokens_get_no_advantage(name, groups):
    batch = batch_of(groups, length=3)
    mask_S = torch.arange(len(batch.episode_S)) % 3 != 1
    result_S = advantage(name, replace(batch, mask_S=mask_S))
    assert (result_S[~mask_S] == 0).all()
    assert result_S.isfinite().all()


def test_an_episode_without_trained_tokens_does_no_harm():
    batch = batch_of([[1, 0], [1, 0]])
    mask_S = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]).bool()
    for name in ADVANTAGES:
        result_S = advantage(name, replace(batch, mask_S=mask_S))
        assert result_S.isfinite().all()
        assert (result_S[4:6] > 0).all()


def test_token_rewards_count_towards_the_outcome_of_trained_tokens_only():
    batch = replace(
        batch_of([[1, 1]]),
        token_rewards_S=torch.tensor([-0.25, -0.25, 0.0, 99.0]),
        mask_S=torch.tensor([True, True, True, False]),
    )
    expected = torch.tensor([-0.25, -0.25, 0.25, 0])
    torch.testing.assert_close(advantage("mean_only", batch), expected)


@given(first=REWARDS, gap=st.integers(1, 20), rest=st.lists(REWARDS, max_size=4))
def test_pass_at_k_pays_the_margin_of_the_best_alone(first, gap, rest):
    group = [min([first, *rest]) - 1, *rest, max([first, *rest]) + gap / 10]
    result_S = advantage(
        "pass_at_k", batch_of([group], length=1), AdvantageOptions(scale_by_std=False)
    )
    margin = group[-1] - max(group[:-1])
    assert result_S.tolist() == pytest.approx([0.0] * (len(group) - 1) + [margin], abs=1e-6)
