"""Stop strings and min-p: where a completion ends, what is kept of it, and what is judged."""

import pytest
import torch

from assay.rl.policy import SampleKey, Sampling, Stop
from assay.rollout.engines.cpu.sampler import LocalSampler
from assay.rollout.engines.plain_sampler import PlainSampler
from assay.rollout.token_choice import draw, filtered
from tests.tiny import tiny_model

WORDS = ["a", "b", "<", "st", "op", ">", " st", "op>x"]


def decode(actions) -> str:
    """Every token reads as one of eight texts."""
    return "".join(WORDS[action % 8] for action in actions)


def stop(*strings: str) -> Stop:
    return Stop(strings, decode)


def test_a_completion_ends_with_the_first_token_that_completes_a_stop_string():
    ends = stop("stop>").ends
    assert not ends([0, 3]) and not ends([3, 0, 4, 5]) and not ends([3, 4])
    assert ends([0, 3, 4, 5]) and ends([6, 7])
    assert stop("zz", "<").ends([2]) and not stop("zz", "<").ends([0])
    assert ends([0] * 500 + [3, 4, 5]) and not ends([0] * 500 + [3, 4])


def test_the_judged_text_ends_before_the_first_stop_string():
    assert stop(">").cut("a stop>x>") == "a stop"
    assert stop("x", "st").cut("a stop>x") == "a "
    assert stop("zz").cut("a stop") == "a stop"
    assert stop("a").cut("a stop") == ""


@pytest.mark.parametrize("engine", [LocalSampler, PlainSampler])
def test_engines_end_a_turn_at_its_stop_string_and_keep_its_tokens(engine):
    module = tiny_model()
    sampler = engine(module, frozenset({1}))
    contexts = [(5, 6, 7), (8, 9), (8, 9, 10, 11)]
    keys = [SampleKey(0, str(n), 0) for n in range(3)]
    free = sampler.sample(contexts, keys, Sampling(1.0, 30))
    held = sampler.sample(contexts, keys, Sampling(1.0, 30, stop=stop("st", "<")))
    ended = 0
    for whole, cut in zip(free, held, strict=True):
        # The same draws, up to the token that completes the string.
        assert whole.actions[: len(cut.actions)] == cut.actions
        if len(cut.actions) < len(whole.actions):
            ended += 1
            assert cut.ended == "stop" and len(cut.behaviour_logps) == len(cut.actions)
            assert stop("st", "<").ends(cut.actions)
            assert not any(
                stop("st", "<").ends(cut.actions[:n]) for n in range(1, len(cut.actions))
            )
    assert ended


def test_min_p_is_transformers_warper_at_the_temperature():
    from transformers import MinPLogitsWarper

    generator = torch.Generator().manual_seed(3)
    logits_BV = torch.randn(16, 50, generator=generator)
    theirs = MinPLogitsWarper(0.2)(torch.empty(16, 0), logits_BV)  # type: ignore[arg-type]
    assert torch.equal(filtered(logits_BV, Sampling(min_p=0.2)).isfinite(), theirs.isfinite())
    token_B, logp_B = draw(logits_BV * 2, Sampling(2.0, 1, min_p=0.2), torch.rand(16))
    expected = theirs.log_softmax(-1).gather(1, token_B[:, None])[:, 0]
    torch.testing.assert_close(logp_B, expected, rtol=1e-4, atol=1e-5)
