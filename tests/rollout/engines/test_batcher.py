"""Requests join between two decoding steps, and whoever goes away makes room at once."""

import math
import threading
from concurrent.futures import CancelledError
from dataclasses import replace

import pytest

from assay.errors import RunFailure
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.batcher import Batcher, SamplingJob
from assay.rollout.engines.cpu.sampler import LocalSampler
from tests.exact import exact_model
from tests.serve.scripted import Says, batching

KEY = SampleKey(0, "prompt 0", 0)


def job(most: int, context: tuple[int, ...] = (1,)) -> SamplingJob:
    """A greedy request of so many tokens."""
    return SamplingJob(context, KEY, Sampling(0, most))


def test_a_request_of_5_tokens_ends_before_one_of_100_that_began_earlier() -> None:
    module = exact_model("llama", False).double()
    batcher = Batcher(LocalSampler(module, frozenset()))
    long, short = job(100, (4, 5, 6)), job(5, (9, 8))
    drawn, seen = [0], []

    def hears(token: int) -> bool:
        drawn[0] += 1
        if drawn[0] == 20:
            batcher.submit(short)
        return False

    long.hears = hears
    short.done.add_done_callback(lambda _: seen.append(drawn[0]))
    batcher.submit(long)
    answers = [each.done.result(60) for each in (long, short)]
    batcher.close()
    # It joins before step 21, which computes its prompt and draws its first token.
    assert seen == [25] and drawn == [100]
    for each, turn in zip((long, short), answers, strict=True):
        [alone] = LocalSampler(module, frozenset()).sample([each.context], [KEY], each.sampling)
        assert turn.actions == alone.actions and turn.ended == alone.ended
        assert turn.behaviour_logps == pytest.approx(alone.behaviour_logps, abs=1e-9)


def test_turns_end_with_an_end_token_a_limit_or_their_listener() -> None:
    sampler = Says(lambda *_: "abcdef")
    batcher = batching(sampler)
    jobs = [job(50), job(3), job(50)]
    stop = sampler.tokenizer.encode("d")[0]
    jobs[2].hears = lambda token: token == stop
    for each in jobs:
        batcher.submit(each)
    turns = [each.done.result(20) for each in jobs]
    batcher.close()
    assert [(len(turn.actions), turn.ended) for turn in turns] == [
        (7, "stop"),
        (3, "length"),
        (4, "length"),
    ]
    assert turns[0].actions[:3] == turns[1].actions and turns[0].behaviour_logps == tuple(
        -float(n) for n in range(7)
    )


def test_a_job_nobody_waits_for_leaves_before_the_next_step() -> None:
    sampler = Says(lambda *_: "z" * 1000)
    batcher = batching(sampler)
    gone, stays = job(900), job(900)
    under_way: list[int] = []
    heard = [0]

    def leave(token: int) -> bool:
        heard[0] += 1
        gone.cancelled = heard[0] == 10
        return False

    def watch(token: int) -> bool:
        under_way.append(len(batcher._open))
        return len(under_way) == 20

    gone.hears, stays.hears = leave, watch
    sampler.released.clear()
    batcher.submit(gone)
    batcher.submit(stays)
    sampler.released.set()
    stays.done.result(20)
    with pytest.raises(CancelledError):
        gone.done.result(20)
    batcher.close()
    assert heard[0] == 10 and under_way[-1] == 1 and not sampler.rows


def test_a_listener_that_fails_fails_its_own_request_only() -> None:
    batcher = batching(Says(lambda *_: "fine"))
    bad, good = job(9), job(9)

    def hears(token: int) -> bool:
        raise ValueError("half a character")

    bad.hears = hears
    batcher.submit(bad)
    batcher.submit(good)
    with pytest.raises(ValueError, match="half"):
        bad.done.result(20)
    assert len(good.done.result(20).actions) == 5
    batcher.close()


class Breaks(Says):
    """A sampler that breaks as a whole, once, and never takes a long context."""

    broken = False

    def sample(self, contexts, *given, **more):
        if not self.broken:
            self.broken = True
            raise MemoryError("all of it")
        if any(len(context) > 300 for context in contexts):
            raise ValueError("too long")
        return super().sample(contexts, *given, **more)


def test_a_sampler_that_breaks_fails_what_was_under_way_and_goes_on() -> None:
    batcher = batching(Breaks(lambda *_: "fine"))
    first, refused, later = (job(9, context) for context in ((1,), (1,) * 400, (2,)))
    batcher.submit(first)
    with pytest.raises(MemoryError):
        first.done.result(20)
    batcher.submit(refused)
    batcher.submit(later)
    with pytest.raises(ValueError, match="too long"):
        refused.done.result(20)
    assert len(later.done.result(20).actions) == 5
    batcher.close()


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_whoever_joins_when_draws_what_it_draws_alone(family: str, monkeypatch) -> None:
    monkeypatch.setattr("assay.rollout.engines.batcher.SLICE", 7)
    module = exact_model(family, False).double()
    system = tuple(range(20, 90))
    contexts = [tuple(range(5, 25)), (4,), (*system, 3, 5, 8), (*system, 3, 9), (*system, 3, 5, 8)]
    kinds = [(0, 40), (1.0, 9), (0.7, 33), (0, 1), (1.3, 21)]
    settings = [Sampling(warmth, most) for warmth, most in kinds]
    keys = [SampleKey(7, str(number), number) for number in range(5)]
    asked = list(zip(contexts, keys, settings, strict=True))
    alone = [
        LocalSampler(module, frozenset()).sample([context], [key], sampling)[0].actions
        for context, key, sampling in asked
    ]
    jobs = [SamplingJob(*each) for each in asked]
    batcher = Batcher(LocalSampler(module, frozenset()))
    later = {3: jobs[1:3], 17: jobs[3:]}
    heard: list[int] = []

    def hears(token: int) -> bool:
        heard.append(token)
        for each in later.pop(len(heard), ()):
            batcher.submit(each)
        return False

    jobs[0].hears = hears
    batcher.submit(jobs[0])
    assert [each.done.result(60).actions for each in jobs] == alone
    batcher.close()


def test_scores_that_are_no_numbers_fail_their_own_request() -> None:
    class Broken(Says):
        def sample(self, contexts, *given, **more):
            turns = super().sample(contexts, *given, **more)
            wrong = replace(turns[0], behaviour_logps=(math.nan,) * len(turns[0].actions))
            return [wrong, *turns[1:]]

    batcher = batching(Broken(lambda *_: "fine"))
    batcher.submit(broken := job(9))
    with pytest.raises(RunFailure, match="not numbers"):
        broken.done.result(20)
    batcher.close()


def test_what_waits_when_the_server_ends_is_told() -> None:
    sampler = Says(lambda *_: "x" * 100)
    sampler.released.clear()
    batcher = batching(sampler)
    jobs = [job(99) for _ in range(3)]
    for each in jobs:
        batcher.submit(each)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    sampler.released.set()
    closing.join()
    batcher.submit(late := job(1))
    for each in (*jobs, late):
        with pytest.raises(CancelledError):
            each.done.result(20)
    assert not batcher._open
