"""Takes functions of three signatures as rewards, told apart by the names of their parameters.

- `(row, completion) -> Reward`: Assay's own.
- `(prompt, completion, row) -> float`: texts in, a number out; None abstains.
- `(prompts, completions, **columns) -> list[float]`: TRL's. It is called with one completion, as
  text where the file's prompt is text and as messages elsewhere, and gets the columns that it
  names, by their names in the file, or all where it takes `**kwargs` (TRL 1.16,
  `trainer/grpo_trainer.py: _calculate_rewards`). `id` and `gold` are always there; `trainer_state`
  and `environments` never are.

Whether a function may run in this process is its own word: the attribute `unsafe`. What any of them
returns becomes a reward in `as_value`, and nowhere else.
"""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from assay.data.conversation import stored_messages
from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.tasks.user_code import inner_function, line_note

Judge = Callable[[Row, Completion], Reward]
TRL = {"prompts", "completions", "completion_ids"}
"""Parameters that only TRL's signature has; a function names at least one of them."""

ACCEPTED = (
    "write (prompt, completion, row) -> float, (row, completion) -> Reward, or TRL's "
    "(prompts, completions, **columns) -> list[float]"
)


@dataclass(frozen=True, slots=True)
class TextReward:
    """A function `(prompt, completion, row)` as a reward: both texts, and a number back."""

    function: Callable[..., Any]

    def __call__(self, row: Row, completion: Completion) -> Reward:
        """Raises InputError."""
        value = self.function(prompt=question(row), completion=completion.text, row=row)
        return as_value(value, self.function)

    @property
    def unsafe(self) -> bool:
        """Whether it has to run in a worker."""
        return bool(getattr(self.function, "unsafe", False))

    @property
    def lowest(self) -> float:
        """The value of an answer on which it fails."""
        return float(getattr(self.function, "lowest", 0.0))


@dataclass(frozen=True, slots=True)
class TrlReward(TextReward):
    """A function of TRL's signature as a reward, called with lists of one.

    What it logs (`log_metric`, `log_extra`) become the reward's parts and facts.
    """

    def __call__(self, row: Row, completion: Completion) -> Reward:
        """Raises InputError, also for anything but a list of one number."""
        parts: dict[str, float] = {}
        facts: dict[str, str] = {}

        def log_metric(name: str, value: float) -> None:
            parts[name] = float(value)

        def log_extra(column: str, values: Sequence[object]) -> None:
            facts[column] = str(values[0])

        arguments = {
            **{name: [value] for name, value in columns(row, completion).items()},
            "log_metric": log_metric,
            "log_extra": log_extra,
        }
        if lacking := [name for name in required(self.function) if name not in arguments]:
            known = ", ".join(sorted(arguments.keys() - {"log_metric", "log_extra"}))
            problem = f"{named(self.function)} asks for {', '.join(map(repr, lacking))}, and the "
            raise TypeError(f"{problem}columns here are: {known}{_at(self.function)}")
        scores = self.function(**taken(self.function, arguments))
        if inspect.isawaitable(scores):
            scores = finished(scores)
        if not isinstance(scores, list | tuple) or len(scores) != 1:
            problem = f"{named(self.function)} returned {scores!r:.80}, not a list of one number"
            raise InputError(problem + _at(self.function))
        return replace(as_value(scores[0], self.function), parts=parts, facts=facts)


def as_reward(function: Callable[..., Any], name: str) -> Judge:
    """A function of any of the signatures as a reward. Raises InputError."""
    if not callable(function) or isinstance(function, type):
        raise InputError(f"{name} is {function!r:.80}, not a function", fix=ACCEPTED)
    names = required(function)
    if names == ["row", "completion"]:
        return function
    if set(names) == {"prompt", "completion", "row"}:
        return TextReward(function)
    if TRL & {*names} and not {"prompt", "completion", "row"} & {*names}:
        return TrlReward(function)
    raise InputError(f"{name} takes ({', '.join(names)})", fix=ACCEPTED)


def required(function: Callable[..., Any]) -> list[str]:
    """The parameters that have no default. Raises InputError where Python cannot tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        problem = f"the parameters of {named(function)} cannot be read"
        raise InputError(problem, fix=ACCEPTED) from None
    loose = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in loose]


def taken(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What of the arguments a function takes: all where it has `**kwargs`."""
    known = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return dict(arguments)
    return {name: value for name, value in arguments.items() if name in known}


def named(function: Callable[..., Any]) -> str:
    """The name of a function, or of the class of an object in its place."""
    return getattr(function, "__name__", type(function).__name__)


def as_value(value: Any, function: Callable[..., Any]) -> Reward:
    """What a function returned as a reward that records can hold: a number is a value, and None
    abstains. Raises InputError for anything else, and for a number that is not finite."""
    try:
        if value is None:
            return Reward(
                None, why=f"{named(inner_function(function))} returned None{_at(function)}"
            )
        return _recordable(value, named(inner_function(function)))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{error}{_at(function)}") from None


def _at(function: Callable[..., Any]) -> str:
    """Where a user's function stands, to be appended to what is wrong with it."""
    line = line_note(function)
    return f" ({line})" if line else ""


def _recordable(value: Any, name: str) -> Reward:
    """What `name` returned as a reward of plain numbers and texts. Raises TypeError, ValueError or
    OverflowError."""
    if inspect.iscoroutine(value):
        value.close()  # nothing will await it, of which Python would warn
    if not isinstance(value, Reward):
        return Reward(_number(value, name))
    mappings = isinstance(value.parts, Mapping) and isinstance(value.facts, Mapping)
    if not mappings or not all(
        isinstance(text, str) for text in (*value.parts, *value.facts, value.why, value.outcome)
    ):
        raise TypeError(f"{name} returned a Reward of which a name, `why` or `outcome` is no text")
    return replace(
        value,
        value=None if value.value is None else _number(value.value, name),
        parts={key: _number(each, name, f"part {key!r}: ") for key, each in value.parts.items()},
        facts={
            key: each if isinstance(each, str) else _number(each, name, f"fact {key!r}: ")
            for key, each in value.facts.items()
        },
    )


def _number(value: Any, name: str, part: str = "") -> float:
    """One number (Python's, numpy's, a tensor without dimensions) as Python has it."""
    kind = type(value)
    single = getattr(value, "shape", ()) == () and hasattr(kind, "__float__")
    if not single:
        raise TypeError(f"{part}{name} returned {kind.__name__}, not a number or a Reward")
    number = value if kind in (int, float) else float(value)
    if not math.isfinite(number):
        raise ValueError(f"{part}the value is {number}")
    return number


def question(row: Row) -> str:
    """The text of the row's last user message; "" without one."""
    return next((m.content for m in reversed(row.prompt) if m.role == "user"), "")


def columns(row: Row, completion: Completion) -> dict[str, Any]:
    """The columns that TRL passes on, of one completion: those of the file, and of the row where
    the file has none of that name."""
    own = dict(row.columns)
    text = own.pop("prompt", None)
    prompt, answer = text, completion.text
    if text is None or completion.messages:
        prompt = stored_messages(row.prompt)
        answer = stored_messages(completion.messages or (Message("assistant", answer),))
    return {
        "id": row.id,
        **row.extra,
        **own,
        "gold": row.gold,
        "prompts": prompt,
        "completions": answer,
        "completion_ids": list(completion.tokens),
    }


def finished(awaitable: Awaitable[Any]) -> Any:
    """The result of an asynchronous function, in a loop of its own: a notebook has one running."""

    async def wait() -> Any:
        return await awaitable

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(wait())).result()
