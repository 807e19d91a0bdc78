"""The loss of held-out rows is training's own, without dropout, and leaves training as it was."""

import pytest
import torch

from assay.data.episode import Episode, Turn
from assay.models.lora import KeyedDropout, LoraOptions
from assay.models.plain_forward import score_plainly
from assay.models.precision import choose_precision
from assay.rl.packed import Packed, pack
from assay.rl.policy import ActionScores
from assay.rollout.policies.language import LanguagePolicy
from assay.rollout.policies.self_check import in_tokens
from assay.train.checkpoint import TrainState
from assay.train.likelihood import Sft, Validation, likelihood_batch
from assay.train.loop import LoopSettings, train
from tests.exact import random_groups
from tests.models.adapters import adapted
from tests.tiny import tiny_model
from tests.train import toys

HELD_OUT = tuple(group[0] for group in random_groups(3, (1,) * 5))


def dropping_policy() -> LanguagePolicy:
    module = adapted(tiny_model(), LoraOptions(rank=4, dropout=0.5))
    return LanguagePolicy(module.train(), choose_precision("fp32", "cpu"), frozenset())


def validation(micro_tokens: int = 40) -> Validation:
    return Validation(likelihood_batch(HELD_OUT), frozenset({7}), micro_tokens)


def test_it_is_the_mean_over_trained_tokens_of_the_plain_model_without_dropout() -> None:
    policy = dropping_policy()
    masked = Episode("m", "m", (Turn((5, 6), (7, 8, 9), (True, False, True)),))
    packed = pack((*HELD_OUT, masked))
    given = in_tokens(packed), packed.actions_S, packed.offsets_N1
    found = Validation(likelihood_batch((*HELD_OUT, masked)), frozenset({1}), 40).loss(policy)
    policy.module.eval()
    logps_S, _ = score_plainly(policy.module, *given)
    assert found == pytest.approx(-float(logps_S[packed.mask_S].mean().detach()), rel=1e-5)


def test_it_leaves_no_trace_in_weights_gradients_random_numbers_or_modes() -> None:
    policy = dropping_policy()
    policy.module.get_submodule("base_model.model.lm_head").eval()
    modes = [part.training for part in policy.module.modules()]
    weights = [p.clone() for p in policy.module.parameters()]
    state = torch.get_rng_state()
    first, second = validation().loss(policy), validation().loss(policy)
    assert first == second
    assert torch.equal(state, torch.get_rng_state())
    assert [part.training for part in policy.module.modules()] == modes
    for before, after in zip(weights, policy.module.parameters(), strict=True):
        assert torch.equal(before, after) and after.grad is None


def test_each_micro_batch_of_a_step_drops_numbers_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, seen = dropping_policy(), []
    (layer, *_) = [m for m in policy.module.modules() if isinstance(m, KeyedDropout)]
    score = policy.score

    def watched(packed: Packed, entropy: bool = False) -> ActionScores:
        seen.append(layer.place)
        return score(packed, entropy)

    monkeypatch.setattr(policy, "score", watched)
    recorder = toys.MemoryRecorder()
    optimizer = torch.optim.AdamW([p for p in policy.module.parameters() if p.requires_grad])
    settings = LoopSettings(2, 0.1, micro_tokens=1)
    train(policy, Sft(HELD_OUT, 3, 5), optimizer, TrainState(), settings, recorder)
    assert seen == [(5, step, micro) for step in range(2) for micro in range(3)]
