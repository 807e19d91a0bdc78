"""Many comparisons in one call of a worker: a process for each would take most of a test's time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.sandbox.limits import Limits
from assay.sandbox.pool import Worker
from assay.tasks.math import olympiadbench_judge
from assay.tasks.math.judging import judge, own_verdicts
from assay.tasks.math.verify import compare


def own(gold: str, answer: str) -> dict[str, Any]:
    """math-verify's own verdict, with its arguments in its order."""
    return {"equal": own_verdicts(gold, answer)[0]}


SECONDS = 200
FUNCTIONS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "judge": judge,
    "compare": compare,
    "own": own,
    "olympiad": olympiadbench_judge.judge,
}


def run_all(name: str, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
    """The worker's side of `in_one_call`."""
    return [_value(FUNCTIONS[name], call) for call in calls]


def _value(function: Callable[..., dict[str, Any]], call: Mapping[str, Any]) -> Any:
    try:
        return function(**call)
    except Exception:
        return None


def in_one_call(name: str, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
    """The value of each call of one of `FUNCTIONS`, in order; None where it raised."""
    with Worker("tests.tasks.math.many:run_all", Limits(cpu_seconds=SECONDS)) as worker:
        outcome = worker.call({"name": name, "calls": list(calls)}, 2.0 * SECONDS)
    assert outcome.failure is None, outcome
    return outcome.value
