"""When an endpoint may be asked: rates hold in every minute, concurrency gives way and recovers."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.rollout.engines.endpoint.traffic import MINUTE, Bucket, Traffic


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def passed(rate: float, asks: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """When each of these requests passes a bucket; each comes so long after the one before it."""
    clock = Clock()
    bucket = Bucket(rate, clock)
    found = []
    for pause, units in asks:
        clock.now += pause
        while wait := bucket.take(units):
            clock.now += wait
        found.append((clock.now, units))
    return found


def test_a_rate_is_used_up_and_not_only_kept():
    found = passed(120, [(0.0, 1)] * 481)
    assert found[-1][0] == pytest.approx((481 - 12) / (120 - 12 + 1) * MINUTE)


def test_a_request_larger_than_a_full_bucket_passes_and_the_next_pays_for_it():
    (first, _), (second, _) = passed(1000, [(0.0, 500), (0.0, 1)])
    # A hundred at once, then 901 a minute: 400 of debt and one unit.
    assert first == 0 and second == pytest.approx(401 / 901 * MINUTE)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(10, 300),
    st.lists(st.tuples(st.floats(0, 20), st.integers(1, 400)), max_size=40),
)
def test_no_minute_holds_more_units_than_its_rate_or_than_one_request_has(rate, asks):
    found = passed(rate, asks)
    for start, _ in found:
        inside = [units for at, units in found if start <= at < start + MINUTE - 1e-5]
        assert sum(inside) <= rate or len(inside) == 1


def test_a_large_request_waits_for_the_minute_that_ends_with_it():
    clock, sent = Clock(), []
    bucket = Bucket(10_000, clock)
    for units in [100] * 90 + [4000, 100]:
        while wait := bucket.take(units):
            clock.now += wait
        sent.append(clock.now)
    # 9,000 units passed before it: the first 3,000 of them must be a minute old.
    assert sent[-2] == pytest.approx(sent[29] + MINUTE)
    assert sent[-1] - sent[-2] == pytest.approx(3100 / 9001 * MINUTE), "and its debt is paid"


def test_what_an_estimate_took_too_little_is_taken_as_well():
    clock = Clock()
    bucket = Bucket(1000, clock)
    assert bucket.take(100) == 0
    bucket.give_back(-800)
    clock.now = 59.0
    bucket._level = bucket.full
    assert bucket.take(101) == pytest.approx(1.0)


def test_what_an_estimate_took_too_much_is_given_back():
    clock = Clock()
    bucket = Bucket(1000, clock)
    assert bucket.take(100) == 0 and bucket.take(50) > 0
    bucket.give_back(60)
    assert bucket.take(50) == 0
    bucket.give_back(10**6)
    assert bucket.take(100) == 0 and bucket.take(1) > 0, "never more than a full bucket"


async def open_at_once(traffic: Traffic, count: int) -> int:
    """How many of these requests are let in before any ends."""
    inside, done = 0, asyncio.Event()

    async def one() -> None:
        nonlocal inside
        async with traffic.turn(1):
            inside += 1
            await done.wait()

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    for _ in range(10):
        await asyncio.sleep(0)
    seen = inside
    done.set()
    await asyncio.gather(*tasks)
    return seen


def test_a_refusal_halves_what_is_asked_at_once_and_answers_bring_it_back_one_a_round():
    async def run() -> None:
        traffic = Traffic(16)
        assert await open_at_once(traffic, 40) == 16
        traffic.overloaded(40)
        assert await open_at_once(traffic, 40) == 8
        for _ in range(8):
            traffic.answered()
        assert 8.9 < traffic.limit < 9.0, "a round of answers allows about one more"
        for _ in range(500):
            traffic.answered()
        assert traffic.limit == 16

    asyncio.run(run())


def test_what_was_sent_before_a_cut_does_not_cut_again():
    async def run() -> None:
        traffic = Traffic(16)
        numbers = []
        for _ in range(3):
            async with traffic.turn(1) as number:
                numbers.append(number)
        for number in numbers:
            traffic.overloaded(number)
        assert traffic.limit == 8
        async with traffic.turn(1) as number:
            traffic.overloaded(number)
        assert traffic.limit == 4

    asyncio.run(run())


def test_who_gives_up_waiting_leaves_the_place_to_others():
    async def run() -> None:
        traffic = Traffic(1)

        async def hold() -> None:
            async with traffic.turn(1):
                await asyncio.sleep(60)

        first, waiting = asyncio.create_task(hold()), asyncio.create_task(hold())
        await asyncio.sleep(0)
        waiting.cancel()
        first.cancel()
        await asyncio.gather(first, waiting, return_exceptions=True)
        assert await open_at_once(traffic, 2) == 1

    asyncio.run(run())


def test_turns_come_in_the_order_in_which_they_were_asked_for():
    async def run() -> list[int]:
        traffic, order = Traffic(1), list[int]()

        async def one(number: int) -> None:
            async with traffic.turn(1):
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*(one(number) for number in range(20)))
        return order

    assert asyncio.run(run()) == list(range(20))


def test_requests_wait_for_the_rates_of_requests_and_of_tokens():
    clock = Clock()

    async def run() -> float:
        buckets = Bucket(60, clock), Bucket(6000, clock)
        traffic = Traffic(4, *buckets, sleep=clock.sleep)
        for _ in range(20):
            async with traffic.turn(600):
                pass
        return clock.now

    # 600 tokens at once, then 5401 a minute, which is less than 60 requests of 600.
    assert asyncio.run(run()) == pytest.approx(19 * 600 / 5401 * MINUTE)
