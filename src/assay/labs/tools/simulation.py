"""The lab's side of BFCL's simulators: requests to the worker processes that hold them.

Workers start with the first request and end with the lab. They run upstream's own functions on
literal arguments, never text that a model wrote; limits and deadlines are for the functions
themselves, which a model can ask for 9 ** 999999999, and namespaces for what such a function may
do with an argument that nobody thought of.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from assay.data.row import Row
from assay.data.tools import function_names
from assay.data.wheels import wheel_directory
from assay.errors import RunFailure
from assay.labs.tools.checker import WHEEL
from assay.sandbox.isolation import Mode, chosen_isolation
from assay.sandbox.limits import Limits
from assay.sandbox.pool import WorkerPool

RUN = "assay.labs.tools.simulators:run"
JUDGE = "assay.labs.tools.simulators:judge"
DEADLINE_SECONDS = 10.0
WORKERS = 2
# The long states print megabytes.
LIMITS = Limits(output_bytes=16 << 20)


class CallsFailed(RunFailure):
    """Calls that ended the simulators: the model's doing, since without them all went well."""


def wheel_folders() -> tuple[str]:
    """Where workers import upstream from. Raises InputError when the wheel cannot be had."""
    return (str(wheel_directory(WHEEL)),)


def functions_of(row: Row) -> tuple[str, ...]:
    """The functions that may be called in a row's dialogue: those offered at its start, and those
    that a later turn adds (upstream, too, executes them before they are offered)."""
    added = row.extra["entry"].get("missed_function", {}).values()
    return function_names([*row.tools, *(doc for docs in added for doc in docs)])


def run_calls(row: Row, done: Sequence[str], calls: Sequence[str]) -> list[str]:
    """What `calls` give in the row's entry after the calls `done`.

    Raises CallsFailed where they end a second, fresh worker too and those before do not; any other
    RunFailure says nothing of the calls.
    """
    request = {**_world(row), "done": list(done)}
    try:
        return ask(RUN, {**request, "calls": list(calls)})
    except RunFailure as error:
        ask(RUN, {**request, "calls": []})
        raise CallsFailed(str(error)) from error


def judging(row: Row, turns: Sequence[Sequence[Sequence[str]]]) -> dict[str, Any]:
    """What the worker's `judge` needs to judge the calls of a row's dialogue."""
    return {**_world(row), "truth": row.gold, "turns": turns}


def ask(function: str, arguments: Mapping[str, Any]) -> Any:
    """One request to a function of a worker, tried twice. Raises RunFailure."""
    isolation = chosen_isolation()
    outcome = _pool(function, isolation).map([arguments], DEADLINE_SECONDS)[0]
    if outcome.failure is not None:
        with _new_pool(function, isolation) as fresh:
            outcome = fresh.map([arguments], DEADLINE_SECONDS)[0]
    if outcome.failure is not None:
        raise RunFailure(f"the simulators gave no answer: {outcome.failure}: {outcome.why}")
    return outcome.value


def _world(row: Row) -> dict[str, Any]:
    entry = row.extra["entry"]
    needed = {key: entry[key] for key in ("id", "initial_config", "involved_classes")}
    return {"entry": needed, "functions": list(functions_of(row))}


def _new_pool(function: str, isolation: Mode) -> WorkerPool:
    return WorkerPool(function, WORKERS, LIMITS, isolation, wheel_folders())


_pool = functools.cache(_new_pool)
