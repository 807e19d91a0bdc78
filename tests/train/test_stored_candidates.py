"""Stored groups: which candidates an epoch learns from, and what the methods make of them."""

from itertools import pairwise
from typing import cast

import pytest
import torch

from assay.data.episode import Episode, Reward, Turn
from assay.experiment.training_settings import AdaptiveKl, Kl
from assay.rl.objectives import GrpoObjective
from assay.rl.presets import PRESETS
from assay.train.checkpoint import Batch, Place, TrainState
from assay.train.grpo import Grpo
from assay.train.likelihood import Rce, Rft, Validation, weighted_batch
from assay.train.sampled_groups import StoredGroups
from assay.train.update import accumulate, constant
from tests.train import toys
from tests.train.test_methods import run

LEVER = PRESETS["lever_plus"]


def stored(number: int, *rewards: float | None) -> tuple[Episode, ...]:
    """Candidates of query `number`: the nth of one or two picks, with the nth reward."""
    found = []
    for n, value in enumerate(rewards):
        picks = tuple((number + n + i) % toys.CANDIDATES for i in range(1 + n % 2))
        turn = Turn(toys.query(number), picks, (True,) * len(picks))
        reward = Reward(value, why="" if value is not None else "a fallback")
        found.append(Episode(f"q{number}#{n}", f"q{number}", (turn,), reward))
    return tuple(found)


def groups(*made: tuple[Episode, ...], prompts: int = 1, best: tuple[int, ...] = ()):
    return StoredGroups(made, prompts, seed=3, best=best)


def gradient(batch: Batch, policy: toys.CandidatePolicy | None = None) -> torch.Tensor:
    policy = policy or toys.CandidatePolicy()
    policy.module.zero_grad()
    for packed in batch.updates:
        accumulate(policy, packed, batch.objective, 10**6)
    return torch.zeros_like(policy.weight) if policy.weight.grad is None else policy.weight.grad


def rce(stream: StoredGroups, tau: float = 0.5, **options) -> Rce:
    return Rce(stream, constant(tau), 1.0, toys.decode, **options)


def taken(made: Rce | Rft | Grpo) -> Batch:
    return made.collect(toys.CandidatePolicy(), Place(), toys.MemoryRecorder())


def grpo(stream: StoredGroups, beta: float = 0.12, **options) -> Grpo:
    settings = toys.settings(
        advantage=LEVER.advantage,
        options=LEVER.advantage_options,
        aggregation=LEVER.aggregation,
        drop=False,
        candidates="stored",
        **options,
    )
    objective = GrpoObjective(
        LEVER.loss, LEVER.clip, beta, "k3_sequence_reverse", several_updates=True
    )
    return Grpo(stream, settings, objective, toys.decode)


def test_a_group_that_nothing_is_left_of_keeps_its_place_in_an_epoch():
    stream = groups((), stored(1, 0.0, 1.0), prompts=2)
    batch = taken(rce(stream))
    assert batch.consumed == 2 and len(batch.updates) == 1
    assert batch.metrics["groups"] == 2 and batch.metrics["signal_share"] == 0.5
    empty = taken(rce(groups((), prompts=1)))
    assert not empty.updates and empty.metrics["rows"] == 1


def test_rce_weighs_a_group_by_softmax_of_its_rewards():
    """domain.md 10: [2, 0, 0, 0, 0] at tau 2 and 0.5."""
    policy = toys.CandidatePolicy()
    group = stored(0, 2.0, 0.0, 0.0, 0.0, 0.0)
    for tau, first, rest in ((2.0, 0.4046, 0.1488), (0.5, 0.9317, 0.0171)):
        shares = [first, *[rest] * 4]
        found = gradient(taken(rce(groups(group), tau)))
        policy.module.zero_grad()
        logps = policy.logps([toys.query(0)])[0]
        picks = [e.turns[0].actions for e in group]
        sums = torch.stack([logps[list(actions)].sum() for actions in picks])
        (-(torch.tensor(shares).double() * sums).sum()).backward()
        torch.testing.assert_close(found, policy.weight.grad, atol=2e-4, rtol=0)


@pytest.mark.parametrize("best", [(), (1,), (2,)])
def test_a_group_of_equal_rewards_has_exactly_no_gradient_in_rce(best):
    dead, alive = stored(0, 0.5, 0.5, 0.5), stored(1, 0.0, 1.0, 0.5)
    batch = taken(rce(groups(dead), best=best))
    assert not batch.updates and batch.metrics["signal_share"] == 0
    both = taken(rce(groups(dead, alive, prompts=2), best=best))
    alone = taken(rce(groups(alive), best=best))
    torch.testing.assert_close(gradient(both), gradient(alone))
    assert gradient(taken(rce(groups(dead), best=best, imitate=True))).norm() > 0


def test_ratios_are_to_the_weights_at_the_start_in_every_epoch():
    policy, made = toys.moved(), grpo(groups(stored(0, 1.0, 0.0)))
    batch = made.collect(policy, Place(4, 4), toys.MemoryRecorder())
    (packed,) = batch.updates
    with policy.reference():
        start_S = policy.score(packed).logps_S
    assert packed.old_S is not None and packed.reference_S is not None
    torch.testing.assert_close(packed.old_S, start_S)
    torch.testing.assert_close(packed.reference_S, start_S)
    assert not torch.allclose(packed.old_S, policy.score(packed).logps_S.detach())
    assert not batch.samples and "entropy" not in batch.metrics


def test_a_group_of_equal_rewards_has_exactly_no_policy_gradient_in_grpo():
    dead = taken(grpo(groups(stored(0, 0.7, 0.7, 0.7)), beta=0.0))
    assert float(gradient(dead).abs().max()) == 0
    assert dead.metrics["signal_share"] == 0 and dead.metrics["advantage_std"] == 0


def test_an_adaptive_coefficient_follows_the_kl_of_each_step_and_stops_with_it():
    stream = groups(stored(0, 1.0, 0.0, 0.5), stored(1, 0.0, 1.0, 0.2), prompts=2)
    made = grpo(stream, kl=Kl(coef=0.12, adaptive=AdaptiveKl()))
    state = TrainState()
    lines = run(made, 12, lr=0.5, state=state, plain=True)[1].lines
    rule, coefs = AdaptiveKl(), [line["kl_coef"] for line in lines]
    for before, after in pairwise(lines):
        assert after["kl_coef"] == rule.next(before["kl_coef"], before["kl_loss"])
    assert coefs[0] == 0.12 and len({*coefs}) > 2
    assert state.kl_coef == rule.next(coefs[-1], lines[-1]["kl_loss"])
    for line in lines:
        total = line["policy_loss"] + line["kl_coef"] * line["kl_loss"]
        assert line["loss"] == pytest.approx(total, abs=1e-12)


def test_offline_and_online_take_the_same_step_from_the_same_candidates():
    """Sampled now and scored before the update, or stored: at the start both are one objective."""
    group = stored(0, 1.0, 0.0, 0.5)
    offline = taken(grpo(groups(group)))
    online = grpo(groups(group), old_at_start=False)
    torch.testing.assert_close(gradient(offline), gradient(taken(online)))


def test_the_validation_of_groups_is_rces_loss_with_raw_rewards_and_tau_1():
    held = [stored(0, 1.0, 0.0), stored(1, 0.2, 0.7, 0.1)]
    policy = toys.CandidatePolicy()
    expected = []
    for number, group in enumerate(held):
        values = torch.tensor([e.reward.value for e in group if e.reward]).double()
        logps = policy.logps([toys.query(number)])[0]
        nll = torch.stack([-logps[list(e.turns[0].actions)].sum() for e in group])
        expected.append(float((values.softmax(0) * nll).sum().detach()))
    for budget in (1, 1000):
        packed = weighted_batch([e for group in held for e in group], 1.0, 1.0)
        made = Validation(packed, frozenset({2}), budget, groups=True)
        assert made.loss(cast(toys.CandidatePolicy, policy)) == pytest.approx(
            sum(expected) / 2, rel=1e-6
        )
    assert made.look(policy, 1) == {} and policy.weight.grad is None
