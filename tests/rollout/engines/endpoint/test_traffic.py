"""When an endpoint may be asked: concurrency gives way and recovers."""

import asyncio

from assay.rollout.engines.endpoint.traffic import Traffic


async def open_at_once(traffic: Traffic, count: int) -> int:
    """How many of these requests are let in before any ends."""
    inside, done = 0, asyncio.Event()

    async def one() -> None:
        nonlocal inside
        async with traffic.turn():
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
            async with traffic.turn() as number:
                numbers.append(number)
        for number in numbers:
            traffic.overloaded(number)
        assert traffic.limit == 8
        async with traffic.turn() as number:
            traffic.overloaded(number)
        assert traffic.limit == 4

    asyncio.run(run())


def test_who_gives_up_waiting_leaves_the_place_to_others():
    async def run() -> None:
        traffic = Traffic(1)

        async def hold() -> None:
            async with traffic.turn():
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
            async with traffic.turn():
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(*(one(number) for number in range(20)))
        return order

    assert asyncio.run(run()) == list(range(20))
