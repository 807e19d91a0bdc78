"""Hand-overs of weights to an engine: whole ones pass, and each way they fail is seen at once."""

import copy
import re

import pytest
import torch
from torch import nn

from assay.data.episode import Turn
from assay.engines import register
from assay.engines.handover import HandedOver, chosen_columns, kept
from assay.engines.register import ProvenSampler
from assay.errors import RunFailure
from assay.models.adapt import train_lora
from assay.models.lora import LoraOptions
from assay.models.weight_files import State, whole_weights
from assay.rl.policy import SampleKey, Sampling
from assay.rl.sampling_proof import NotAsTold
from assay.rollout.engines.cpu.sampler import LocalSampler
from tests.engines.fake_engine import BEHIND, DRAWN, FAULTS, FakeEngine
from tests.tiny import tiny_model

ENDS = frozenset({1})
CONTEXTS = [tuple(range(5 + n, 25 + n)) for n in range(8) for _ in range(2)]
KEYS = [SampleKey(7, f"row {n // 2}", n % 2) for n in range(16)]
SAMPLING = Sampling(max_tokens=12)
BF16 = torch.bfloat16


def stage(
    fault: str = "",
    compute: torch.dtype = torch.float32,
    lora: bool = False,
    lies: bool = False,
) -> tuple[nn.Module, ProvenSampler, FakeEngine]:
    """A module to train, its sampler, and the engine behind it."""
    plain = tiny_model()
    engine = FakeEngine(plain, compute, fault, lies)
    module: nn.Module = plain
    if lora:
        module, _ = train_lora(plain, LoraOptions(rank=4))
    return module, ProvenSampler(lambda: engine, module, ENDS, compute), engine


def update(module: nn.Module, sampler: ProvenSampler, size: float, seed: int = 0) -> None:
    """A step of training: every trained weight moves."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.add_(size * torch.randn_like(parameter))
    sampler.refresh(module)


def turns_of(sampler: ProvenSampler) -> list[Turn]:
    return sampler.sample(CONTEXTS, KEYS, SAMPLING)


@pytest.mark.parametrize(
    ("compute", "lora", "size"),
    [(torch.float32, False, 1e-5), (torch.float32, True, 1e-3), (BF16, False, 2e-2)],
)
def test_every_update_arrives_and_its_metrics_say_so(lora, compute, size) -> None:
    module, sampler, engine = stage(compute=compute, lora=lora)
    turns_of(sampler)
    first = dict(sampler.measured)
    assert first["engine/gap"] == first["engine/gap_first"]
    for step in range(3):
        update(module, sampler, size, step)
        turns_of(sampler)
        found = sampler.measured
        error = 4 * found["engine/proof_error"] + 0.02
        assert found["engine/proof"] == pytest.approx(1, abs=error)
        assert found["engine/proof_cache"] == pytest.approx(1, abs=0.5)
        assert found["engine/change"] > 0 and found["engine/load_seconds"] > 0
    assert engine.loads == 4


@pytest.mark.parametrize(
    ("compute", "lora", "size"),
    [(torch.float32, False, 1e-4), (torch.float32, True, 1e-2), (BF16, False, 5e-2)],
)
@pytest.mark.parametrize("fault", FAULTS)
def test_an_engine_that_computes_with_what_it_does_not_hold_is_seen_by_its_log_probs(
    fault, compute, lora, size
) -> None:
    module, sampler, _ = stage(fault, compute, lora, lies=True)
    turns_of(sampler)
    update(module, sampler, size)
    seen = {"keeps": "all weights|adapter", "stale cache": "prefix cache"}.get(fault, "a part of")
    with pytest.raises(NotAsTold, match=seen):
        turns_of(sampler)


def test_the_smallest_update_that_does_not_arrive_is_seen_in_bf16_too() -> None:
    module, sampler, _ = stage("keeps", BF16, lies=True)
    turns_of(sampler)
    update(module, sampler, 1e-7)
    with pytest.raises(NotAsTold, match="nothing, to the last bit"):
        turns_of(sampler)


@pytest.mark.parametrize("compute", [torch.float32, BF16])
@pytest.mark.parametrize("fault", [*BEHIND, "stale cache"])
def test_each_tensor_that_stays_behind_is_named_at_the_first_small_update(fault, compute) -> None:
    module, sampler, engine = stage(fault, compute)
    turns_of(sampler)
    earlier = {name: tensor.clone() for name, tensor in engine.given.items()}
    update(module, sampler, 1e-2 if "norm" in fault else 1e-5)  # 1 is 1 in bf16 after less
    moved = [n for n, t in whole_weights(module, compute).items() if (t != earlier[n]).any()]
    behind = [name for name in moved if BEHIND.get(fault, "no name") in name]
    seen = "prefix cache" if fault == "stale cache" else f"{re.escape(behind[0])}.* kept their old"
    with pytest.raises(NotAsTold, match=seen) as failure:
        turns_of(sampler)
    assert (f" and {len(behind) - 3} more " in str(failure.value)) == (len(behind) > 3)


def test_an_engine_that_has_a_weight_of_its_own_is_seen_whatever_moved() -> None:
    module, sampler, engine = stage(compute=BF16)
    turns_of(sampler)
    weight = engine.model.get_parameter("model.layers.1.mlp.down_proj.weight")
    whole = engine.load

    def load(state: State) -> None:
        whole(state)
        with torch.no_grad():
            weight[0] += 0.5

    engine.load = load  # type: ignore[method-assign]
    update(module, sampler, 0.0)
    with pytest.raises(NotAsTold, match=r"1\.mlp\.down_proj\.weight hold other weights"):
        turns_of(sampler)


def test_other_columns_are_read_at_every_hand_over_and_those_that_changed_always() -> None:
    before, weight, changed, read = HandedOver(), torch.zeros(8, 512), set[int](), set[int]()
    for _ in range(50):
        columns = {*chosen_columns({"w": weight}, before)["w"]}
        assert changed <= columns
        read |= columns
        before, weight = kept({"w": weight}, before), weight.clone()
        first, _ = before.windows["w"]
        changed = {*range(first + 7, first + 11)}
        weight[3, first + 7 : first + 11] += 1
    assert len(read) > 200


def test_what_was_sampled_is_scored_too() -> None:
    module, sampler, engine = stage(lies=True)
    turns_of(sampler)
    assert 0 < sampler.measured["engine/gap_sampled"] < 1e-4
    update(module, sampler, 1e-3)
    scored = copy.deepcopy(engine.model)

    def load(state: State) -> None:
        """What scores is new, what samples is old."""
        engine.given = state
        scored.load_state_dict(state, strict=False)

    engine.load = load  # type: ignore[method-assign]
    engine.score = lambda c, a: engine._scored(scored, c, a)  # type: ignore[method-assign]
    engine.score_cached = (
        lambda c, a: [  # type: ignore[method-assign]
            logps[-1:] for logps in engine._scored(scored, c, a)
        ]
    )
    with pytest.raises(NotAsTold, match="sampled tokens have log-probs"):
        turns_of(sampler)


SEEN = {
    "temperature x 0.95": "a lower temperature|log-probs that differ",
    "top_p 0.9": "leaves words out|lower temperature|log-probs that differ",
    "top_k 50": "leaves words out|lower temperature|log-probs that differ",
    "drawn at 0.7 T, told at T": r"minus the entropy, over .*, z = \d.*draws colder",
    "end tokens not honoured": "goes on behind an end token",
    "one seed for all": "equal more often",
}


def steps_until_seen(fault: str, compute: torch.dtype, warmth: float, steps: int) -> str:
    """What is seen within so many steps of 8 completions of 24 tokens; "" for nothing."""
    module, sampler, _ = stage(fault, compute)
    for step in range(steps):
        keys = [SampleKey(7, f"{step} {n}", n % 2) for n in range(8)]
        try:
            sampler.sample(CONTEXTS[:8], keys, Sampling(warmth, 24))
        except NotAsTold as failure:
            return str(failure)
        update(module, sampler, 1e-3, step)
    return ""


@pytest.mark.parametrize("compute", [torch.float32, BF16])
@pytest.mark.parametrize("fault", DRAWN)
def test_an_engine_that_samples_otherwise_than_asked_is_seen_within_steps(fault, compute) -> None:
    # The log-probs of this model vary by a quarter of what those of a language model do.
    steps = 6 if "told at T" in fault else 3
    assert re.search(SEEN[fault], steps_until_seen(fault, compute, 1.0, steps))


@pytest.mark.parametrize(("compute", "warmth"), [(BF16, 1.0), (BF16, 0.6), (torch.float32, 0.0)])
def test_honest_steps_are_never_seen(compute, warmth) -> None:
    assert steps_until_seen("", compute, warmth, 4) == ""


def test_which_turns_are_scored_does_not_depend_on_what_was_drawn() -> None:
    """Else the completions that are scored would not be draws of the model."""
    short, long = tuple(range(5, 9)), tuple(range(5, 30))
    drawn = [(long, 4), (short, 200), (short, 1), (short, 90), (short, 3)]
    turns = [Turn(c, (5,) * n, (True,) * n, (-1.0,) * n, "length") for c, n in drawn]
    chosen = register.scored_turns(turns)
    assert [(turn.context, len(turn.actions)) for turn in chosen] == [
        (short, n) for n in (200, 1, 90)
    ]


def test_a_completion_that_the_engine_cuts_early_is_no_long_answer() -> None:
    _, sampler, engine = stage()
    whole = engine.sample
    engine.sample = (
        lambda *asked: [  # type: ignore[method-assign]
            (tokens[:9], logps[:9], False) for tokens, logps, _ in whole(*asked)
        ]
    )
    with pytest.raises(RunFailure, match="after 9 of 12 tokens, behind a prompt of 20"):
        turns_of(sampler)


def test_a_dropped_adapter_is_seen_when_it_is_new_and_when_a_run_resumes(monkeypatch) -> None:
    def without(module: nn.Module, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            kept = {n: p.clone() for n, p in module.named_parameters() if "lora_B" in n}
            for name, parameter in module.named_parameters():
                parameter.mul_(0.0 if name in kept else 1.0)
            state = {name: t.clone() for name, t in whole_weights(module, dtype).items()}
            for name, parameter in module.named_parameters():
                if name in kept:
                    parameter.copy_(kept[name])
        return state

    monkeypatch.setattr(register, "whole_weights", without)
    module, sampler, engine = stage(lora=True)
    turns_of(sampler)
    update(module, sampler, 0.1)
    with pytest.raises(NotAsTold, match="the adapter"):
        turns_of(sampler)
    engine.owner = None
    resumed = ProvenSampler(lambda: engine, module, ENDS)
    with pytest.raises(NotAsTold, match="its adapter"):
        turns_of(resumed)


def test_a_model_that_is_another_is_no_rounding() -> None:
    _, sampler, engine = stage(lies=True)
    engine.load = lambda state: setattr(engine, "given", state)  # type: ignore[method-assign]
    with torch.no_grad():
        for parameter in engine.model.parameters():
            parameter.mul_(1.05)
    with pytest.raises(NotAsTold, match=r"more than the 0.001 of rounding"):
        turns_of(sampler)


def test_several_updates_cost_one_hand_over_and_no_update_none() -> None:
    module, sampler, engine = stage()
    turns_of(sampler)
    turns_of(sampler)
    update(module, sampler, 1e-4)
    update(module, sampler, 1e-4)
    turns_of(sampler)
    assert engine.loads == 2


def test_an_engine_that_slept_takes_over_all_weights_and_proves_it() -> None:
    _, sampler, engine = stage()
    before = turns_of(sampler)
    engine.sleep = lambda: setattr(engine, "owner", None)  # type: ignore[method-assign]
    sampler.sleep()
    with torch.no_grad():
        for parameter in engine.model.parameters():
            parameter.zero_()
    assert turns_of(sampler) == before and engine.loads == 2
    sampler.sleep()
    engine.load = lambda state: None  # type: ignore[method-assign]
    with torch.no_grad():
        engine.model.lm_head.weight.zero_()
    with pytest.raises(NotAsTold, match=r"lm_head\.weight hold other weights"):
        turns_of(sampler)


def test_two_samplers_share_an_engine_and_each_hands_over_its_own() -> None:
    module, sampler, engine = stage()
    before = turns_of(sampler)
    other = tiny_model(seed=3)
    ProvenSampler(lambda: engine, other, ENDS).sample(CONTEXTS[:2], KEYS[:2], SAMPLING)
    assert turns_of(sampler) == before and engine.loads == 3
    assert LocalSampler(module, ENDS).sample(CONTEXTS, KEYS, SAMPLING)[0].context == CONTEXTS[0]
