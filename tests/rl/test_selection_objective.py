"""The reports' objective for whole selections, against a second writing of its formula in torch."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.data.episode import Episode, Reward, Turn
from assay.experiment.training_settings import AdaptiveKl
from assay.rl.advantages import ADVANTAGES, normalised_rewards
from assay.rl.aggregation import token_weights
from assay.rl.kl import SEQUENCE_KL
from assay.rl.objectives import GrpoObjective
from assay.rl.packed import Packed, pack
from assay.rl.policy import ActionScores
from assay.rl.presets import PRESETS
from tests.rl.flat import GROUPS, batch_of

PRESET = PRESETS["lever_plus"]
SHOTS = (2, 2, 3, 1, 2)


def selections(seed: int, spread: float = 0.4) -> tuple[Packed, Tensor]:
    """Five selections of a few picks, and their new log-probs (S) with gradient."""
    generator = torch.Generator().manual_seed(seed)
    turns = [Turn((n,), tuple(range(k)), (True,) * k) for n, k in enumerate(SHOTS)]
    packed = pack([Episode(f"q#{n}", "q", (turn,), Reward(0.0)) for n, turn in enumerate(turns)])
    old_S = -torch.rand(len(packed.actions_S), generator=generator).double()
    new_S = old_S + spread * torch.randn(len(old_S), generator=generator).double()
    advantage_E = torch.randn(len(SHOTS), generator=generator).double()
    weight_S = token_weights(PRESET.aggregation, packed.mask_S, packed.episode_S)
    packed = packed.with_tokens(
        old_S=old_S,
        reference_S=old_S,
        advantage_S=advantage_E[packed.episode_S],
        weight_S=weight_S.double(),
    )
    return packed, new_S.requires_grad_()


def as_reported(packed: Packed, new_S: Tensor, beta: float) -> tuple[Tensor, Tensor, Tensor]:
    """-mean min(rho A, clip(rho, .8, 1.2) A), mean(rho - 1 - log rho), and their sum with beta."""
    ends = packed.offsets_N1.tolist()
    spans = list(pairwise(ends))
    assert packed.old_S is not None
    new, old = (torch.stack([x[a:b].sum() for a, b in spans]) for x in (new_S, packed.old_S))
    advantage = packed.advantage_S[torch.tensor(ends[:-1])]
    rho = (new - old).exp()
    ppo = -torch.min(rho * advantage, rho.clamp(0.8, 1.2) * advantage).mean()
    kl = (rho - 1 - (new - old)).mean()
    return ppo, kl, ppo + beta * kl


@pytest.mark.parametrize("seed", range(4))
def test_the_objective_of_whole_selections_is_the_reports_with_its_gradient(seed):
    packed, new_S = selections(seed)
    objective = GrpoObjective(
        PRESET.loss, PRESET.clip, 0.12, "k3_sequence_reverse", several_updates=True
    )
    found = objective(ActionScores(new_S), packed)
    ppo, kl, total = as_reported(packed, new_S, 0.12)
    torch.testing.assert_close(found.parts["policy_loss"], ppo.detach())
    torch.testing.assert_close(found.parts["kl_loss"], kl.detach())
    torch.testing.assert_close(found.loss, total)
    (mine,) = torch.autograd.grad(found.loss, new_S, retain_graph=True)
    (theirs,) = torch.autograd.grad(total, new_S)
    torch.testing.assert_close(mine, theirs)
    assert objective.atom == "episode"


@pytest.mark.parametrize("name", SEQUENCE_KL)
def test_each_direction_is_the_divergence_it_is_named_after(name):
    """Its mean over samples of one policy is the exact KL of that policy to the other."""
    new_V = torch.tensor([0.5, 0.3, 0.2]).double()
    old_V = torch.tensor([0.2, 0.2, 0.6]).double()
    of, other = (new_V, old_V) if name == "k3_sequence" else (old_V, new_V)
    exact = float((of * (of / other).log()).sum())
    turns = [Turn((v,), (v,), (True,)) for v in range(3)]
    packed = pack([Episode(str(v), "q", (turn,)) for v, turn in enumerate(turns)])
    packed = packed.with_tokens(reference_S=old_V.log(), old_S=old_V.log(), weight_S=of)
    objective = GrpoObjective(kl_coef=1.0, kl_estimator=name, several_updates=True)
    assert float(objective(ActionScores(new_V.log()), packed).parts["kl_loss"]) == pytest.approx(
        exact
    )


@pytest.mark.parametrize(
    ("kl", "coef", "expected"),
    [
        (0.2, 0.12, 0.18),
        (0.005, 0.12, 0.08),
        (0.05, 0.12, 0.12),
        (0.1, 0.12, 0.12),
        (0.01, 0.12, 0.12),
        (9.0, 8.0, 10.0),
        (0.0, 0.0012, 0.001),
    ],
)
def test_the_coefficient_adapts_within_its_bounds(kl, coef, expected):
    assert AdaptiveKl().next(coef, kl) == pytest.approx(expected)


@given(groups=st.lists(GROUPS, min_size=1, max_size=3))
def test_advantages_are_clamped_z_scores_with_a_least_deviation(groups):
    batch = batch_of(groups, length=1)
    found_S = ADVANTAGES["grpo"](batch, PRESET.advantage_options)
    expected = []
    for group in groups:
        values = torch.tensor(group, dtype=torch.float64)
        expected += ((values - values.mean()) / values.std().clamp(min=0.1)).clamp(-5, 5).tolist()
    assert found_S.tolist() == pytest.approx(expected, abs=1e-6)


@given(groups=st.lists(GROUPS, min_size=1, max_size=3))
def test_normalised_rewards_are_held_z_scores_of_their_group(groups):
    batch = batch_of(groups)
    found_E = normalised_rewards(batch.rewards_E, batch.group_E)
    expected = []
    for group in groups:
        values = torch.tensor(group, dtype=torch.float64)
        scored = (values - values.mean()) / values.std()
        expected += (scored.clamp(-3, 3) if values.std() > 1e-12 else values).tolist()
    assert found_E.tolist() == pytest.approx(expected)
