"""The preference loss against TRL's formula written out, its gradient, and what pairs promise."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from assay.data.episode import Episode, Turn
from assay.errors import RunFailure
from assay.rl.packed import Packed
from assay.rl.policy import ActionScores
from assay.rl.preference import Preference, preference_factors
from assay.train.likelihood import pair_batch
from assay.train.pair_choice import Pair

UNIT = st.integers(0, 100).map(lambda hundredths: hundredths / 100)


def pair(number: int, score: tuple[float, float] = (1.0, 0.0), masked: bool = False) -> Pair:
    """A chosen completion of two tokens and a rejected one of three."""
    sides = []
    for length in (2, 3):
        mask = (True,) * (length - 1) + (not masked,)
        turn = Turn((number,), tuple(range(length)), mask)
        sides.append(Episode(f"q{number}#{length}", f"q{number}", (turn,)))
    return Pair(sides[0], sides[1], score)


def batch(pairs: list[Pair], scoring: str = "plain", seed: int = 0) -> tuple[Tensor, Packed]:
    """Log-probs of the policy (S), with gradient, and the pairs with those of the reference."""
    packed = pair_batch(pairs, scoring)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(seed)
    logps_S, reference_S = (
        -torch.rand(len(packed.actions_S), generator=generator, dtype=torch.float64) * 3
        for _ in range(2)
    )
    return logps_S.requires_grad_(), packed.with_tokens(reference_S=reference_S)


def found(objective: Preference, logps_S: Tensor, packed: Packed) -> tuple[float, Tensor]:
    """Loss and its gradient by token."""
    result = objective(ActionScores(logps_S), packed)
    (gradient_S,) = torch.autograd.grad(result.loss, logps_S)
    return float(result.loss.detach()), gradient_S


def by_hand(
    logps_S: Tensor, packed: Packed, beta: float, factors: list[tuple[float, float]], e: float = 0
) -> float:
    """TRL's `dpo_loss` with loss_type sigmoid, in plain numbers: `chosen_logps` and the others are
    sums over a completion, multiplied beforehand as ScoreFlow does."""
    total = 0.0
    for n, (chosen, rejected) in enumerate(factors):
        sums = []
        for which in (0, 1):
            own = [
                float(mask) * torch.stack([logp, ref])
                for logp, ref, mask, episode in zip(
                    logps_S.detach(),
                    packed.reference_S,  # type: ignore[arg-type]
                    packed.mask_S,
                    packed.episode_S.tolist(),
                    strict=True,
                )
                if episode == 2 * n + which
            ]
            sums.append(torch.stack(own).sum(0).tolist())
        (policy_w, ref_w), (policy_l, ref_l) = sums
        policy_w, ref_w, policy_l, ref_l = (
            policy_w * chosen,
            ref_w * chosen,
            policy_l * rejected,
            ref_l * rejected,
        )
        logits = (policy_w - policy_l) - (ref_w - ref_l)
        good, bad = (math.log1p(math.exp(sign * beta * logits)) for sign in (-1, 1))
        total += good * (1 - e) + bad * e
    return total / len(factors)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("masked", [False, True])
def test_the_loss_is_trls_over_sums_of_trained_tokens(smoothing: float, masked: bool) -> None:
    logps_S, packed = batch([pair(n, masked=masked) for n in range(3)])
    loss, _ = found(Preference(0.3, smoothing), logps_S, packed)
    expected = by_hand(logps_S, packed, 0.3, [(1, 1)] * 3, smoothing)
    assert loss == pytest.approx(expected, rel=1e-12)


def test_score_dpo_multiplies_policy_and_reference_before_the_loss() -> None:
    scores = [(0.9, 0.2), (1.0, 0.5), (0.3, 0.0)]
    pairs = [pair(n, score) for n, score in enumerate(scores)]
    logps_S, packed = batch(pairs, "score")
    loss, _ = found(Preference(0.7), logps_S, packed)
    factors = [(better, 1 - worse) for better, worse in scores]
    assert loss == pytest.approx(by_hand(logps_S, packed, 0.7, factors), rel=1e-12)


@given(st.integers(0, 99), st.floats(0.01, 3), st.floats(0, 0.49))
def test_the_gradient_is_that_of_the_paper(seed: int, beta: float, e: float) -> None:
    """-beta * ((1 - e) sigmoid(-margin) - e sigmoid(margin)) at each chosen token, and the opposite
    at each rejected one (arXiv 2305.18290, section 4)."""
    logps_S, packed = batch([pair(0)], seed=seed)
    _, gradient_S = found(Preference(beta, e), logps_S, packed)
    ratio_S = (logps_S.detach() - packed.reference_S).double()  # type: ignore[operator]
    margin = beta * (ratio_S[:2].sum() - ratio_S[2:].sum())
    push = -beta * ((1 - e) * torch.sigmoid(-margin) - e * torch.sigmoid(margin))
    torch.testing.assert_close(gradient_S[:2], push.expand(2))
    torch.testing.assert_close(gradient_S[2:], -push.expand(3))


@given(st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_score_weights_of_1_and_0_make_score_dpo_plain(seed: int) -> None:
    pairs = [pair(n, (1.0, 0.0)) for n in range(2)]
    plain, scored = (batch(pairs, scoring, seed) for scoring in ("plain", "score"))
    one, other = found(Preference(), *plain), found(Preference(), *scored)
    assert one[0] == other[0] and torch.equal(one[1], other[1])


@given(UNIT, UNIT)
def test_neither_side_of_a_scored_pair_is_silent(one: float, other: float) -> None:
    better, worse = max(one, other), min(one, other)
    if better > worse:
        chosen, rejected = preference_factors("score", better, worse)
        assert chosen > 0 > rejected


def test_the_kl_of_a_pair_is_the_mean_over_its_chosen_tokens() -> None:
    logps_S, packed = batch([pair(0), pair(1, masked=True)])
    d_S = (packed.reference_S - logps_S.detach()).double()  # type: ignore[operator]
    k3_S = d_S.exp() - d_S - 1
    # Two chosen tokens and three rejected ones; then the second chosen one is not trained.
    expected = k3_S[:2].mean() + k3_S[5]
    assert Preference()(ActionScores(logps_S), packed).sums["kl"] == pytest.approx(float(expected))


def test_without_a_reference_or_pairs_there_is_no_loss() -> None:
    logps_S, packed = batch([pair(0)])
    for missing, said in (("reference_S", "reference"), ("preference_S", "pairs")):
        with pytest.raises(RunFailure, match=said):
            Preference()(ActionScores(logps_S), replace(packed, **{missing: None}))
