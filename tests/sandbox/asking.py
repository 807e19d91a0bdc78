"""Functions that ask the lab, well and badly; the tests call them by name in a program pool."""

import asyncio
from typing import Any


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
