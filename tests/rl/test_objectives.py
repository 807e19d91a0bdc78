"""Objectives end to end on a table of logits: exact splits, terms, corrections, needs."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from assay.data.episode import Episode, Reward, Turn
from assay.errors import RunFailure
from assay.rl.advantages import ADVANTAGES, AdvantageInput, AdvantageOptions
from assay.rl.aggregation import AGGREGATIONS, Importance, rce_weights, sft_weights, token_weights
from assay.rl.kl import k3
from assay.rl.losses import LOSSES, Clip
from assay.rl.objectives import GrpoObjective, NllObjective, Objective
from assay.rl.packed import Packed, pack
from assay.rl.policy import ActionScores

V = 5
REWARDS = [1.0, 0.0, 0.5, 0.0, 0.25, 1.0]


class Table:
    """A policy whose logits depend on the context alone: context c reads row c."""

    def __init__(self, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.logits_KV = torch.randn(4, V, generator=generator).double().requires_grad_()

    def score(self, packed: Packed, entropy: bool = False) -> ActionScores:
        contexts_N = torch.tensor(packed.contexts)
        logps_SV = self.logits_KV[contexts_N[packed.turn_S]].log_softmax(-1)
        logps_S = logps_SV.gather(-1, packed.actions_S[:, None]).squeeze(-1)
        entropy_S = -(logps_SV.exp() * logps_SV).sum(-1)
        return ActionScores(logps_S, entropy_S if entropy else None)

    def gradient(
        self, objective: Objective, parts: list[Packed]
    ) -> tuple[Tensor, dict[str, float]]:
        """The gradient of the losses of all parts, and their sums added up."""
        total, sums = torch.zeros_like(self.logits_KV), {}
        for part in parts:
            output = objective(self.score(part, objective.needs.entropy), part)
            total += torch.autograd.grad(output.loss, self.logits_KV)[0]
            for name, value in output.sums.items():
                assert not value.requires_grad
                sums[name] = sums.get(name, 0.0) + value.item()
        return total, sums


def episodes(seed: int, rewards: list[float]) -> list[Episode]:
    """Two groups; episodes of one to three turns with unequal lengths and masked tokens."""
    generator = torch.Generator().manual_seed(seed)

    def draw(high: int) -> int:
        return int(torch.randint(high, (1,), generator=generator))

    def turn() -> Turn:
        length = 1 + draw(4)
        actions = tuple(draw(V) for _ in range(length))
        mask = (True, *(draw(4) > 0 for _ in range(length - 1)))
        behaviour = tuple(-1.6 + 0.1 * draw(10) for _ in range(length))
        return Turn(draw(4), actions, mask, behaviour)

    return [
        Episode(str(e), f"g{e % 2}", tuple(turn() for _ in range(1 + draw(3))), Reward(reward))
        for e, reward in enumerate(rewards)
    ]


def batch(
    seed: int = 0,
    rewards: list[float] = REWARDS,
    aggregation: str = "seq_mean_token_mean",
    advantage: str = "grpo",
) -> Packed:
    """A packed batch with advantages, weights and a reference."""
    packed = pack(episodes(seed, rewards))
    group_E = torch.arange(len(rewards)) % 2
    given_ = AdvantageInput(
        torch.tensor(rewards, dtype=torch.float64), group_E, packed.episode_S, packed.mask_S
    )
    reference_S = Table(99).score(packed).logps_S.detach()
    return packed.with_tokens(
        advantage_S=ADVANTAGES[advantage](given_, AdvantageOptions()),
        weight_S=token_weights(aggregation, packed.mask_S, packed.episode_S, scale=40),
        reference_S=reference_S,
    )


def means_of(sums: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Sums over trained tokens as means; "tokens" is kept."""
    tokens = float(sums["tokens"])
    return {name: float(total) / tokens for name, total in sums.items()} | {"tokens": tokens}


def several(loss: str = "ppo_clip") -> GrpoObjective:
    """Every term at once, off-policy."""
    return GrpoObjective(
        loss,
        Clip(0.1, 0.15, 3.0),
        kl_coef=0.05,
        kl_estimator="k3_corrected",
        entropy_coef=0.02,
        several_updates=True,
    )


def splits(packed: Packed, objective: Objective, order: list[int], cut: int) -> list[Packed]:
    """The batch in two micro-batches that keep the objective's atom together."""
    atoms = packed.episode_N if objective.atom == "episode" else torch.arange(len(packed.episode_N))
    names = atoms.unique().tolist()
    chosen = [names[i % len(names)] for i in order]
    chosen = list(dict.fromkeys(chosen + names))
    cut = min(cut, len(chosen) - 1)
    halves = chosen[:cut], chosen[cut:]
    turns = [
        [n for name in half for n in (atoms == name).nonzero().flatten().tolist()]
        for half in halves
    ]
    return [packed.take(half) for half in turns]


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
@given(seed=st.integers(0, 500), order=st.permutations(range(6)), cut=st.integers(1, 8))
@settings(max_examples=6, deadline=None)
def test_any_split_into_micro_batches_gives_the_same_gradient_and_metrics(
    loss, aggregation, seed, order, cut
):
    policy, objective = Table(seed), several(loss)
    packed = batch(seed, aggregation=aggregation)
    packed = packed.with_tokens(old_S=Table(seed + 1).score(packed).logps_S.detach())
    whole, sums = policy.gradient(objective, [packed])
    parts = splits(packed, objective, list(order), cut)
    split, split_sums = policy.gradient(objective, parts)
    torch.testing.assert_close(split, whole, rtol=1e-6, atol=1e-9)
    assert split_sums == pytest.approx(sums, rel=1e-5, abs=1e-5)
    assert whole.abs().sum() > 0


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_likelihood_methods_split_exactly_too(order):
    policy, packed = Table(1), batch()
    rewards_E, group_E = torch.tensor(REWARDS), torch.arange(6) % 2
    for weight_S in (
        sft_weights(packed.mask_S, packed.episode_S),
        rce_weights(packed.mask_S, packed.episode_S, rewards_E, group_E, tau=0.5),
    ):
        weighted = packed.with_tokens(weight_S=weight_S)
        whole, sums = policy.gradient(NllObjective(), [weighted])
        split, split_sums = policy.gradient(
            NllObjective(), splits(weighted, NllObjective(), list(order), 2)
        )
        torch.testing.assert_close(split, whole)
        assert split_sums == pytest.approx(sums)


def test_rollout_correction_weighs_the_policy_loss_and_not_the_kl():
    policy, packed = Table(5), batch()
    logps_S = policy.score(packed).logps_S
    assert packed.behaviour_S is not None and packed.reference_S is not None
    weight_S = (logps_S.detach() - packed.behaviour_S).exp().clamp(max=2.0)
    assert (weight_S == 2).any() and (weight_S < 2).any()
    kl_S = k3(logps_S, packed.reference_S)
    loss_S = -weight_S * packed.advantage_S * logps_S + 0.1 * kl_S
    expected = torch.autograd.grad((packed.weight_S * loss_S).sum(), policy.logits_KV)[0]
    corrected, _ = policy.gradient(GrpoObjective(kl_coef=0.1), [packed])
    torch.testing.assert_close(corrected, expected)
    unknown, _ = policy.gradient(GrpoObjective(kl_coef=0.1), [packed.with_tokens(behaviour_S=None)])
    off, _ = policy.gradient(GrpoObjective(kl_coef=0.1, importance=Importance(how="off")), [packed])
    torch.testing.assert_close(unknown, off)
    assert not torch.allclose(off, expected)


def test_after_an_update_the_correction_and_the_gap_still_use_the_sampling_weights():
    policy, before = Table(5), Table(6)
    packed = batch()
    old_S = before.score(packed).logps_S.detach()
    packed = packed.with_tokens(old_S=old_S)
    assert packed.behaviour_S is not None
    scores = policy.score(packed)
    output = GrpoObjective("ppo_clip", Clip(9, 9), several_updates=True)(scores, packed)
    correction_S = (old_S - packed.behaviour_S).exp().clamp(max=2)
    ratio_S = (scores.logps_S - old_S).exp()
    expected = -(packed.weight_S * correction_S * ratio_S * packed.advantage_S).sum()
    torch.testing.assert_close(output.loss, expected)
    gap_S = (old_S - packed.behaviour_S)[packed.mask_S]
    means = means_of(output.sums)
    assert means["rollout_gap_mean"] == pytest.approx(gap_S.abs().mean().item(), rel=1e-5)
    k3_mean = (gap_S.exp() - gap_S - 1).mean().item()
    assert means["rollout_gap_k3"] == pytest.approx(k3_mean, rel=1e-5)


def test_metrics_are_means_over_trained_tokens():
    policy, packed = Table(5), batch()
    objective = several()
    packed = packed.with_tokens(old_S=Table(6).score(packed).logps_S.detach())
    scores = policy.score(packed, entropy=True)
    means = means_of(objective(scores, packed).sums)
    assert scores.entropy_S is not None and packed.old_S is not None
    assert packed.reference_S is not None
    mask_S = packed.mask_S
    assert means["entropy"] == pytest.approx(scores.entropy_S[mask_S].mean().item())
    kl_S = k3(scores.logps_S, packed.reference_S)
    assert means["kl"] == pytest.approx(kl_S[mask_S].mean().item())
    ratio_S = (scores.logps_S - packed.old_S).exp()
    high_S = (ratio_S > 1.15) & (packed.advantage_S > 0)
    low_S = (ratio_S < 0.9) & (packed.advantage_S < 0)
    assert means["clip_high_share"] == pytest.approx(high_S[mask_S].double().mean().item())
    assert means["clip_low_share"] == pytest.approx(low_S[mask_S].double().mean().item())
    assert means["clip_high_share"] > 0 and means["clip_low_share"] > 0
    log_ratio_S = scores.logps_S - packed.old_S
    assert means["policy_kl"] == pytest.approx(-log_ratio_S[mask_S].mean().item(), rel=1e-5)


@pytest.mark.parametrize("missing", ["old_S", "reference_S", "entropy", "gradient of entropy"])
def test_what_is_needed_and_missing_stops_the_run(missing):
    packed = batch()
    packed = packed.with_tokens(old_S=Table(6).score(packed).logps_S.detach())
    scores = Table(5).score(packed, entropy=missing != "entropy")
    if missing == "gradient of entropy":
        assert scores.entropy_S is not None
        scores = replace(scores, entropy_S=scores.entropy_S.detach())
    elif missing != "entropy":
        packed = packed.with_tokens(**{missing: None})
    with pytest.raises(RunFailure):
        several()(scores, packed)
