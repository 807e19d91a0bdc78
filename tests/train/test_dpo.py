"""DPO's steps: the reference stays where the stage began, means are over pairs, nothing is cut."""

from dataclasses import replace

import pytest
import torch

from assay.experiment.training_settings import Pairs
from assay.rl.preference import Preference
from assay.train.checkpoint import Place
from assay.train.likelihood import Dpo
from assay.train.pair_choice import choose_pairs
from assay.train.update import accumulate, micro_batches
from tests.train import toys
from tests.train.test_methods import run
from tests.train.test_stored_candidates import stored as group

GROUPS = [group(0, 1.0, 0.0, 0.5), group(1, 0.2, None, 0.8), group(2, 0.5, 0.5)]


def dpo(batch: int = 4, **changes) -> Dpo:
    pairs = choose_pairs(GROUPS, Pairs(), 0)
    made = Dpo(pairs, batch, 3, Preference(0.7), "score", 10**6, groups=3, telling=2)
    return replace(made, **changes)


def taken(method: Dpo, policy: toys.CandidatePolicy, place: Place | None = None):
    return method.collect(policy, place or Place(), toys.MemoryRecorder())


def gradient(method: Dpo, policy: toys.CandidatePolicy, budget: int) -> torch.Tensor:
    (packed,) = taken(method, policy).updates
    policy.module.zero_grad()
    accumulate(policy, packed, method.objective, budget)
    assert policy.weight.grad is not None
    return policy.weight.grad.clone()


def test_the_reference_is_the_start_in_every_step() -> None:
    policy = toys.moved()
    (packed,) = taken(dpo(), policy, Place(5, 8)).updates
    with policy.reference():
        start_S = policy.score(packed).logps_S
    assert packed.reference_S is not None and packed.behaviour_S is None
    torch.testing.assert_close(packed.reference_S, start_S)
    assert not torch.allclose(packed.reference_S, policy.score(packed).logps_S.detach())


def test_no_split_into_micro_batches_cuts_a_pair_or_changes_the_gradient() -> None:
    method, policy = dpo(), toys.moved()
    (packed,) = taken(method, policy).updates
    micros = list(micro_batches(policy, packed, method.objective.atom, 1))
    assert len(micros) == 4
    for micro in micros:
        assert micro.group_N.unique().numel() == 1 and len(micro.contexts) == 2
    whole = gradient(method, policy, 10**6)
    for budget in (1, 5, 8):
        torch.testing.assert_close(gradient(method, policy, budget), whole)


def test_a_step_follows_from_its_place_alone() -> None:
    policy, steps = toys.moved(), []
    for _ in range(2):
        method = dpo(3)
        steps.append([taken(method, policy, Place(n, 3 * n)).updates[0] for n in (4, 1)])
    for one, other in zip(*steps, strict=True):
        assert one.contexts == other.contexts and torch.equal(one.actions_S, other.actions_S)
    assert not torch.equal(steps[0][0].actions_S, steps[0][1].actions_S)


def test_metrics_are_means_over_pairs_and_training_prefers_the_better() -> None:
    policy, method = toys.CandidatePolicy(), dpo()
    (packed,) = taken(method, policy).updates
    logps_S = policy.score(packed).logps_S.detach()
    chosen_S = packed.preference_S > 0  # type: ignore[operator]
    _, recorder = run(method, 60, lr=1.0, policy=policy, plain=True)
    first, last = recorder.lines[0], recorder.lines[-1]
    assert first["chosen_logp"] == pytest.approx(float(logps_S[chosen_S].sum()) / 4)
    assert first["rejected_logp"] == pytest.approx(float(logps_S[~chosen_S].sum()) / 4)
    assert first["loss"] == pytest.approx(0.693147, abs=1e-6) == first["preference_loss"]
    assert first["reward_margin"] == first["reward_accuracy"] == first["kl"] == 0
    assert first["signal_share"] == pytest.approx(2 / 3)
    assert first["score_gap"] == pytest.approx((1 + 0.5 + 0.5 + 0.6) / 4)
    assert last["reward_accuracy"] == 1 and last["loss"] < 0.4 and last["kl"] > 0
    assert last["reward_margin"] > first["reward_margin"]
