"""Requests join between two decoding steps, and whoever goes away makes room at once."""

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError

import pytest

from assay.models.inference import inference_model
from assay.rl.policy import SampleKey, Sampling
from assay.rollout.engines.cpu.batcher import Batcher, Job
from assay.rollout.engines.cpu.continuous_batch import ContinuousBatch, Row
from assay.rollout.engines.cpu.sampler import LocalSampler
from tests.exact import exact_model
from tests.serve.scripted import Says, batching

KEY = SampleKey(0, "prompt 0", 0)


def test_a_request_of_5_tokens_ends_before_one_of_100_that_began_earlier() -> None:
    module = exact_model("llama", False).double()
    batcher = Batcher(
        ContinuousBatch(inference_model(module, next(module.parameters()).dtype)), frozenset()
    )
    long, short = Job((4, 5, 6), KEY, Sampling(0, 100)), Job((9, 8), KEY, Sampling(0, 5))
    drawn, seen = [0], []

    def hears(token: int) -> bool:
        drawn[0] += 1
        if drawn[0] == 20:
            batcher.submit(short)
        return False

    long.hears = hears
    short.done.add_done_callback(lambda _: seen.append(drawn[0]))
    batcher.submit(long)
    answers = [job.done.result(60) for job in (long, short)]
    batcher.close()
    # It joins before step 21, which computes its prompt and draws its first token.
    assert seen == [25] and drawn == [100]
    for job, turn in zip((long, short), answers, strict=True):
        [alone] = LocalSampler(module, frozenset()).sample([job.context], [KEY], job.sampling)
        assert turn.actions == alone.actions and turn.ended == alone.ended
        assert turn.behaviour_logps == pytest.approx(alone.behaviour_logps, abs=1e-9)


def test_turns_end_with_an_end_token_a_limit_or_their_listener() -> None:
    sampler = Says(lambda *_: "abcdef")
    batcher = batching(sampler)
    context = tuple(sampler.tokenizer.encode("x"))
    whole, cut = Job(context, KEY, Sampling(0, 50)), Job(context, KEY, Sampling(0, 3))
    heard = Job(context, KEY, Sampling(0, 50))
    stop = sampler.tokenizer.encode("d")[0]
    heard.hears = lambda token: token == stop
    for job in (whole, cut, heard):
        batcher.submit(job)
    turns = [job.done.result(20) for job in (whole, cut, heard)]
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
    context = tuple(sampler.tokenizer.encode("x"))
    gone, stays = Job(context, KEY, Sampling(0, 900)), Job(context, KEY, Sampling(0, 900))
    under_way: list[int] = []
    heard = [0]

    def leave(token: int) -> bool:
        heard[0] += 1
        gone.cancelled = heard[0] == 10
        return False

    def watch(token: int) -> bool:
        under_way.append(len(sampler.rows))
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
    sampler = Says(lambda *_: "fine")
    batcher = batching(sampler)
    context = tuple(sampler.tokenizer.encode("x"))
    bad, good = Job(context, KEY, Sampling(0, 9)), Job(context, KEY, Sampling(0, 9))

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
    """A decoder that breaks as a whole, once."""

    broken = False

    def step(self):
        if not self.broken:
            self.broken = True
            raise MemoryError("all of it")
        return super().step()

    def join(self, context: Sequence[int], key: SampleKey, sampling: Sampling) -> Row:
        if len(context) > 3:
            raise ValueError("too long")
        return super().join(context, key, sampling)


def test_a_decoder_that_breaks_fails_what_was_under_way_and_goes_on() -> None:
    sampler = Breaks(lambda *_: "fine")
    batcher = batching(sampler)
    first, refused, later = (
        Job(context, KEY, Sampling(0, 9)) for context in ((1,), (1,) * 4, (2,))
    )
    batcher.submit(first)
    with pytest.raises(MemoryError):
        first.done.result(20)
    batcher.submit(refused)
    with pytest.raises(ValueError, match="too long"):
        refused.done.result(20)
    batcher.submit(later)
    assert len(later.done.result(20).actions) == 5
    batcher.close()


def test_what_waits_when_the_server_ends_is_told() -> None:
    sampler = Says(lambda *_: "x" * 100)
    sampler.released.clear()
    batcher = batching(sampler)
    jobs = [Job((1,), KEY, Sampling(0, 99)) for _ in range(3)]
    for job in jobs:
        batcher.submit(job)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    sampler.released.set()
    closing.join()
    late = Job((1,), KEY, Sampling(0, 1))
    batcher.submit(late)
    for job in (*jobs, late):
        with pytest.raises(CancelledError):
            job.done.result(20)
    assert not batcher.open_jobs
