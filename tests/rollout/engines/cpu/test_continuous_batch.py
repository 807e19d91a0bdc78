"""Completions that join while others run are the same as alone, and none waits for a longer one."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from assay.errors import RunFailure
from assay.models.inference import inference_model
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu import continuous_batch, decode
from assay.rollout.engines.cpu.continuous_batch import ContinuousBatch, common
from assay.rollout.engines.cpu.decode import StaticDecode
from assay.rollout.engines.cpu.sampler import LocalSampler
from tests.exact import exact_model
from tests.few import few
from tests.tiny import FAMILIES

SYSTEM = tuple(range(20, 90))
CONTEXTS = [
    tuple(range(5, 25)),
    (4,),
    (*SYSTEM, 3, 5, 8),
    (*SYSTEM, 3, 9),
    (*SYSTEM, 3, 5, 8),
    tuple(np.random.default_rng(0).integers(13, 290, 150).tolist()),
]
SETTINGS = [
    Sampling(0, 70),
    Sampling(1.0, 9),
    Sampling(0.7, 33, top_p=0.9),
    Sampling(0, 1),
    Sampling(1.3, 21, top_k=20),
    Sampling(0, 40),
]
KEYS = [SampleKey(7, str(number), number) for number in range(len(CONTEXTS))]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which a short test meets every way: parts of prompts, moves, wider buckets."""
    monkeypatch.setattr(continuous_batch, "OWN", 8)
    monkeypatch.setattr(continuous_batch, "LEAST_WIDTH", 32)
    monkeypatch.setattr(continuous_batch, "FILL_TOKENS", 11)
    monkeypatch.setattr(continuous_batch, "FILL_ALONE", 50)


def batch_of(module: torch.nn.Module) -> ContinuousBatch:
    return ContinuousBatch(inference_model(module, next(module.parameters()).dtype))


def run(
    batch: ContinuousBatch,
    arrivals: dict[int, list[int]],
    watch: Callable[[ContinuousBatch, int], None] = lambda batch, step: None,
) -> tuple[dict[int, list[int]], dict[int, int]]:
    """The tokens of each request and the step in which it ended; requests by step of arrival."""
    rows, tokens, ended = {}, {}, {}
    step = 0
    while len(ended) < sum(map(len, arrivals.values())):
        for number in arrivals.get(step, []):
            rows[batch.join(CONTEXTS[number], KEYS[number], SETTINGS[number])] = number
        done = batch.step()
        assert not done.failed
        assert len({row for row, _, _ in done.drawn}) == len(done.drawn)
        for row, token, _ in done.drawn:
            number = rows[row]
            tokens.setdefault(number, []).append(token)
            if len(tokens[number]) == SETTINGS[number].max_tokens:
                batch.leave(row)
                ended[number] = step
        watch(batch, step)
        step += 1
        assert step < 2000
    assert not batch.buckets and not batch.waiting
    return tokens, ended


def alone(module: torch.nn.Module, number: int) -> list[int]:
    sampler = LocalSampler(module, frozenset())
    [turn] = sampler.sample([CONTEXTS[number]], [KEYS[number]], SETTINGS[number])
    return list(turn.actions)


@few("family", sorted(FAMILIES), fast=1)
def test_whoever_joins_when_draws_what_it_draws_alone(family: str) -> None:
    module = exact_model(family, False).double()
    expected = {number: alone(module, number) for number in range(len(CONTEXTS))}
    for arrivals in (
        {0: [0, 1, 2, 3, 4, 5]},
        {0: [0], 3: [5, 2], 9: [4], 13: [1, 3]},
        {0: [5], 40: [2], 60: [0], 61: [3, 4], 70: [1]},
    ):
        assert run(batch_of(module), arrivals)[0] == expected


def test_rows_that_lose_their_slot_to_a_small_budget_still_draw_the_same(monkeypatch) -> None:
    module = exact_model("llama", False).double()
    expected = {number: alone(module, number) for number in range(len(CONTEXTS))}
    batch = batch_of(module)
    shape = continuous_batch.cache_shape(batch.model)
    monkeypatch.setattr(continuous_batch, "CACHE_BYTES", 150 * shape.token_bytes)
    waited = set()

    def watch(batch: ContinuousBatch, step: int) -> None:
        waited.update(row.drawn for row in batch.waiting)
        firsts = sum(bucket.width + 8 for bucket in batch.buckets.values())
        assert sum(row.width + 8 for row in batch.rows) <= 150 + firsts

    assert run(batch, {0: [0, 1, 2], 2: [3, 4, 5]}, watch)[0] == expected
    assert max(waited) > 0, "a row under way must have lost its slot"


def test_fixed_shapes_draw_the_same(monkeypatch) -> None:
    module = exact_model("qwen3", False).double()
    expected = {number: alone(module, number) for number in range(len(CONTEXTS))}

    def twice(model) -> StaticDecode:
        return StaticDecode(model, lambda step: (step(), step)[1])

    monkeypatch.setattr(continuous_batch, "decoder", twice)
    assert run(batch_of(module), {0: [0, 2], 5: [1, 3, 4], 20: [5]})[0] == expected
    assert decode.LEAST_COLUMNS


def test_a_short_completion_that_comes_late_ends_before_a_long_one(monkeypatch) -> None:
    monkeypatch.setitem(globals(), "SETTINGS", [Sampling(0, 100), Sampling(0, 5)])
    _, ended = run(batch_of(exact_model("llama", False)), {0: [0], 20: [1]})
    assert ended == {0: 99, 1: 24}


def test_a_short_request_waits_for_no_long_prompt(monkeypatch) -> None:
    # The long prompt has 150 tokens, of which a step computes half of 11 beside the short one's.
    steps = {0: [1], 1: [5], 2: [0]}
    monkeypatch.setitem(globals(), "SETTINGS", [Sampling(0, 3)] * 6)
    monkeypatch.setattr(continuous_batch, "FILL_ALONE", 11)
    _, ended = run(batch_of(exact_model("llama", False)), steps)
    assert ended[0] <= 8 and ended[5] >= 14


def test_what_is_shared_is_computed_once(monkeypatch) -> None:
    computed = []

    def spans(model, cache, found):
        computed.extend(span.stop - span.behind for span in found)
        return continuous_spans(model, cache, found)

    continuous_spans = continuous_batch.compute_spans
    monkeypatch.setattr(continuous_batch, "compute_spans", spans)
    monkeypatch.setattr(continuous_batch, "FILL_ALONE", 200)
    monkeypatch.setitem(globals(), "SETTINGS", [Sampling(0, 5)] * 6)
    batch = batch_of(exact_model("llama", False))
    assert [len(CONTEXTS[number]) for number in (2, 3, 4)] == [73, 72, 73]
    run(batch, {0: [2, 3, 4]})
    run(batch, {0: [2]})
    # 73 tokens; 71 of the next one's 72 are among them; of the third, the last must be fed; what
    # comes when all have left finds two blocks of 32 in the store.
    assert sorted(computed) == [1, 1, 73 - 64, 73]


def test_a_row_that_leaves_frees_its_slot_at_once_wherever_it_is() -> None:
    batch = batch_of(exact_model("llama", False))
    filling = batch.join(CONTEXTS[5], KEYS[5], SETTINGS[5])
    waiting = batch.join(CONTEXTS[5], KEYS[4], SETTINGS[5])
    sampled = batch.join(CONTEXTS[1], KEYS[1], SETTINGS[0])
    batch.step()
    assert filling.filling and waiting.waits and sampled.drawn == 1
    for row in (waiting, filling, sampled):
        batch.leave(row)
        assert row not in batch.rows and row not in batch.waiting
    assert not batch.buckets and not batch.step().drawn


def test_memory_shrinks_when_rows_leave() -> None:
    batch = batch_of(exact_model("llama", False))
    rows = [batch.join(CONTEXTS[1], key, SETTINGS[0]) for key in KEYS for _ in range(3)]
    for _ in range(3):
        batch.step()
    [bucket] = batch.buckets.values()
    assert len(bucket.running.turn_B) == 32
    for row in rows[:-2]:
        batch.leave(row)
    assert len(bucket.running.turn_B) <= 4 and {row.slot for row in rows[-2:]} <= {0, 1, 2, 3}


def test_a_row_without_numbers_fails_alone(monkeypatch) -> None:
    module = exact_model("llama", False).double()
    batch = batch_of(module)
    good = batch.join(CONTEXTS[0], KEYS[0], SETTINGS[0])
    bad = batch.join(CONTEXTS[1], KEYS[1], SETTINGS[1])
    batch.step()
    place, spot = batch.buckets[32], bad.slot
    for keys in place.cache.prompt_values:
        keys[spot] = float("nan")
    step = batch.step()
    assert [row for row, _, _ in step.drawn] == [good]
    [(row, error)] = step.failed
    assert row is bad and isinstance(error, RunFailure) and bad not in batch.rows


def test_a_prompt_that_cannot_be_computed_fails_alone(monkeypatch) -> None:
    batch = batch_of(exact_model("llama", False))
    rows = [batch.join(context, KEYS[0], SETTINGS[0]) for context in ((4,), (5, 6), (6, 7, 8))]
    computed = continuous_batch.compute_spans

    def spans(model, cache, found):
        if any(span.context[0] == 5 for span in found):
            raise RuntimeError("no memory")
        return computed(model, cache, found)

    monkeypatch.setattr(continuous_batch, "compute_spans", spans)
    step = batch.step()
    assert [row for row, _ in step.failed] == [rows[1]]
    assert {row for row, _, _ in step.drawn} == {rows[0], rows[2]}


@pytest.mark.parametrize(
    ("one", "other", "most", "shared"),
    [([], [1], 5, 0), ([1, 2, 3], [1, 2, 3], 5, 3), ([1, 2, 3], [1, 2, 3], 2, 2)]
    + [(list(range(10)), [*range(n), -1, *range(n + 1, 10)], 10, n) for n in range(10)],
)
def test_common_beginnings(one, other, most, shared) -> None:
    assert common(one, other, most) == shared
