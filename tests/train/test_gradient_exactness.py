"""Loss and gradients of the shared path are as exact as those of plain forwards in fp32.

The reference is the plain path in float64 throughout: one sequence at a time, no packing, no
sharing. Every preset and loss, group sizes from 1 to 16, unequal prompts and completions.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from assay.models.plain_forward import score_plainly
from assay.models.precision import choose_precision
from assay.rl.losses import LOSSES
from assay.rl.objectives import GrpoObjective
from assay.rl.packed import Packed
from assay.rl.policy import ActionScores
from assay.rl.presets import PRESETS
from assay.rl.thought import Thinking
from assay.rollout.policies.language import LanguagePolicy
from assay.rollout.policies.self_check import in_tokens
from assay.train.grpo import Grpo
from assay.train.pair_choice import GroupChoice
from tests.exact import exact_model, in_float64, random_groups
from tests.few import few
from tests.tiny import FAMILIES, tiny_model
from tests.train import toys
from tests.train.team_of_forks import moved

FP32 = choose_precision("fp32", "cpu")
SIZES = [(16, 1, 5), (1, 2), (7, 11), (3,), (2, 4, 8)]
TIMES_PLAIN, TIMES_PLAIN_ONCE = 1.5, 4.0
"""The first holds for a parameter's geometric mean over batches. In one batch both errors are sums
of few roundings, and their quotient scatters either way: the plain path with eager attention is 0.3
to 3.2 times as far from float64 as with SDPA, and 1.0 times typically."""
FLOOR = 8 * 2.0**-24
"""Eight roundings of fp32, relative to the gradient's norm: who is nearer is nearer by luck."""

FAST = {("qwen3", True)}
"""Of every preset; of every loss all families are."""

Gradients = dict[str, Tensor]


def spell(tokens: Sequence[int]) -> str:
    """A text in which tokens 3 and 4 open and close a chain of thought."""
    return "".join({3: "<think>", 4: "</think>"}.get(token, "x") for token in tokens)


def batch(policy: LanguagePolicy, preset_name: str, seed: int) -> tuple[Packed, GrpoObjective]:
    """A preset's batch a little after its rollout; odd seeds have terms for KL and entropy."""
    preset = PRESETS[preset_name]
    coefficient = 0.05 * (seed % 2)
    objective = GrpoObjective(
        preset.loss,
        preset.clip,
        kl_coef=coefficient,
        entropy_coef=coefficient,
        several_updates=True,
    )
    settings = toys.settings(
        advantage=preset.advantage,
        options=preset.advantage_options,
        aggregation=preset.aggregation,
        micro_tokens=10**6,
    )
    method = Grpo(None, settings, objective, str, Thinking(spell))  # type: ignore[arg-type]
    groups = random_groups(seed, SIZES[seed % len(SIZES)])
    (packed,), _, _ = method.updates(policy, groups, GroupChoice(tuple(range(len(groups)))))
    return moved(packed, seed, min(0.1, preset.clip.high)), objective


def shared(policy: LanguagePolicy, packed: Packed, objective: GrpoObjective):
    policy.module.zero_grad()
    loss = objective(policy.score(packed, objective.needs.entropy), packed).loss
    loss.backward()
    return float(loss.detach()), gradients(policy.module)


def plain(module: nn.Module, packed: Packed, objective: GrpoObjective):
    module.zero_grad()
    scores = score_plainly(
        module,
        in_tokens(packed),
        packed.actions_S,
        packed.offsets_N1,
        temperature=packed.temperature,
        entropy=objective.needs.entropy,
    )
    loss = objective(ActionScores(*scores), packed).loss
    loss.backward()
    return float(loss.detach()), gradients(module)


def gradients(module: nn.Module) -> Gradients:
    return {n: p.grad.double() for n, p in module.named_parameters() if p.grad is not None}


def errors(found: Gradients, exact: Gradients) -> dict[str, float]:
    assert found.keys() == exact.keys()
    return {name: float((found[name] - exact[name]).norm()) for name in exact}


def ratios(module: nn.Module, packed: Packed, objective: GrpoObjective) -> dict[str, float]:
    """Error of the shared path over that of the plain one, by parameter; losses are compared."""
    policy = LanguagePolicy(module, FP32, frozenset({7}))
    ours, our_gradients = shared(policy, packed, objective)
    _, their_gradients = plain(module, packed, objective)
    exact, exact_gradients = plain(in_float64(module), packed, objective)
    assert abs(ours - exact) < 1e-5
    theirs = errors(their_gradients, exact_gradients)
    found = {}
    for name, error in errors(our_gradients, exact_gradients).items():
        norm = float(exact_gradients[name].norm())
        assert norm > 0, name
        floor = FLOOR * norm * terms(packed, objective)
        found[name] = max(error, floor) / max(theirs[name], floor)
    return found


def terms(packed: Packed, objective: GrpoObjective) -> int:
    """Log-probs whose roundings add up in one factor of the loss: a completion's, where the ratio
    is a product over it."""
    whole = objective.loss == "sequence_clip"
    return int(torch.bincount(packed.episode_S).max()) if whole else 1


def assert_as_exact(cases: list[dict[str, float]]) -> None:
    """Every parameter's error is at most 1.5 times the plain path's, typically over the cases."""
    for name in cases[0]:
        found = [case[name] for case in cases]
        typical = math.exp(sum(map(math.log, found)) / len(found))
        assert typical <= TIMES_PLAIN, f"{name}: {typical:.2f}"
        assert max(found) <= TIMES_PLAIN_ONCE, f"{name}: {max(found):.2f}"


@pytest.mark.parametrize(
    ("family", "adapter"),
    [
        pytest.param(
            family,
            adapter,
            marks=[] if (family, adapter) in FAST else [pytest.mark.slow],
            id=f"{family}-{'lora' if adapter else 'full'}",
        )
        for family in sorted(FAMILIES)
        for adapter in (False, True)
    ],
)
def test_presets_have_the_loss_and_gradients_of_the_plain_path(family, adapter):
    module = exact_model(family, adapter)
    frozen = tiny_model(family, seed=1).requires_grad_(False)
    policy = LanguagePolicy(module, FP32, frozenset({7}), frozen=frozen)
    assert_as_exact(
        [
            ratios(module, *batch(policy, preset, seed))
            for number, preset in enumerate(sorted(PRESETS))
            for seed in range(number, number + (1 if (family, adapter) in FAST else 2))
        ]
    )


@few("family", sorted(FAMILIES), fast=1)
def test_losses_have_the_gradients_of_the_plain_path(family):
    module = exact_model(family, False)
    policy = LanguagePolicy(module, FP32, frozenset({7}))
    packed, objective = batch(policy, "grpo", seed=2)
    assert_as_exact(
        [ratios(module, packed, replace(objective, loss=loss)) for loss in sorted(LOSSES)]
    )
