"""The self-check passes sound models, stops faulty ones, and leaves no trace."""

from typing import Any

import pytest
import torch
from benchmarks.families import tiny_family
from transformers import LlamaConfig, LlamaForCausalLM

from assay.data.episode import Episode, Turn
from assay.errors import InputError, RunFailure
from assay.models import plain_forward, scoring
from assay.models.adapt import train_lora
from assay.models.layers import GatedSilu
from assay.models.lora import LoraOptions
from assay.models.precision import Precision, choose_precision
from assay.rl.objectives import GrpoObjective
from assay.rl.packed import Packed, pack
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.policies import self_check
from assay.rollout.policies.language import LanguagePolicy
from assay.rollout.policies.self_check import check_language_policy, chosen_turns
from tests.faults import fault, leak, run_on, scaled_activation
from tests.few import few
from tests.models.adapters import adapted
from tests.tiny import FAMILIES, SIZES, tiny_model

ENDS = frozenset({7})
PROMPT = tuple(range(5, 25))
FP32 = choose_precision("fp32", "cpu")
BF16 = Precision(torch.float32, torch.bfloat16, "cpu", "asked for")
METRICS = {
    "self_check_logp",
    "self_check_loss",
    "self_check_gradient",
    "self_check_rollout",
}
both = pytest.mark.parametrize("precision", [FP32, BF16], ids=["fp32", "bf16"])
in_turn = pytest.mark.parametrize(
    ("precision", "adapter"), [(FP32, False), (BF16, True)], ids=["fp32-full", "bf16-lora"]
)


def trained(precision: Precision, family: str = "llama", adapter: bool = False) -> LanguagePolicy:
    module = tiny_model(family)
    if adapter:
        module = adapted(module, LoraOptions(rank=4, dropout=0.5), 0.05)
    module.train()
    return LanguagePolicy(module, precision, ENDS)


def sampled(policy: LanguagePolicy, group: int = 4, tokens: int = 16) -> Packed:
    """A group as GRPO hands it over: weights over the batch, advantages of either sign."""
    keys = [SampleKey(0, "a", g) for g in range(group)]
    turns = policy.sample([PROMPT] * group, keys, Sampling(1.0, tokens))
    packed = pack([Episode(f"a#{g}", "a", (turn,)) for g, turn in enumerate(turns)])
    sign_N = torch.tensor([1.0, -1.0, 0.5, -0.5]).repeat(group)[:group]
    return packed.with_tokens(
        advantage_S=sign_N[packed.turn_S],
        weight_S=packed.weight_S / len(packed.weight_S),
    )


def check(policy: LanguagePolicy, packed: Packed, objective: GrpoObjective | None = None):
    return check_language_policy(policy, packed, objective or GrpoObjective(), tokens=2048)


@in_turn
@few("family", sorted(FAMILIES))
def test_a_sound_model_passes_and_says_by_how_much(family, adapter, precision):
    policy = trained(precision, family, adapter)
    found = check(policy, sampled(policy))
    assert found.keys() == METRICS
    assert 0 < found["self_check_logp"] < (1e-5 if precision is FP32 else 0.02)
    assert 0 < found["self_check_gradient"] < (1e-4 if precision is FP32 else 0.2)
    assert found["self_check_rollout"] < (2e-5 if precision is FP32 else 0.05)


@pytest.mark.parametrize("adapter", [False, True])
@few("family", sorted(FAMILIES))
def test_rounding_alone_is_no_difference_of_gradients(family, adapter, monkeypatch):
    policy = trained(FP32, family, adapter)
    packed = sampled(policy)
    monkeypatch.setattr(self_check, "GRADIENT", 1e-9)
    before = {k: v.clone() for k, v in policy.module.state_dict().items()}
    assert check(policy, packed)["self_check_gradient"] > 0
    assert all(v.dtype is torch.float32 for v in policy.module.parameters())
    assert all(torch.equal(v, before[k]) for k, v in policy.module.state_dict().items())


@in_turn
@pytest.mark.parametrize("change", [leak, run_on])
def test_a_wrong_mask_or_position_stops_the_run(change, adapter, precision):
    policy = trained(precision, adapter=adapter)
    packed = sampled(policy)
    with fault(change), pytest.raises(RunFailure) as caught:
        check(policy, packed)
    assert caught.value.exit_code == 1
    assert "log-probs of the policy and of one sequence at a time differ" in str(caught.value)


@pytest.mark.parametrize("factor", [1.01, float("nan")])
def test_an_activation_at_fault_stops_the_run_and_missing_numbers_do_not_pass(factor):
    policy = trained(FP32)
    packed = sampled(policy)
    with scaled_activation(factor), pytest.raises(RunFailure, match="of one sequence at a time"):
        check(policy, packed)


def test_a_wrong_gradient_of_right_log_probs_is_found(monkeypatch):
    policy = trained(FP32)
    packed = sampled(policy)
    right = GatedSilu.backward

    def wrong(ctx, *grads):
        grad_gate, grad_up = right(ctx, *grads)
        return grad_gate, grad_up * 1.1

    monkeypatch.setattr(GatedSilu, "backward", staticmethod(wrong))
    with pytest.raises(RunFailure, match="gradients differ"):
        check(policy, packed)


@both
@pytest.mark.parametrize("plain", [False, True])
def test_a_rollout_from_other_weights_is_named_as_such(precision, plain):
    policy = plain_policy(precision) if plain else trained(precision)
    packed = sampled(policy)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            parameter.mul_(1.3)
    with pytest.raises(RunFailure, match="log-probs of rollout and training differ"):
        check(policy, packed)


@both
@pytest.mark.parametrize("fails", [False, True])
def test_no_trace_is_left(precision, fails):
    policy = trained(precision, adapter=True)
    packed = sampled(policy)
    before = {name: value.clone() for name, value in policy.module.state_dict().items()}
    modes = [m.training for m in policy.module.modules()]
    again = policy.sample([PROMPT], [SampleKey(3, "b", 0)], Sampling(1.0, 8))
    random = torch.get_rng_state()
    if fails:
        with fault(leak), pytest.raises(RunFailure):
            check(policy, packed)
    else:
        check(policy, packed)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(v, before[n]) for n, v in policy.module.state_dict().items())
    assert all(parameter.grad is None for parameter in policy.module.parameters())
    assert [m.training for m in policy.module.modules()] == modes
    assert not [m for m in policy.module.modules() if m._forward_hooks or m._forward_pre_hooks]
    assert policy.sample([PROMPT], [SampleKey(3, "b", 0)], Sampling(1.0, 8)) == again
    assert policy.version == 0


def batch_of(turns: list[tuple[str, tuple[int, ...], float]]) -> Packed:
    """Turns of two actions each: group, context, advantage."""
    batch = pack(
        [
            Episode(f"{group}#{n}", group, (Turn(context, (1, 2), (True, True)),))
            for n, (group, context, _) in enumerate(turns)
        ]
    )
    advantage_N = torch.tensor([advantage for _, _, advantage in turns])
    return batch.with_tokens(advantage_S=advantage_N[batch.turn_S])


def test_the_turns_are_of_the_longest_and_the_shortest_group_with_signal_and_share_prompts():
    other = PROMPT[:3]
    # A group without signal, the shortest of all; then three with, one of them of conversations.
    turns = [("a", PROMPT[:1], 0.0)] * 3 + [("b", PROMPT[:9], 1.0)] * 3
    turns += [("c", context, 1.0) for context in (PROMPT, other) * 3] + [("d", other, 1.0)] * 3
    assert chosen_turns(batch_of(turns), 2048) == [6, 8, 12, 13]
    assert chosen_turns(batch_of(turns), 1) == [6, 8, 12, 13], "sharing takes two of each"
    # Where one group alone has signal, it is held beside the one that is least like it in length.
    assert chosen_turns(batch_of([*turns[:3], *turns[6:12]]), 2048) == [3, 5, 0, 1]
    few = [(g, c, float(g == "b")) for g, c, _ in turns]
    assert chosen_turns(batch_of(few), 2048) == [3, 4, 6, 8]


@both
def test_angles_that_depend_on_the_longest_sequence_of_a_row_are_found_in_the_short_group(
    precision, monkeypatch
):
    monkeypatch.setattr(scoring, "refuse_length_dependent", lambda config: None)
    dynamic: Any = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 100.0}
    sizes = SIZES | {"max_position_embeddings": 32, "rope_parameters": dynamic}
    module = LlamaForCausalLM(LlamaConfig(**sizes)).train()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(3.0)
    policy = LanguagePolicy(module, precision, ENDS)
    groups = {"a": PROMPT, "b": PROMPT * 20, "c": PROMPT[:9]}
    turns = [(name, context, 1.0) for name, context in groups.items() for _ in range(4)]
    for name in ("a", "c"):
        alone = batch_of([turn for turn in turns if turn[0] == name])
        assert check(policy, alone).keys() == METRICS, "a short group by itself shows nothing"
    with pytest.raises(RunFailure, match="of one sequence at a time"):
        check(policy, batch_of(turns))


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_model_whose_positions_depend_on_the_length_is_neither_scored_nor_sampled_from(kind):
    policy = trained(FP32)
    config: Any = policy.module.config
    config.rope_parameters["rope_type"] = kind
    for use in (
        lambda: policy.score(batch_of([("a", PROMPT, 1.0)])),
        lambda: policy.sample([PROMPT], [SampleKey(0, "a", 0)], Sampling(1.0, 4)),
    ):
        with pytest.raises(InputError, match=kind):
            use()


def plain_policy(precision: Precision) -> LanguagePolicy:
    """A policy of the plain path with an adapter that drops."""
    module, _ = train_lora(tiny_family("gemma3_text"), LoraOptions(rank=2, dropout=0.5))
    module.train()
    return LanguagePolicy(module, precision, ENDS)


@both
def test_the_plain_path_is_compared_with_one_sequence_at_a_time(precision):
    policy = plain_policy(precision)
    found = check(policy, sampled(policy))
    assert found.keys() == METRICS
    assert found["self_check_logp"] < (1e-5 if precision is FP32 else 0.02)
    assert found["self_check_rollout"] < (2e-5 if precision is FP32 else 0.05)


def test_a_mask_that_hides_a_token_of_a_batch_stops_the_run(monkeypatch):
    policy = plain_policy(FP32)
    packed = sampled(policy)
    right = plain_forward.logits_from

    def without_the_first(causal, ids_RT, mask_RT, first):
        if mask_RT is not None:
            mask_RT = mask_RT.clone()
            mask_RT[:, 0] = 0
        return right(causal, ids_RT, mask_RT, first)

    monkeypatch.setattr(plain_forward, "logits_from", without_the_first)
    with pytest.raises(RunFailure, match="of one sequence at a time"):
        check(policy, packed)
