"""JSON lines over a pipe, read with a time limit.

The protocol of the worker only: no process is started or watched here. A request is a nonce and a
line; its reply is a line that repeats the nonce, which the called code never sees.
"""

import json
import os
import select
import time
from typing import Any

NONCE_BYTES = 16


class LineReader:
    """Reads whole lines from a file descriptor, keeping what arrived beyond them."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self._buffer = bytearray()

    def read_line(self, until: float) -> bytes | None:
        """The next line; b"" at the end of the stream; None at `until` (`time.monotonic`)."""
        while b"\n" not in self._buffer:
            wait = until - time.monotonic()
            if wait <= 0 or not wait_readable([self.descriptor], wait):
                return None
            chunk = os.read(self.descriptor, 1 << 16)
            if not chunk:
                return b""
            self._buffer += chunk
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        return line


def read_nonce(descriptor: int) -> bytearray | None:
    """The nonce before a request's line; None at the end of the stream.

    Read into the array that is returned and nowhere else, so that clearing it leaves no copy.
    """
    nonce, have = bytearray(NONCE_BYTES), 0
    while have < NONCE_BYTES:
        count = os.readv(descriptor, [memoryview(nonce)[have:]])
        if count == 0:
            return None
        have += count
    return nonce


def signed(nonce: bytes | bytearray, line: bytes) -> bytes:
    """A reply line with its request's nonce in front."""
    return nonce.hex().encode("ascii") + b" " + line


def wait_readable(descriptors: list[int], seconds: float) -> list[int]:
    """Those descriptors that can be read, or have ended, within `seconds`."""
    poller = select.poll()  # not select(): a lab may have more than 1024 files open
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN | select.POLLHUP)
    return [descriptor for descriptor, _ in poller.poll(max(0.0, seconds) * 1000)]


def encode_line(message: Any) -> bytes:
    """`message` as one line of ASCII JSON. Raises TypeError or ValueError when it is not JSON."""
    return json.dumps(message).encode("ascii") + b"\n"


def write_all(descriptor: int, data: bytes) -> None:
    """Writes every byte of `data`."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
