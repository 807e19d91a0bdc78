"""JSON lines over a pipe, read with a time limit, and the frames of a conversation.

The protocol of the worker only: no process is started or watched here. A request is a nonce and a
line; its reply is a line that repeats the nonce, which the called code never sees. Behind the nonce
stands who speaks: the call, or its supervisor.

A program may ask the lab while it runs. Its request is a nonce, `PROGRAM` and its arguments. The
supervisor sends a line for each call that the program makes and one at its end; the lab sends a
`FRAME` with each answer and an empty one to end the conversation, after which nothing is sent until
the next request.
"""

import json
import os
import select
import struct
import time
from collections.abc import Sequence
from typing import Any

NONCE_BYTES = 16
PROGRAM = struct.Struct("!ddI")
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
        while (line := self.take_line()) is None:
            wait = until - time.monotonic()
            if wait <= 0 or not wait_readable([self.descriptor], wait):
                return None
            if not self.fill():
                return b""
        return line

    def take_line(self) -> bytes | None:
        """The next line of what has been read; None where there is no whole one."""
        if b"\n" not in self._buffer:
            return None
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        return line

    def fill(self) -> bool:
        """Reads what there is, waiting for it; whether the stream goes on."""
        chunk = os.read(self.descriptor, 1 << 16)
        self._buffer += chunk
        return bool(chunk)


def read_nonce(descriptor: int) -> bytearray | None:
    """The nonce before a request's line; None at the end of the stream.

    Read into the array that is returned and nowhere else, so that clearing it leaves no copy.
    """
    return read_exactly(descriptor, NONCE_BYTES)


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


def wait_readable(descriptors: list[int], seconds: float) -> list[int]:
    """Those descriptors that can be read, or have ended, within `seconds`."""
    return wait_ready(descriptors, [], seconds)


def wait_ready(readable: Sequence[int], writable: Sequence[int], seconds: float) -> list[int]:
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
