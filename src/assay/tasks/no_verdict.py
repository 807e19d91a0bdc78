"""The reward of an answer on which a checker failed: a wrong answer's value or an abstention.

The answer is at fault where a second try in a fresh worker fails as well while the gold answer
alone is checked within the same limits. It then earns what a wrong one earns: a model that could
make its checker fail on what it does not know would otherwise raise its own score. Everything else
is the lab's fault, and the reward abstains. Calling and retrying checkers is in `running`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.errors import InputError, RunFailure
from assay.sandbox.limits import CallOutcome
from assay.tasks.user_code import as_value, in_a_line

OUTCOMES: Mapping[str, str] = {
    "deadline": "timed out",
    "cpu": "timed out",
    "memory": "out of memory",
    "processes": "too many processes",
    "output": "too much output",
    "exception": "checker raised",
    "crash": "checker crashed",
    "program": "program failed",
    "length": "too long",
}
"""How an answer can make a checker fail, by kind of failure; other kinds are the lab's fault."""

Failed = Callable[[Row, Completion, CallOutcome], Reward]
"""The reward of an answer at fault; `CallOutcome.failure` is one of `OUTCOMES`."""


def nothing_earned(row: Row, completion: Completion, failure: CallOutcome) -> Reward:
    """0, with the outcome and why the checker failed."""
    return earned(0.0, {}, failure)


def earned(value: float, parts: Mapping[str, float], failure: CallOutcome) -> Reward:
    """A reward whose outcome and `why` say how the answer made the checker fail."""
    outcome = OUTCOMES[failure.failure or "exception"]
    return Reward(value, parts, f"{outcome}: {failure.why}", outcome)


def abstention(failure: CallOutcome) -> Reward:
    """The reward where it is not known that the answer was at fault."""
    if failure.failure == "deadline":
        return Reward(None, why="deadline")
    return Reward(None, why=f"{failure.failure}: {failure.why}")


def gold_completion(row: Row) -> Completion:
    """An answer on which a checker must come to a verdict: the gold answer where it is text, else
    the last assistant message, else an empty one."""
    if isinstance(row.gold, str):
        return completion_of(row.gold)
    last = row.messages[-1] if row.messages else None
    if last is None or last.role != "assistant":
        return completion_of("")
    return completion_of(last.content)


def completion_of(text: str) -> Completion:
    """A completion with this text; its bytes stand for tokens, which some rewards count."""
    return Completion(text, tuple(text.encode("utf-8", "replace")))


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result; a failed `CallOutcome` where it raises anything.

    One bad completion is data, not the end of a run, and neither is a SystemExit in a checker; a
    budget that has no room is, and so are Ctrl-C and what cannot be recorded. Raises RunFailure and
    KeyboardInterrupt.
    """
    try:
        return function(*arguments)
    except (RunFailure, KeyboardInterrupt):
        raise
    except InputError as wrong:
        return CallOutcome(failure="exception", why=str(wrong))
    except BaseException as error:
        return CallOutcome(failure="exception", why=in_a_line(error))


def rewarded(function: Callable[..., Any], *arguments: Any) -> Reward | CallOutcome:
    """What a reward says of an answer; a failed `CallOutcome` where it raises, or returns neither a
    number nor a Reward that records can hold. Raises what `attempt` raises."""
    return attempt(lambda: as_value(function(*arguments), function))


def known(result: Any) -> bool:
    """Whether a result is a reward that is no abstention."""
    return isinstance(result, Reward) and result.value is not None
