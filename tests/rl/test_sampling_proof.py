"""The proof of how completions were drawn: its bounds by closed forms, honest samplers, faults."""

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest

from assay.data.episode import Turn
from assay.rl.policy import Stop
from assay.rl.sampling_proof import (
    REPEATS,
    SCALES,
    SLACK,
    SamplingProof,
    drawn_sums,
    log_odds,
    wrong_end,
)

WORDS = 400


def zipf(power: float = 1.2) -> np.ndarray:
    """Words as a language model's, of entropy 3.6."""
    chance_V = 1 / np.arange(1, WORDS + 1) ** power
    return chance_V / chance_V.sum()


def sure(rest: float, words: int) -> np.ndarray:
    return np.r_[1 - rest, np.full(words, rest / words)]


MODELS = {
    "language": zipf(),
    "flat": np.full(50, 1 / 50),
    "coin": np.array([0.99, 0.01]),
    "sure": sure(1e-3, 1),
    "sure, many others": sure(1e-3, 5000),
    "nearly sure": sure(0.05, 1000),
    "one above many": np.r_[0.1, np.full(100, 0.9 / 100)],
}


def moments(chance_V: np.ndarray) -> tuple[np.ndarray, float, float]:
    logps_V = np.log(chance_V)
    entropy = -float(chance_V @ logps_V)
    return logps_V, entropy, float(chance_V @ (logps_V + entropy) ** 2)


def at(chance_V: np.ndarray, temperature: float) -> np.ndarray:
    cooled_V = chance_V ** (1 / temperature)
    return cooled_V / cooled_V.sum()


def without_tail(chance_V: np.ndarray, top_p: float) -> np.ndarray:
    """Words in falling order of chance."""
    kept_V = np.where(np.cumsum(chance_V) - chance_V < top_p, chance_V, 0)
    return kept_V / kept_V.sum()


def steps_to_alarm(
    drawn_V: np.ndarray,
    told_V: np.ndarray | None = None,
    *,
    model: np.ndarray | None = None,
    rounding: float = 0.05,
    tokens: int = 192,
    most: int = 40,
    seed: int = 0,
) -> tuple[int, str]:
    """The step at which a sampler of `drawn_V` is seen, which tells log-probs of `told_V`."""
    model_V = zipf() if model is None else model
    logps_V, entropy, variance = moments(model_V)
    random, proof = np.random.default_rng(seed), SamplingProof()
    for step in range(1, most + 1):
        word_S = random.choice(len(model_V), tokens, p=drawn_V)
        told_S = None
        if told_V is not None:
            told_S = np.log(told_V[word_S]) + rounding * random.standard_normal(tokens)
        whole = np.full(tokens, 1.0)
        proof.add(drawn_sums(logps_V[word_S], entropy * whole, variance * whole, told_S))
        if proof.broken:
            return step, proof.broken
    return 0, ""


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("model", MODELS)
def test_the_excess_of_any_model_is_as_heavy_as_its_bound_counts_on(model, sign) -> None:
    logps_V, entropy, variance = moments(MODELS[model])
    scale = SCALES[sign < 0]
    for a in np.linspace(0.01, 0.99, 40) / scale:
        found = math.log(float(MODELS[model] @ np.exp(sign * a * (logps_V + entropy))))
        assert found <= a * a * variance / (2 * (1 - scale * a)) + 1e-12


@pytest.mark.parametrize("model", MODELS)
def test_an_honest_sampler_is_never_stopped(model) -> None:
    for seed in range(10):
        honest_V = MODELS[model]
        told = {"told_V": honest_V, "rounding": [1e-5, 0.05][seed % 2], "seed": seed}
        assert steps_to_alarm(honest_V, model=honest_V, tokens=64, **told) == (0, "")


def test_the_figures_of_an_honest_sampler_have_their_standard_errors() -> None:
    logps_V, entropy, variance = moments(zipf())
    random, found = np.random.default_rng(1), list[dict[str, float]]()
    for _ in range(400):
        word_S = random.choice(WORDS, 192, p=zipf())
        told_S = logps_V[word_S] + 0.05 * random.standard_normal(192)
        whole = np.ones(192)
        sums = drawn_sums(logps_V[word_S], entropy * whole, variance * whole, told_S)
        found.append(SamplingProof().add(sums))
    spread = {name: float(np.std([each[name] for each in found])) for name in found[0]}
    assert spread["drawn_z"] == pytest.approx(1, abs=0.12)
    # Errors of a completion may come together: twice the variance is allowed.
    assert spread["told_z"] == pytest.approx(0.5**0.5, abs=0.1)
    # There, errors below the average count as the average: E max(z^2, 1) is 1.48.
    assert spread["told_slope_z"] == pytest.approx((2 * 1.48) ** -0.5, abs=0.08)
    assert spread["told_gap"] == pytest.approx(0.05 / 192**0.5, rel=0.15)


SEEN: dict[str, tuple[Any, Any, str]] = {
    "temperature x 0.95": (at(zipf(), 0.95), at(zipf(), 0.95), "a lower temperature"),
    "temperature x 1.05": (at(zipf(), 1.05), at(zipf(), 1.05), "a higher temperature"),
    "top_p 0.9": (without_tail(zipf(), 0.9), without_tail(zipf(), 0.9), "leaves words out"),
    "at 0.7, told at 1": (at(zipf(), 0.7), zipf(), "draws colder"),
    "at 1.4, told at 1": (at(zipf(), 1.4), zipf(), "draws hotter"),
    "top_p 0.7, told whole": (without_tail(zipf(), 0.7), zipf(), "draws colder"),
    "at 0.7, not told": (at(zipf(), 0.7), None, "draws colder"),
}


@pytest.mark.parametrize("fault", SEEN)
def test_each_fault_is_seen_within_three_steps_of_192_tokens(fault) -> None:
    drawn_V, told_V, words = SEEN[fault]
    for seed in range(5):
        step, problem = steps_to_alarm(drawn_V, told_V, seed=seed)
        assert 1 <= step <= 3 and words in problem


def test_a_fault_that_begins_late_is_seen_as_soon() -> None:
    logps_V, entropy, variance = moments(zipf())
    random, proof, seen = np.random.default_rng(2), SamplingProof(), 0
    for step in range(1, 204):
        word_S = random.choice(WORDS, 192, p=zipf() if step <= 200 else at(zipf(), 0.8))
        proof.add(drawn_sums(logps_V[word_S], entropy + 0 * word_S, variance + 0 * word_S))
        seen = seen or (step if proof.broken else 0)
    assert seen > 200


def test_a_wrong_temperature_that_nothing_tells_takes_the_steps_that_its_information_takes() -> (
    None
):
    """z grows as |1/T - 1| sqrt(tokens V): 0.95 T needs about (bound / 1.4)^2 steps here."""
    _, _, variance = moments(zipf())
    z = (1 / 0.95 - 1) * math.sqrt(192 * variance)
    steps = [steps_to_alarm(at(zipf(), 0.95), seed=s, most=120)[0] for s in range(5)]
    assert all((4 / z) ** 2 < step < (14 / z) ** 2 for step in steps)


def test_a_bet_on_repeats_is_worth_one_at_most_before_it_is_made() -> None:
    """Over all that three completions of one prompt may be."""
    for chance in (0.5, 0.1, 0.02, 0.999):
        for share in REPEATS:
            texts = {(0,): chance, (1,): (1 - chance) * 0.7, (2,): (1 - chance) * 0.3}
            worth = 0.0
            for drawn in itertools.product(texts, repeat=3):
                asked = [("prompt", tokens, math.log(texts[tokens] / SLACK)) for tokens in drawn]
                weight = math.prod(texts[tokens] for tokens in drawn)
                worth += weight * math.exp(log_odds(asked, share))
            assert worth == pytest.approx(1, abs=1e-9)


def test_equal_completions_are_a_fault_only_where_their_log_probs_do_not_allow_them() -> None:
    def steps(logp: float, equal: int) -> int:
        proof = SamplingProof()
        texts = [(0,) if n < equal else (n,) for n in range(8)]
        for step in range(1, 101):
            proof.add({}, [(f"prompt {step}", tokens, logp) for tokens in texts])
            if proof.broken:
                assert "seeds" in proof.broken
                return step
        return 0

    assert steps(-50.0, 8) == 1 and steps(-50.0, 2) == 1
    assert steps(-0.01, 8) == 0  # a sure answer
    assert steps(-50.0, 1) == 0
    assert steps(math.log(0.3), 8) <= 6


def test_a_repeat_after_a_hundred_honest_steps_counts_as_much() -> None:
    proof = SamplingProof()
    for step in range(100):
        proof.add({}, [(step, (n,), -40.0) for n in range(8)])
    assert not proof.broken
    proof.add({}, [("prompt", (5,), -40.0) for _ in range(3)])
    assert "equal more often" in proof.broken


def test_completions_of_different_prompts_are_no_repeats() -> None:
    assert log_odds([(n, (5, 6), -40.0) for n in range(9)], 0.9) == 0


def turn(actions: tuple[int, ...], ended: Any = "stop") -> Turn:
    return Turn((3,), actions, (True,) * len(actions), None, ended)


def test_an_end_token_ends_a_completion_and_nothing_else_does() -> None:
    ends, stop = frozenset({1, 2}), Stop(("b",), lambda tokens: "ab"[: len(tokens)])
    right = [turn((5, 6, 1)), turn((5, 6, 2)), turn((5, 6), "length"), turn((1,))]
    assert wrong_end(right, ends, None) == ""
    assert "number 2; end tokens" in wrong_end([*right, turn((5, 1, 6), "length")], ends, None)
    assert "number 1" in wrong_end([turn((2, 2))], ends, None)
    assert "last token, 6, is none" in wrong_end([turn((5, 6))], ends, None)
    assert wrong_end([turn((5, 6))], ends, stop) == ""
    assert "is none" in wrong_end([turn((5,))], ends, stop)
    assert wrong_end([turn((5,))], ends, Stop(("b",))) == ""  # who looks for it is another


def test_a_proof_goes_on_from_the_sums_that_a_checkpoint_keeps() -> None:
    step = {"excess": 3.0, "variance": 90.0}
    drawn = [("prompt", (n % 3,), -2.0) for n in range(5)]
    unbroken = SamplingProof()
    unbroken.add(step, drawn)
    resumed = SamplingProof(json.loads(json.dumps(unbroken.run)))
    assert resumed.add(step, drawn) == unbroken.add(step, drawn)
    assert resumed.run == unbroken.run
