"""What a program in the sandbox says, read without trusting it.

Nothing here raises for any bytes but `ValueError`, and what passes is harmless to whoever writes it
to a record, a database or a page: plain values of bounded depth, whole numbers of 64 bits, finite
fractions, and text that UTF-8 can hold.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from assay.sandbox.limits import OF_A_CALL, Outcome
from assay.sandbox.pipes import encode_line

MOST_DEPTH = 32
MOST_NUMBER = 1 << 63


@dataclass(frozen=True, slots=True)
class Call:
    """What a program asks the lab."""

    number: int
    name: str
    arguments: dict[str, Any]


def read_call(line: bytes, number: int) -> Call:
    """The call on a line, whose number has to be `number`. Raises ValueError."""
    message = read_json(line)
    if not isinstance(message, dict) or set(message) != {"id", "name", "arguments"}:
        raise ValueError("a call has an id, a name and arguments")
    if type(message["id"]) is not int or message["id"] != number:
        raise ValueError(f"the call's id is not {number}, the next one")
    if not isinstance(message["name"], str) or not isinstance(message["arguments"], dict):
        raise ValueError("a call's name is text, its arguments are an object")
    return Call(number, message["name"], message["arguments"])


def read_answer(line: bytes) -> Outcome:
    """What called code says of itself: a value, or that it raised. Raises ValueError."""
    message = read_json(line)
    if not isinstance(message, dict):
        raise ValueError("an answer is an object")
    if set(message) == {"value"}:
        return Outcome(message["value"])
    if set(message) != {"failure", "why"} or message["failure"] not in OF_A_CALL:
        raise ValueError("an answer is a value, or an exception")
    if not isinstance(message["why"], str):
        raise ValueError("a reason is text")
    return Outcome(failure=message["failure"], why=message["why"])


def checked_line(message: Any) -> bytes:
    """`message` as a line that `read_json` reads. Raises TypeError or ValueError where there is
    none."""
    line = encode_line(message, finite=True)
    read_json(line)
    return line


def read_json(line: bytes) -> Any:
    """A JSON value of ASCII text. Raises ValueError."""
    try:
        value = json.loads(line.decode("ascii"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise ValueError("not in ASCII") from None
    except RecursionError:
        raise ValueError(f"nested deeper than {MOST_DEPTH}") from None
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from None
    _check(value)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _check(value: Any) -> None:
    level = [value]
    for _ in range(MOST_DEPTH):
        for each in level:
            _check_scalar(each)
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return
    raise ValueError(f"nested deeper than {MOST_DEPTH}")


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _check_scalar(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number beyond all bounds")
    if isinstance(value, int) and not -MOST_NUMBER <= value < MOST_NUMBER:
        raise ValueError("a number of more than 64 bits")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("text with half a surrogate pair") from None
