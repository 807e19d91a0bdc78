"""Accumulation is exact: any split into micro-batches gives the gradient of the whole batch."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.data.episode import Episode, Turn
from assay.models.precision import choose_precision
from assay.rl.aggregation import AGGREGATIONS, token_weights
from assay.rl.losses import LOSSES
from assay.rl.objectives import GrpoObjective
from assay.rl.packed import pack
from assay.rollout.policies.language import LanguagePolicy
from assay.rollout.policies.self_check import in_tokens
from assay.train.update import accumulate, micro_batches, update
from tests.few import few
from tests.tiny import tiny_model


def language_policy() -> LanguagePolicy:
    return LanguagePolicy(tiny_model().double(), choose_precision("fp32", "cpu"), frozenset({1}))


def episodes(groups: int, group: int, turns: int, seed: int) -> list[Episode]:
    """Random episodes of unequal lengths; a later turn has a longer context of its own."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> tuple[int, ...]:
        length = int(torch.randint(low, high, (1,), generator=generator))
        return tuple(torch.randint(2, 300, (length,), generator=generator).tolist())

    found = []
    for g in range(groups):
        prompt = draw(1, 12)
        for i in range(group):
            parts, context = [], prompt
            for _ in range(turns):
                actions = draw(1, 9)
                parts.append(Turn(context, actions, (True,) * len(actions)))
                context = context + actions + draw(1, 4)
            found.append(Episode(f"{g}#{i}", str(g), tuple(parts)))
    return found


def gradient(
    packed, objective, budget: int, clip_norm: float = 1e9
) -> tuple[list[torch.Tensor], float, dict[str, float]]:
    policy = language_policy()
    optimizer = torch.optim.SGD(policy.module.parameters(), lr=1.0)
    before = [p.detach().clone() for p in policy.module.parameters()]
    result = update(policy, packed, objective, optimizer, micro_tokens=budget, clip_norm=clip_norm)
    # With rate 1 the step is the gradient itself.
    found = [b - p.detach() for b, p in zip(before, policy.module.parameters(), strict=True)]
    return found, result.grad_norm, result.totals.sums


@few(
    "loss, aggregation",
    # Each of both once, and then every pair.
    sorted(
        itertools.product(sorted(LOSSES), sorted(AGGREGATIONS)),
        key=lambda pair: (
            sorted(LOSSES).index(pair[0]) % len(AGGREGATIONS) != sorted(AGGREGATIONS).index(pair[1])
        ),
    ),
    fast=len(LOSSES),
)
def test_any_micro_batch_budget_gives_the_gradient_of_the_whole(loss, aggregation):
    batch = pack(episodes(3, 3, 2, seed=1))
    generator = torch.Generator().manual_seed(2)
    advantage_E = torch.randn(9, generator=generator)
    weight_S = token_weights(aggregation, batch.mask_S, batch.episode_S, scale=100.0)
    with torch.no_grad():
        old_S = language_policy().score(batch).logps_S
    old_S = old_S + 0.3 * torch.randn(len(old_S), generator=generator)
    batch = batch.with_tokens(
        advantage_S=advantage_E[batch.episode_S], weight_S=weight_S, old_S=old_S.float()
    )
    whole, norm, sums = gradient(batch, GrpoObjective(loss=loss), 10**6)
    assert norm > 0
    for budget in (1, 20, 60):
        parts, part_norm, part_sums = gradient(batch, GrpoObjective(loss=loss), budget)
        assert part_norm == pytest.approx(norm, rel=1e-5)
        assert part_sums == pytest.approx(sums, rel=1e-4, abs=1e-5)
        for a, b in zip(whole, parts, strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


@given(
    groups=st.integers(1, 4),
    group=st.integers(1, 4),
    turns=st.integers(1, 3),
    budget=st.integers(1, 80),
    atom=st.sampled_from(["turn", "episode", "group"]),
    seed=st.integers(0, 99),
)
def test_micro_batches_keep_atoms_whole_and_within_budget(groups, group, turns, budget, atom, seed):
    packed = pack(episodes(groups, group, turns, seed))
    micros = list(micro_batches(Priced(), packed, atom, budget))  # type: ignore[arg-type]
    assert torch.equal(torch.cat([m.actions_S for m in micros]), packed.actions_S)
    owners = []
    for micro in micros:
        cost = len(micro.actions_S) + sum(map(len, set(in_tokens(micro))))
        # What goes on from the turn before is not computed again.
        lengths = micro.offsets_N1.diff().tolist()
        for n in range(1, len(micro.contexts)):
            if micro.contexts[n] not in micro.contexts[:n] and micro.goes_on(n - 1, n):
                cost -= len(in_tokens(micro)[n - 1]) + lengths[n - 1]
        ids = micro.episode_N if atom == "episode" else micro.group_N
        owners.append(set(ids.tolist()))
        pieces = len(micro.contexts) if atom == "turn" else len(owners[-1])
        longest = max(len(c) + n for c, n in zip(in_tokens(micro), lengths, strict=True))
        assert cost <= max(budget, 2 * longest) or pieces == 1
    if atom != "turn":
        assert sum(map(len, owners)) == len(set().union(*owners)), "an atom was cut"


@pytest.mark.parametrize("budget", [1, 10**6])
def test_weights_that_no_gradient_reaches_are_left_alone_for_any_budget(budget):
    batch = pack(episodes(2, 2, 1, seed=0))
    batch = batch.with_tokens(advantage_S=torch.randn(len(batch.actions_S)))
    policy = language_policy()
    unused = torch.nn.Parameter(torch.ones(3))
    policy.module.register_parameter("unused", unused)
    optimizer = torch.optim.AdamW(policy.module.parameters(), lr=0.1, weight_decay=0.5)
    update(policy, batch, GrpoObjective(), optimizer, micro_tokens=budget, clip_norm=1.0)
    assert torch.equal(unused, torch.ones(3))
    assert unused not in optimizer.state
    assert all(p.grad is None for p in policy.module.parameters())


def test_an_update_that_fails_leaves_no_gradient_and_no_hook_behind():
    batch = pack(episodes(3, 2, 1, seed=0))
    batch = batch.with_tokens(advantage_S=torch.randn(len(batch.actions_S)))
    policy = language_policy()

    def failing(scores, packed):
        raise RuntimeError("boom")

    failing.atom, failing.needs = GrpoObjective().atom, GrpoObjective().needs  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="boom"):
        accumulate(policy, batch, failing, micro_tokens=1)  # type: ignore[arg-type]
    assert all(p.grad is None for p in policy.module.parameters())
    assert not any(p._post_accumulate_grad_hooks for p in policy.module.parameters())


class Priced:
    def context_cost(self, context):
        return len(context)


def group_of(prompt: int, completions: int, tokens: int, name: int = 0) -> list[Episode]:
    """Completions of so many tokens behind one prompt."""
    turns = [Turn((name,) * prompt, (2,) * tokens, (True,) * tokens) for _ in range(completions)]
    return [Episode(f"{name}#{i}", str(name), (turn,)) for i, turn in enumerate(turns)]


@pytest.mark.parametrize(
    ("prompt", "budget", "expected"),
    [
        (2048, 2048, [8]),  # the prompt alone fills the budget
        (2048, 100, [8]),
        (200, 2048, [8]),
        (200, 300, [6, 2]),  # up to as many tokens as the prompt has
        (100, 300, [6, 2]),  # within the budget
    ],
)
def test_a_long_prompt_is_not_computed_for_each_completion(prompt, budget, expected):
    packed = pack(group_of(prompt, completions=8, tokens=32))
    micros = list(micro_batches(Priced(), packed, "turn", budget))  # type: ignore[arg-type]
    assert [len(micro.contexts) for micro in micros] == expected


def test_gradients_are_clipped_to_the_norm():
    batch = pack(episodes(1, 2, 1, seed=0)).with_tokens(advantage_S=None)
    batch = batch.with_tokens(advantage_S=torch.ones(len(batch.actions_S)))
    clipped, norm, _ = gradient(batch, GrpoObjective(), 4096, clip_norm=0.01)
    assert norm > 0.01
    assert float(torch.stack([m.norm() for m in clipped]).norm()) == pytest.approx(0.01, rel=1e-4)
