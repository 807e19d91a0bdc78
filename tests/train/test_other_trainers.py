"""Presets named after other programs have the gradients of these programs' own formulas.

The formulas are written here again, over padded tensors (E, T) as those programs hold them, from
TRL f2cd5771 (`grpo_trainer.py`, `rloo_trainer.py`) and verl b178a3cd (`core_algos.py`).
"""

import pytest
import torch
from torch import Tensor

from assay.experiment.training_settings import Kl
from assay.rl.objectives import GrpoObjective
from assay.rl.packed import Packed
from assay.rl.policy import ActionScores
from assay.rl.presets import PRESETS
from assay.train.checkpoint import Place
from assay.train.grpo import Grpo
from assay.train.sampled_groups import StoredPrompts, value_of
from tests.train import toys
from tests.train.test_group_choice import group

GROUPS = [
    group(0, [1.0, 0.0, 0.0, 0.0], [2, 5, 1, 4]),
    group(1, [0.3, 0.3, 0.3, 0.3], [3, 3, 2, 6]),
    group(2, [0.51, 0.5, 0.5, 0.5], [7, 1, 2, 3]),
]
"""One of equal rewards, and one of so little difference that 1e-4 beside the deviation shows."""
BETA = 0.05


def step(name: str, kl: float = 0.0) -> tuple[Packed, GrpoObjective]:
    """The one update that a preset makes of the groups, as at the stage's tables."""
    preset = PRESETS[name]
    objective = GrpoObjective(preset.loss, preset.clip, several_updates=True)
    settings = toys.settings(
        advantage=preset.advantage,
        options=preset.advantage_options,
        aggregation=preset.aggregation,
        algorithm=name,
        drop=not kl,
        kl=Kl(coef=kl, where="reward", estimator="k1"),
    )
    made = Grpo(StoredPrompts(GROUPS, 3), settings, objective, toys.decode)
    batch = made.collect(toys.moved(), Place(), toys.MemoryRecorder())
    (packed,) = batch.updates
    return packed, objective


def lengths() -> list[int]:
    return [len(e.turns[0].actions) for one in GROUPS for e in one]


def padded(values_S: Tensor, fill: float = 0.0) -> Tensor:
    """Values of all episodes' tokens laid end to end, as (E, T)."""
    rows = list(values_S.split(lengths()))
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)


def scored() -> tuple[Tensor, Tensor]:
    """Log-probs (S) of all twelve episodes under the policy and under its reference."""
    policy = toys.moved()
    found = []
    for module in (policy.module, policy.frozen):
        logps = [
            module(torch.tensor(e.turns[0].context, dtype=torch.float64)).log_softmax(-1)[
                list(e.turns[0].actions)
            ]
            for one in GROUPS
            for e in one
        ]
        found.append(torch.cat(logps).detach())
    return found[0], found[1]


def shift(count: int) -> Tensor:
    """How far the policy has moved since: some ratios are beyond every clip."""
    return 1.5 * torch.randn(count, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def ours(name: str, kl: float = 0.0) -> Tensor:
    """Gradient by the log-prob of each of the twelve episodes' tokens (S), padded."""
    packed, objective = step(name, kl)
    assert packed.old_S is not None
    whole, _ = scored()
    rows = torch.arange(len(whole)).split(lengths())
    trained = [n for n in range(12) if kl or n // 4 != 1]
    index_S = torch.cat([rows[n] for n in trained])
    assert packed.old_S.tolist() == pytest.approx(whole[index_S].tolist())
    logps_S = (packed.old_S + shift(len(whole))[index_S]).requires_grad_()
    objective(ActionScores(logps_S), packed).loss.backward()
    assert logps_S.grad is not None
    return padded(torch.zeros(len(whole), dtype=torch.float64).index_add(0, index_S, logps_S.grad))


def rewards() -> Tensor:
    return torch.tensor([value_of(e) for one in GROUPS for e in one], dtype=torch.float64)


def theirs() -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs now, with gradient, and before, and the mask, all (E, T)."""
    whole, _ = scored()
    old_ET = padded(whole)
    logps_ET = (old_ET + padded(shift(len(whole)))).requires_grad_()
    return logps_ET, old_ET, padded(torch.ones(len(whole)))


def gradient_of(logps_ET: Tensor) -> Tensor:
    assert logps_ET.grad is not None
    return logps_ET.grad


def test_trl_grpo_has_the_gradient_of_trls_defaults():
    logps_ET, old_ET, mask_ET = theirs()
    grouped = rewards().view(3, 4)
    advantages = (grouped - grouped.mean(1, keepdim=True)).view(-1)
    advantages = advantages / (grouped.std(1).repeat_interleave(4) + 1e-4)
    coef_1 = torch.exp(logps_ET - old_ET)
    coef_2 = torch.clamp(coef_1, 1 - 0.2, 1 + 0.2)
    per_token_loss = -torch.min(coef_1 * advantages[:, None], coef_2 * advantages[:, None])
    ((per_token_loss * mask_ET).sum() / mask_ET.sum()).backward()
    torch.testing.assert_close(ours("trl_grpo"), gradient_of(logps_ET), rtol=1e-5, atol=1e-9)
    assert not torch.allclose(ours("verl_grpo"), gradient_of(logps_ET), rtol=1e-3)


@pytest.mark.parametrize("beta", [0.0, BETA])
def test_trl_rloo_clips_the_probability_of_the_whole_completion(beta):
    logps_ET, old_ET, mask_ET = theirs()
    _, reference_S = scored()
    kl = ((old_ET - padded(reference_S)) * mask_ET).sum(-1)
    earned = rewards() - beta * kl
    grouped = earned.view(3, 4)
    baselines = (grouped.sum(1, keepdim=True) - grouped) / (4 - 1)
    advantages = earned - baselines.view(-1)
    log_ratio = (logps_ET * mask_ET).sum(1) - (old_ET * mask_ET).sum(1)
    coef_1 = torch.exp(log_ratio)
    coef_2 = torch.clamp(coef_1, 1 - 0.2, 1 + 0.2)
    (-torch.min(coef_1 * advantages, coef_2 * advantages)).mean().backward()
    moved = (gradient_of(logps_ET).abs().sum(1) > 0)[advantages.abs() > 1e-9]
    assert moved.any() and not moved.all(), "some are clipped"
    torch.testing.assert_close(ours("trl_rloo", beta), gradient_of(logps_ET), rtol=1e-5, atol=1e-8)
    assert not torch.allclose(ours("rloo", beta), gradient_of(logps_ET), rtol=1e-3)


def test_verl_grpo_has_the_gradient_of_verls_defaults():
    logps_ET, old_ET, mask_ET = theirs()
    grouped = rewards().view(3, 4)
    advantages = (grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-6)
    advantages = advantages.view(-1, 1)
    ratio = torch.exp(torch.clamp(logps_ET - old_ET, min=-20.0, max=20.0))
    pg_losses1 = -advantages * ratio
    pg_losses2 = -advantages * torch.clamp(ratio, 1 - 0.2, 1 + 0.2)
    clip_pg_losses1 = torch.maximum(pg_losses1, pg_losses2)
    pg_losses3 = -advantages * 3.0
    clip_pg_losses2 = torch.min(pg_losses3, clip_pg_losses1)
    pg_losses = torch.where(advantages < 0, clip_pg_losses2, clip_pg_losses1)
    ((pg_losses * mask_ET).sum() / mask_ET.sum()).backward()
    dual = (advantages < 0) & (clip_pg_losses1 > pg_losses3) & mask_ET.bool()
    assert dual.any(), "the dual clip holds somewhere"
    torch.testing.assert_close(ours("verl_grpo"), gradient_of(logps_ET), rtol=1e-5, atol=1e-9)
    assert not torch.allclose(ours("trl_grpo"), gradient_of(logps_ET), rtol=1e-3)
