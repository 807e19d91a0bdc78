"""What several processes do with one model is what one process does, and they show that they hold
the same weights.

In float64, so that another order of the same sums shows as 1e-15 and a wrong factor does not hide.
"""

from collections.abc import Iterator
from itertools import product

import pytest
import torch

from assay.models.lora import begin_masks, place_of_masks
from assay.rl.aggregation import AGGREGATIONS
from assay.rl.losses import LOSSES
from assay.rl.objectives import NllObjective
from assay.rl.policy import Policy
from assay.train.likelihood import likelihood_batch
from assay.train.ranks import StepCall
from assay.train.update import Totals, accumulate
from tests.exact import random_groups
from tests.train.team_of_forks import POLICIES, Case, Forks, batches, team_of

BUDGETS = (60, 10**6)
"""Micro-batches of a few turns, and one of everything."""
METHODS = [*LOSSES, "sft", "rce", "dpo"]


@pytest.fixture(
    scope="module",
    params=[2, pytest.param(1, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)],
)
def forks(request, tmp_path_factory) -> Iterator[Forks]:
    with team_of(request.param, tmp_path_factory.mktemp("ranks")) as found:
        yield found


def gradient(policy: Policy) -> dict[str, torch.Tensor]:
    return {n: p.grad for n, p in policy.module.named_parameters() if p.grad is not None}


def expect_same_gradient(
    forks: Forks,
    kind: str,
    method: str,
    aggregation: str,
    minibatches: int,
    budget: int,
    sharded: bool = False,
) -> None:
    alone, rounding = POLICIES[kind](), 1e-4 if kind == "single" else 1e-9
    begin_masks(alone.module, 0, 3)
    updates, objective = batches(alone, method, aggregation, minibatches)
    with forks.opened(Case(kind, sharded=sharded)) as ranked:
        begin_masks(ranked.module, 0, 3)
        for packed in updates:
            totals = accumulate(alone, packed, objective, budget)
            shared, norm = ranked.accumulate(packed, objective, budget)
            assert place_of_masks(alone.module) == place_of_masks(ranked.module)
            expect_same(shared, totals)
            theirs = gradient(alone)
            norms = [grad.norm() for grad in theirs.values()]
            assert float(norm) == pytest.approx(float(torch.stack(norms).norm()), rel=rounding)
            for ours in ranked.call("show", [None] * forks.team.size):
                assert ours.keys() == theirs.keys()
                for name, whole in theirs.items():
                    assert whole.norm() > 0
                    off = (ours[name] - whole).norm() / whole.norm()
                    assert off < rounding, (name, float(off))
            alone.module.zero_grad(set_to_none=True)
            forget = StepCall(torch.tensor(torch.nan), 1.0, [])
            ranked.call("step", [forget] * forks.team.size)


def expect_same(ours: Totals, theirs: Totals) -> None:
    assert ours.coefficients == theirs.coefficients
    assert ours.sums == pytest.approx(theirs.sums, rel=1e-6)
    assert ours.parts == pytest.approx(theirs.parts, rel=1e-6, abs=1e-9)
    assert (ours.loss, ours.size) == pytest.approx((theirs.loss, theirs.size), rel=1e-6)


SAMPLE = [
    ("full", "ppo_clip", "token_mean", 1, 10**6),
    ("full", "gspo", "seq_mean_token_mean", 2, 60),
    ("lora", "cispo", "seq_mean_token_sum_norm", 2, 60),
    ("dropout", "ppo_clip", "seq_mean_token_sum", 1, 60),
    ("dropout", "sft", "token_mean", 1, 10**6),
    ("lora", "rce", "token_mean", 2, 60),
    ("full", "dpo", "token_mean", 1, 60),
]


def test_gradients_are_those_of_one_process(forks: Forks) -> None:
    for case in SAMPLE:
        expect_same_gradient(forks, *case)


SHARDED = [
    ("full", "ppo_clip", "token_mean", 1, 10**6),
    ("lora", "gspo", "seq_mean_token_mean", 2, 60),
    ("dropout", "sft", "token_mean", 1, 60),
    ("full", "dpo", "token_mean", 1, 60),
    ("single", "sft", "token_mean", 1, 60),
    ("recomputed", "sft", "token_mean", 1, 60),
]


def test_gradients_of_sharded_weights_are_those_of_one_process(forks: Forks) -> None:
    for case in SHARDED:
        expect_same_gradient(forks, *case, sharded=True)


@pytest.mark.parametrize("sharded", [False, True])
def test_a_rank_without_a_share_of_the_batch_takes_part_all_the_same(
    forks: Forks, sharded: bool
) -> None:
    alone = POLICIES["lora"]()
    packed = likelihood_batch(random_groups(3, (1,))[0])
    totals = accumulate(alone, packed, NllObjective(), 60)
    with forks.opened(Case("lora", sharded=sharded)) as ranked:
        shared, _ = ranked.accumulate(packed, NllObjective(), 60)
        expect_same(shared, totals)
        for ours in ranked.call("show", [None] * forks.team.size):
            assert ours.keys() == gradient(alone).keys()
            for name, whole in gradient(alone).items():
                torch.testing.assert_close(ours[name], whole, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_gradients_are_those_of_one_process_whatever_the_method(forks: Forks) -> None:
    for kind, method, parts, budget in product(("full", "lora"), METHODS, (1, 2), BUDGETS):
        for aggregation in AGGREGATIONS if method in LOSSES else ("token_mean",):
            expect_same_gradient(forks, kind, method, aggregation, parts, budget)
