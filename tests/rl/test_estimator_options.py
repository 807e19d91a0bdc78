"""Options of estimators: which reads which, per-reward normalisation, and the entropy mask."""

from dataclasses import fields

import pytest
import torch

from assay.errors import InputError
from assay.rl.advantages import ADVANTAGES, AdvantageInput, AdvantageOptions, gdpo, may_drop
from assay.rl.objectives import GrpoObjective, high_entropy_mask
from tests.rl.test_objectives import Table, batch
from tests.rl.test_trl_oracle import trl_rows


class Watched:
    """Options that note what is read of them."""

    def __init__(self):
        self.read: set[str] = set()

    def __getattr__(self, name: str):
        self.read.add(name)
        return getattr(AdvantageOptions(), name)


def input_of(rewards, group, parts=None, weights=None, tokens: int = 2) -> AdvantageInput:
    episodes = len(rewards)
    return AdvantageInput(
        rewards_E=torch.tensor(rewards, dtype=torch.float64),
        group_E=torch.tensor(group),
        episode_S=torch.arange(episodes).repeat_interleave(tokens),
        mask_S=torch.ones(episodes * tokens, dtype=torch.bool),
        entropy_S=torch.linspace(0.1, 1, episodes * tokens),
        cot_mask_S=torch.ones(episodes * tokens, dtype=torch.bool),
        parts_EK=None if parts is None else torch.tensor(parts, dtype=torch.float64),
        part_weights_K=None if weights is None else torch.tensor(weights, dtype=torch.float64),
    )


@pytest.mark.parametrize("name", ADVANTAGES)
def test_an_estimator_reads_the_options_it_is_said_to_read(name):
    given_ = input_of([1.0, 0.0, 0.5, 0.2], [0, 0, 1, 1], [[1.0], [0.0], [0.5], [0.2]], [1.0])
    options = Watched()
    ADVANTAGES[name](given_, options)  # type: ignore[arg-type]
    assert options.read - {"equal"} == ADVANTAGES[name].reads
    assert ADVANTAGES[name].reads <= {field.name for field in fields(AdvantageOptions)}


def trl_normalize_then_sum(parts_EK, weights_K, generations: int, epsilon: float):
    """TRL f2cd5771, multi_objective_aggregation="normalize_then_sum"."""
    grouped = parts_EK.view(-1, generations, parts_EK.shape[1])
    mean = grouped.mean(dim=1, keepdim=True)
    deviation = grouped.std(dim=1, keepdim=True)
    reward_k = ((grouped - mean) / (deviation + epsilon)).view(-1, parts_EK.shape[1])
    rewards = (reward_k * weights_K).sum(dim=1)
    return (rewards - rewards.mean()) / (rewards.std() + epsilon)


def test_gdpo_agrees_with_trl():
    generator = torch.Generator().manual_seed(1)
    parts_EK = torch.rand(12, 3, generator=generator, dtype=torch.float64)
    parts_EK[:, 2] = (parts_EK[:, 2] > 0.5).double() * 100
    weights_K = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    group = torch.arange(3).repeat_interleave(4).tolist()
    made = input_of([0.0] * 12, group, parts_EK.tolist(), weights_K.tolist(), tokens=1)
    found = gdpo(made, AdvantageOptions(epsilon=1e-4))
    expected = trl_normalize_then_sum(parts_EK, weights_K, 4, 1e-4)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_gdpo_without_parts_is_refused_and_its_groups_are_never_dropped():
    with pytest.raises(InputError):
        gdpo(input_of([1.0, 0.0], [0, 0]), AdvantageOptions())
    assert ADVANTAGES["gdpo"].whitened and not may_drop(advantage="gdpo")


def test_groups_that_are_alone_are_kept_where_their_raw_reward_is_the_advantage():
    assert may_drop(advantage="grpo", lone="zero") and not may_drop(advantage="grpo", lone="reward")
    options = AdvantageOptions(lone="reward")
    found = ADVANTAGES["grpo"](input_of([2.0, -1.0], [0, 1], tokens=1), options)
    assert found.tolist() == pytest.approx([2.0, -1.0], rel=1e-5)


def test_the_entropy_mask_agrees_with_trl(shared):
    checked = trl_rows(shared, "high_entropy_mask")
    for row in checked:
        entropy_S = torch.tensor(row["input"]["entropies"]).flatten()
        mask_S = torch.tensor(row["input"]["mask"]).flatten().bool()
        found = high_entropy_mask(entropy_S, mask_S, 1 - row["params"]["threshold"])
        assert found.int().tolist() == torch.tensor(row["expected"]).flatten().tolist()
    assert len(checked) == 3


def test_the_policy_mask_silences_policy_loss_and_bonus_but_neither_kl_nor_denominators():
    policy, packed = Table(5), batch()
    half_S = packed.mask_S & (torch.arange(len(packed.mask_S)) % 2 == 0)
    objective = GrpoObjective(kl_coef=0.1, entropy_coef=0.05)
    masked = packed.with_tokens(policy_mask_S=half_S)
    gradient, _ = policy.gradient(objective, [masked])
    kept = packed.with_tokens(weight_S=torch.where(half_S, packed.weight_S, 0.0))
    policy_part, _ = policy.gradient(GrpoObjective(entropy_coef=0.05), [kept])
    kl_part, _ = policy.gradient(
        GrpoObjective(kl_coef=0.1), [packed.with_tokens(advantage_S=packed.advantage_S * 0)]
    )
    torch.testing.assert_close(gradient, policy_part + kl_part)
    whole, _ = policy.gradient(objective, [packed])
    assert not torch.allclose(gradient, whole)
