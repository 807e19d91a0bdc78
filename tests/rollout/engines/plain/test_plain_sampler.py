"""The plain engine draws what its keys say, whatever runs beside it and however it is kept."""

import pytest
import torch
from benchmarks.families import tiny_family

from assay.data.episode import Turn
from assay.errors import RunFailure
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines import plain_sampler
from assay.rollout.engines.plain_sampler import Decoding, PlainSampler, Way
from tests.few import few
from tests.tiny import generated

ENDS = frozenset(range(3))
PROMPTS = [tuple(range(40, 40 + length)) for length in (12, 5, 12, 9)]
CONTEXTS = [prompt for prompt in PROMPTS for _ in range(3)]
KEYS = [SampleKey(0, str(len(p)), n % 3) for n, p in enumerate(CONTEXTS)]


def sampled(model: torch.nn.Module, places: list[int], tokens: int = 20) -> list[Turn]:
    contexts, keys = [CONTEXTS[n] for n in places], [KEYS[n] for n in places]
    return PlainSampler(model, ENDS).sample(contexts, keys, Sampling(1.0, tokens))


@few("family", ["gemma3_text", "mamba", "rwkv", "gpt2", "qwen3_next"])
def test_a_completion_is_its_keys_whatever_runs_beside_it(family: str) -> None:
    model = tiny_family(family)
    together = sampled(model, list(range(len(CONTEXTS))))
    assert len({len(turn.actions) for turn in together}) > 1 or family == "rwkv"
    for n, turn in enumerate(together):
        [alone] = sampled(model, [n])
        assert (alone.context, alone.actions, alone.ended) == (
            turn.context,
            turn.actions,
            turn.ended,
        )
        assert alone.behaviour_logps == pytest.approx(turn.behaviour_logps, abs=1e-4)
        assert alone.entropies == pytest.approx(turn.entropies, abs=1e-4)
        assert len(turn.entropies or ()) == len(turn.actions)
        stopped = turn.actions[-1] in ENDS
        assert turn.ended == ("stop" if stopped else "length")
        assert stopped or len(turn.actions) == 20
        assert not ENDS & set(turn.actions[:-1])


@pytest.mark.parametrize("family", ["gemma3_text", "mistral with a window", "opt"])
def test_greedy_answers_are_those_of_transformers_own_generate(family: str) -> None:
    model = tiny_family(family)
    turns = PlainSampler(model, ENDS).sample(PROMPTS, KEYS[:4], Sampling(0.0, 20))
    for prompt, turn in zip(PROMPTS, turns, strict=True):
        assert list(turn.actions) == generated(model, prompt, ENDS, 20)


def test_the_prompt_of_a_group_is_computed_once() -> None:
    sampler = PlainSampler(tiny_family("gpt2"), ENDS)
    sampler.sample([PROMPTS[0]] * 8, [SampleKey(0, "a", n) for n in range(8)], Sampling(1.0, 4))
    assert sampler.prefilled_tokens == len(PROMPTS[0])


@pytest.mark.parametrize(
    ("family", "cached", "padded"),
    [
        ("gpt2", True, True),
        ("gemma2", True, True),
        ("mamba", True, True),
        ("bart", True, False),  # its positions count the padding
        ("rwkv", False, False),  # its state is no cache of which rows can be chosen
    ],
)
def test_the_way_is_found_by_trying(family: str, cached: bool, padded: bool) -> None:
    assert PlainSampler(tiny_family(family), ENDS).way == Way(cached, padded)


def test_a_cache_that_mixes_rows_up_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def other_rows(self: Decoding, rows_R: torch.Tensor) -> None:
        self.ids_RT, self.mask_RT = self.ids_RT[rows_R], self.mask_RT[rows_R]

    monkeypatch.setattr(plain_sampler.Decoding, "select", other_rows)
    assert not PlainSampler(tiny_family("gpt2"), ENDS).way.cached


def test_a_cache_that_goes_wrong_later_stops_the_sampling() -> None:
    """Moshi's own cache forgets its window: what it samples is not what it would be trained on."""
    with pytest.raises(RunFailure, match="Transformers' cache of MoshiForCausalLM"):
        sampled(tiny_family("moshi"), [0, 1], tokens=24)
