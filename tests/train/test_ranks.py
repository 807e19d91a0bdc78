"""What several processes do with one model is what one process does, and they show that they hold
the same weights. Gradients are in `test_rank_gradients`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch

from assay.data.episode import Episode, tokens_of
from assay.errors import RunFailure
from assay.models.lora import begin_masks
from assay.rl.objectives import NllObjective, Objective
from assay.rl.packed import Packed
from assay.rl.policy import Policy, SampleKey, Sampling
from assay.train.grpo import score_all
from assay.train.likelihood import likelihood_batch
from assay.train.ranks import cut
from assay.train.update import Bill, atoms, update
from tests.exact import random_groups
from tests.train.team_of_forks import POLICIES, SIZES, Case, Forks, batches, optimizer_of, team_of
from tests.train.toys import CandidatePolicy, query

SETTINGS = {"micro_tokens": 60, "clip_norm": 1.0}
BUDGETS = (60, 10**6)
"""Micro-batches of a few turns, and one of everything."""


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Iterator[Forks]:
    with team_of(2, tmp_path_factory.mktemp("two")) as found:
        yield found


def test_log_probs_are_those_of_one_process_with_their_dropout(two: Forks) -> None:
    episodes = [e for group in random_groups(4, SIZES) for e in group]
    packed = likelihood_batch(episodes)
    for kind, budget, referring in product(("lora", "dropout"), BUDGETS, (False, True)):
        alone = POLICIES[kind]()
        begin_masks(alone.module, 0, 3)
        with two.opened(Case(kind)) as ranked:
            begin_masks(ranked.module, 0, 3)
            found = [scored(policy, packed, budget, referring) for policy in (alone, ranked)]
        torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-9)


def scored(policy: Policy, packed: Packed, budget: int, referring: bool):
    if not referring:
        return score_all(policy, packed, budget, entropy=True)
    with policy.reference():
        return score_all(policy, packed, budget, entropy=True)


def test_completions_are_those_of_one_process(two: Forks) -> None:
    """Keys decide what is drawn, so that it does not depend on who draws."""
    prompts = [(5, 6, 7), (5, 6, 7), (9,), (200, 3), (9,), (40, 41, 42, 43)]
    keys = [SampleKey(1, f"q{n}", n) for n in range(len(prompts))]
    sampling = Sampling(temperature=1.0, max_tokens=8)
    alone = POLICIES["lora"]().sample(prompts, keys, sampling)
    with two.opened(Case("lora")) as ranked:
        shared = ranked.sample(prompts, keys, sampling)
    assert [turn.context for turn in shared] == prompts
    assert [turn.actions for turn in shared] == [turn.actions for turn in alone]
    for ours, theirs in zip(shared, alone, strict=True):
        assert ours.behaviour_logps == pytest.approx(theirs.behaviour_logps, abs=1e-9)


def test_a_policy_that_is_no_language_model_is_shared_alike(two: Forks) -> None:
    """Sampled, scored and updated, as by one process."""
    alone = CandidatePolicy()
    own = optimizer_of(alone)
    sampling = Sampling(temperature=1.0, max_tokens=1)
    keys = [SampleKey(1, f"q{n}", 0) for n in range(12)]
    prompts = [query(n % 5) for n in range(12)]
    settings = {"micro_tokens": 3, "clip_norm": 1.0}
    with two.opened(Case("candidates")) as ranked:
        for policy, optimizer in ((alone, own), (ranked, ranked.member.optimizer)):
            turns = policy.sample(prompts, keys, sampling)
            assert [turn.context for turn in turns] == prompts
            episodes = [Episode(f"{n}#0", str(n), (turn,)) for n, turn in enumerate(turns)]
            update(policy, likelihood_batch(episodes), NllObjective(), optimizer, **settings)
        torch.testing.assert_close(ranked.module.weight, alone.weight, atol=1e-12, rtol=0)


def test_a_conversation_stays_with_the_rank_that_began_it(two: Forks) -> None:
    keys = [SampleKey(1, f"q{n}", 0) for n in range(4)]
    sampling = Sampling(temperature=1.0, max_tokens=4)
    with two.opened(Case("lora")) as ranked, ranked.conversations():
        prompts = [(5,) * (n + 1) for n in range(4)]
        turns = ranked.sample(prompts, keys, sampling)
        first = dict(ranked._homes or {})
        later = [
            tokens_of(turn.context) + turn.actions + (3,) * 30 * (3 - n)
            for n, turn in enumerate(turns)
        ]
        keys = [replace(key, row=f"{key.row}\x1f1") for key in keys]
        shared = ranked.sample(later, keys, sampling)
        assert ranked._homes == first and sorted(first.values()) == [0, 0, 1, 1]
    alone = POLICIES["lora"]().sample(later, keys, sampling)
    assert [turn.actions for turn in shared] == [turn.actions for turn in alone]


@pytest.mark.parametrize("sharded", [False, True])
def test_ten_updates_by_the_same_answers_end_at_the_weights_of_one_process(
    two: Forks, sharded: bool
) -> None:
    """So that what two ranks' runs differ by are other draws."""
    alone = POLICIES["full"]()
    start = {name: each.detach().clone() for name, each in alone.module.named_parameters()}
    own = optimizer_of(alone)
    updates, objective = batches(alone, "ppo_clip", "token_mean", 2)
    with two.opened(Case("full", sharded=sharded)) as ranked:
        for packed in [*updates] * 5:
            update(alone, packed, objective, own, **SETTINGS)
            update(ranked, packed, objective, ranked.member.optimizer, **SETTINGS)
        found = ranked.call("weights", [None, None])[0]
    for name, weight in alone.module.named_parameters():
        off, way = (found[name] - weight).norm(), (weight - start[name]).norm()
        assert way > 0 and off < 1e-9 * way, (name, float(off / way))


def test_a_gradient_that_is_not_finite_moves_no_rank(two: Forks) -> None:
    updates, objective = batches(POLICIES["lora"](), "sft", "token_mean", 1)
    broken = updates[0].with_tokens(weight_S=updates[0].weight_S * torch.inf)
    with two.opened(Case("lora")) as ranked:
        before = {n: p.clone() for n, p in ranked.module.named_parameters()}
        found = update(ranked, broken, objective, ranked.member.optimizer, **SETTINGS)
        assert not found.stepped
        assert all(torch.equal(p, before[n]) for n, p in ranked.module.named_parameters())
        after = update(ranked, updates[0], objective, ranked.member.optimizer, **SETTINGS)
        assert after.stepped


def test_a_rank_whose_optimizer_does_something_else_is_caught_in_its_first_step(two: Forks) -> None:
    updates, objective = batches(POLICIES["full"](), "sft", "token_mean", 1)
    with (
        pytest.raises(RunFailure, match=r"update: rank 1 .* rank 0, first in model\."),
        two.opened(Case("full", fault="stray")) as ranked,
    ):
        update(ranked, updates[0], objective, ranked.member.optimizer, **SETTINGS)


def test_a_rank_with_another_frozen_weight_is_caught_before_the_first_step(two: Forks) -> None:
    with (
        pytest.raises(RunFailure, match=r"at the stage's start: rank 1 .*, first in base_model"),
        two.opened(Case("lora", fault="other base")),
    ):
        raise AssertionError("it was not caught")


def test_ranks_take_over_weights_and_moments_of_rank_0(two: Forks) -> None:
    """As after a resume: the same step follows as in the process that was not interrupted."""
    alone = POLICIES["lora"]()
    own = optimizer_of(alone)
    updates, objective = batches(alone, "sft", "token_mean", 2)
    update(alone, updates[0], objective, own, **SETTINGS)
    again = POLICIES["lora"]()
    again.module.load_state_dict(alone.module.state_dict())
    update(alone, updates[1], objective, own, **SETTINGS)
    with two.opened(Case("lora"), again, moments(again, updates[0], objective)) as ranked:
        update(ranked, updates[1], objective, ranked.member.optimizer, **SETTINGS)
    for name, weight in alone.module.named_parameters():
        torch.testing.assert_close(again.module.get_parameter(name), weight, atol=1e-9, rtol=0)


def moments(policy: Policy, packed: Packed, objective: Objective) -> torch.optim.Optimizer:
    """An optimizer as it is after a step with this batch."""
    fresh = POLICIES["lora"]()
    made = optimizer_of(fresh)
    update(fresh, packed, objective, made, micro_tokens=60, clip_norm=1.0)
    optimizer = optimizer_of(policy)
    optimizer.load_state_dict(made.state_dict())
    return optimizer


def test_atoms_are_shared_out_so_that_no_rank_has_much_more() -> None:
    """Never worse than an even share by more than one atom with its prompt; no atom is cut."""
    policy = POLICIES["lora"]()
    for seed in range(20):
        packed = likelihood_batch([e for g in random_groups(seed, (7, 1, 5, 9)) for e in g])
        for atom, count in product(("turn", "episode", "group"), (1, 2, 3, 4)):
            units = atoms(packed, atom)
            shares = cut(policy, packed, units, count)
            assert [unit for share in shares for unit in share] == units and len(shares) == count
            costs = [cost(policy, packed, share) for share in shares]
            most = max(cost(policy, packed, [unit]) for unit in units)
            assert max(costs) <= cost(policy, packed, units) / count + most + 20


def cost(policy: Policy, packed: Packed, units: Sequence[list[int]]) -> int:
    """Tokens that the units cost in one micro-batch."""
    return Bill(policy, packed).price([turn for unit in units for turn in unit])
