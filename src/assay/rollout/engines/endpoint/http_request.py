"""One HTTP request and its whole answer within one deadline and one size.

The deadline covers all of it: the connection, the headers, any number of `100 Continue` before
them and a body that drips. Redirects are not followed, so that what a request carries goes to the
host that was named. Answers are not to be compressed: a few bytes could then stand for gigabytes.
Whether a failed request is repeated is the caller's affair.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import httpx

MOST_BYTES = 16 << 20
"""The largest answer that is read."""


class Late(Exception):
    """There was no whole answer within the deadline."""


class Oversized(Exception):
    """An answer longer than MOST_BYTES, or compressed although that was not asked for."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    """By names in small letters."""


def send(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, seconds: float
) -> Reply:
    """The answer to one request; for threads without an event loop.

    Raises Late, Oversized, and httpx.HTTPError where there is no connection or no HTTP.
    """
    return asyncio.run(_within(method, url, headers, body, max(seconds, 0.001)))


async def _within(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, seconds: float
) -> Reply:
    try:
        async with asyncio.timeout(seconds):
            return await _send(method, url, headers, body)
    except TimeoutError as error:
        raise Late from error


async def _send(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
    sent = {**headers, "Accept-Encoding": "identity"}
    if body is not None:
        sent["Content-Type"] = "application/json"
    received = bytearray()
    # A client for each request: no cookie, no connection and no lock is shared between threads.
    client = httpx.AsyncClient(follow_redirects=False, timeout=None, verify=_certificates())
    async with client, client.stream(method, url, headers=sent, content=body) as response:
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise Oversized("a compressed answer")
        async for piece in response.aiter_raw():
            received += piece
            if len(received) > MOST_BYTES:
                raise Oversized(f"more than {MOST_BYTES} bytes")
    return Reply(response.status_code, bytes(received), dict(response.headers))


@cache
def _certificates() -> ssl.SSLContext:
    """Reading the certificates takes longer than a request."""
    return httpx.create_ssl_context()
