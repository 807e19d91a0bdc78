"""Many comparisons in one call of one worker: a call for each, or a worker for each test, would
take most of a test's time."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.labs.math import judging, olympiadbench_judge
from assay.labs.math.expressions import own_verdict
from assay.labs.math.rewards import accuracy
from assay.labs.math.sentences import delimited
from assay.sandbox.limits import CallOutcome, Limits
from assay.sandbox.pool import Worker
from assay.tasks.running import WorkerReward


def own(gold: str, answer: str) -> dict[str, Any]:
    """math-verify's own verdict."""
    return {"equal": own_verdict(gold, answer)}


def ruled(**asked: Any) -> dict[str, Any]:
    """The judge's verdict without math-verify's own beside it, which takes half of its time."""
    judging.own_verdict = lambda *_: None
    return judging.judge(**asked)


def alone(gold: str, answer: str) -> dict[str, Any]:
    """math-verify's verdict on the answer as the judge reads it, without the judge's rules."""
    return own(delimited(gold), delimited(answer))


SECONDS = 200
FUNCTIONS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "judge": judging.judge,
    "ruled": ruled,
    "own": own,
    "alone": alone,
    "olympiad": olympiadbench_judge.judge,
}
RAISED = CallOutcome(failure="exception", why="raised")


def run_all(name: str, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
    """The worker's side of `in_one_call`."""
    return [_value(FUNCTIONS[name], call) for call in calls]


def _value(function: Callable[..., dict[str, Any]], call: Mapping[str, Any]) -> Any:
    try:
        return function(**call)
    except Exception:
        return None


@functools.cache
def worker() -> Worker:
    """Imports the checker once for all tests of a process, with which it ends; each call is a fork
    of it, so that none leaves anything to the next."""
    return Worker("tests.labs.math.many:run_all", Limits(cpu_seconds=SECONDS))


def in_one_call(name: str, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
    """The value of each call of one of `FUNCTIONS`, in order; None where it raised."""
    outcome = worker().call({"name": name, "calls": list(calls)}, 2.0 * SECONDS)
    assert outcome.failure is None, outcome
    return outcome.value


def row(gold: object, question: str = "?", **extra: object) -> Row:
    """A row with a gold answer."""
    return Row("r", (Message("user", question),), gold=gold, extra=extra)


def judged(
    pairs: Sequence[tuple[Row, str]], function: str = "judge", reward: WorkerReward = accuracy
) -> list[Reward]:
    """The reward of each text, all in one call of the worker's function."""
    cases = [(of, Completion(text)) for of, text in pairs]
    found = [reward.ask(*case) for case in cases]
    asked = [n for n, each in enumerate(found) if not isinstance(each, Reward)]
    values = in_one_call(function, [found[n] for n in asked])  # type: ignore[misc]
    for n, value in zip(asked, values, strict=True):
        found[n] = reward.read(*cases[n], value) if value else reward.failed(*cases[n], RAISED)
    return [each for each in found if isinstance(each, Reward)]
