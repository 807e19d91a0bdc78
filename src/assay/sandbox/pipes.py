"""JSON lines over a pipe, read with a time limit, and the frames of a conversation.

The protocol of the worker only: no process is started or watched here. A request is a nonce,
`REQUEST` and the arguments; every line of its reply repeats the nonce, which the called code never
sees. Behind the nonce stands who speaks: the call, or its supervisor.

A program may ask the lab while it runs. The supervisor sends a line for each call that the program
makes and one at its end; the lab sends a `FRAME` with each answer and an empty one to end the
conversation, after which nothing is sent until the next request.

What a program says is read without trusting it: `read_json` raises nothing for any bytes but
ValueError, and what passes is harmless to whoever writes it to a record, a database or a page:
plain values of bounded depth, whole numbers of 64 bits, finite fractions, and text that UTF-8 can
hold.
"""

import json
import math
import os
import select
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from assay.sandbox.limits import CallOutcome

NONCE_BYTES = 16
REQUEST = struct.Struct("!ddI")
"""Seconds of its own, seconds in all, and the length of the arguments' JSON."""
FRAME = struct.Struct("!I")
"""The length of what follows; 0 ends the conversation."""
CALL, ANSWER, VERDICT = b"?", b"=", b"!"
"""What a line is: a program asks; the called code answers; its supervisor says how it ended."""


class LineReader:
    """Reads whole lines from a file descriptor, keeping what arrived beyond them."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self._buffer = bytearray()

    def read_line(self, until: float) -> bytes | None:
        """The next line; b"" at the end of the stream; None at `until` (`time.monotonic`)."""
        while b"\n" not in self._buffer:
            wait = until - time.monotonic()
            if wait <= 0 or not wait_ready([self.descriptor], wait):
                return None
            chunk = os.read(self.descriptor, 1 << 16)
            if not chunk:
                return b""
            self._buffer += chunk
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        return line


def read_exactly(descriptor: int, count: int) -> bytearray | None:
    """`count` bytes, without a copy anywhere else; None where the stream ends before."""
    data, have = bytearray(count), 0
    while have < count:
        more = os.readv(descriptor, [memoryview(data)[have:]])
        if more == 0:
            return None
        have += more
    return data


def wipe(data: bytearray) -> None:
    """Overwrites what `data` holds, so that a later fork does not find it in memory."""
    data[:] = bytes(len(data))


def signed(nonce: bytes | bytearray, line: bytes) -> bytes:
    """A reply line with its request's nonce in front."""
    return nonce.hex().encode("ascii") + b" " + line


def wait_ready(readable: Sequence[int], seconds: float, writable: Sequence[int] = ()) -> list[int]:
    """Those of `readable` that can be read and of `writable` that can be written, or that have
    ended, within `seconds`. A descriptor stands in one of them only."""
    poller = select.poll()  # not select(): a lab may have more than 1024 files open
    for descriptor in readable:
        poller.register(descriptor, select.POLLIN | select.POLLHUP)
    for descriptor in writable:
        poller.register(descriptor, select.POLLOUT)
    return [descriptor for descriptor, _ in poller.poll(max(0.0, seconds) * 1000)]


def encode_line(message: Any, *, finite: bool = False) -> bytes:
    """`message` as one line of ASCII JSON; `finite` refuses NaN and infinities, which are no JSON.

    Raises TypeError or ValueError when it is not JSON.
    """
    return json.dumps(message, allow_nan=not finite).encode("ascii") + b"\n"


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Writes every byte of `data`."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


MOST_DEPTH = 32
MOST_NUMBER = 1 << 63


def read_call(line: bytes, number: int) -> tuple[str, dict[str, Any]]:
    """The name and arguments of the call on a line, whose number has to be `number`. Raises
    ValueError."""
    message = read_json(line)
    if not isinstance(message, dict) or set(message) != {"id", "name", "arguments"}:
        raise ValueError("a call has an id, a name and arguments")
    if type(message["id"]) is not int or message["id"] != number:
        raise ValueError(f"the call's id is not {number}, the next one")
    if not isinstance(message["name"], str) or not isinstance(message["arguments"], dict):
        raise ValueError("a call's name is text, its arguments are an object")
    return message["name"], message["arguments"]


def read_answer(line: bytes, checked: bool = True) -> CallOutcome:
    """What called code says of itself: a value, or that it raised. Raises ValueError, and
    RecursionError where the value is not `checked`."""
    message = read_json(line) if checked else json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("an answer is an object")
    if set(message) == {"value"}:
        return CallOutcome(message["value"])
    if set(message) != {"failure", "why"} or message["failure"] not in ("exception", "memory"):
        raise ValueError("an answer is a value, or an exception")
    if not isinstance(message["why"], str):
        raise ValueError("a reason is text")
    return CallOutcome(failure=message["failure"], why=message["why"])


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
            if isinstance(each, float) and not math.isfinite(each):
                raise ValueError("a number beyond all bounds")
            if isinstance(each, int) and not -MOST_NUMBER <= each < MOST_NUMBER:
                raise ValueError("a number of more than 64 bits")
            if isinstance(each, str) and not each.isascii():
                try:
                    each.encode("utf-8")
                except UnicodeEncodeError:
                    raise ValueError("text with half a surrogate pair") from None
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
