"""Functions that ask the lab, well and badly; the tests call them by name in a program pool."""

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.sandbox.faults import find_in_memory, find_planted


def chain(ask: Any, names: list[str]) -> list[Any]:
    """One call after the other."""

    async def run() -> list[Any]:
        return [await ask(name, {"n": n}) for n, name in enumerate(names)]

    return asyncio.run(run())


def gather(ask: Any, names: list[str]) -> list[Any]:
    """All calls at once."""

    async def run() -> list[Any]:
        return await asyncio.gather(*[ask(name, {"n": n}) for n, name in enumerate(names)])

    return asyncio.run(run())


def gather_unbounded(ask: Any, names: list[str]) -> list[Any]:
    """The same, whatever the limit of calls open at once."""
    asker = ask.__self__
    asker._limits = replace(asker._limits, together=len(names))
    return gather(ask, names)


def in_threads(ask: Any, names: list[str]) -> list[Any]:
    """All calls at once, each from an event loop of its own."""
    found: dict[int, Any] = {}

    def one(n: int, name: str) -> None:
        found[n] = asyncio.run(ask(name, {"n": n}))

    threads = [threading.Thread(target=one, args=each) for each in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[n] for n in range(len(names))]


def asks_and_leaves(ask: Any, names: list[str]) -> str:
    """Does not wait for the answers."""

    async def run() -> str:
        tasks = [asyncio.create_task(ask(name, {})) for name in names]
        await asyncio.sleep(0.05)
        return f"left {len(tasks)}"

    loop = asyncio.new_event_loop()
    return loop.run_until_complete(run())


def asks_and_sleeps(ask: Any, names: list[str]) -> str:
    """Waits for something else than the answer."""
    threading.Thread(target=gather, args=(ask, names), daemon=True).start()
    time.sleep(1000)
    return "never"


def burns_behind_a_call(ask: Any, names: list[str]) -> list[Any]:
    """Computes while it waits."""

    def loop() -> None:
        while True:
            pass

    threading.Thread(target=loop, daemon=True).start()
    return chain(ask, names)


def writes(ask: Any, path: str) -> list[str]:
    """Writes a file; what lies in its own folder."""
    Path(path).write_text("written")
    return [each.name for each in Path().iterdir()]


def refused(ask: Any, arguments: Any) -> str:
    """What asking raised."""
    try:
        asyncio.run(ask("name", arguments))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "answered"


def not_a_number(ask: Any) -> float:
    return float("nan")


def counted(ask: Any, first: list[int], last: list[int]) -> int:
    """How often two halves stand side by side in this process's memory."""
    return find_in_memory(first, last)


def planted(ask: Any, first: list[int], last: list[int]) -> int:
    """The same, with both halves put side by side beforehand."""
    return find_planted(first, last)


def serve(ask: Any, work: str, **arguments: Any) -> Any:
    """One of these functions, so that a pool of one worker can run several."""
    return globals()[work](ask, **arguments)
