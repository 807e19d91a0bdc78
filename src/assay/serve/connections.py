"""Who may use Assay's HTTP servers, and until when: tokens, loopback addresses, signals."""

import errno
import ipaddress
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.agents.http import HOST
from assay.errors import InputError

TOKEN = "ASSAY_SERVE_TOKEN"


def resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """The first address of a host's name. Raises InputError."""
    try:
        addresses = socket.getaddrinfo(host or " ", port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        fix = f"for example {HOST}, or 0.0.0.0 for all networks"
        raise InputError(f"{host!r} is no address", field="--host", fix=fix) from error
    family, _, _, _, address = addresses[0]
    return family, address


def bound(port: int, host: str = HOST) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises InputError."""
    family, address = resolved(host, port)
    try:
        both = family == socket.AF_INET6  # of all addresses those of IPv4 too
        return socket.create_server(address, family=family, dualstack_ipv6=both)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            problem = f"{host} is no address of this machine"
            raise InputError(problem, field="--host") from error
        problem = f"cannot listen on port {port}: {os.strerror(error.errno or 0)}"
        fix = "choose another, or 0 for a free one"
        raise InputError(problem, field="--port", fix=fix) from error


def given_token(file: Path | None) -> str | None:
    """The token in the file, else in the environment, if any. Raises InputError that hides it."""
    if file is not None:
        try:
            token, where = file.read_text("utf-8").strip("\r\n"), f"--token-file {file}"
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("cannot be read", file=file, field="--token-file") from error
    elif (token := os.environ.get(TOKEN)) is not None:
        where = TOKEN
    else:
        return None
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise InputError("holds no token", field=where, fix="printable ASCII without spaces")
    return token


def token_for_clients(host: str, file: Path | None = None) -> tuple[str, bool]:
    """The token that clients must send, and whether it was made just now.

    Raises InputError where other machines can reach the server and nobody chose a token.
    """
    token = given_token(file)
    if token is not None:
        return token, False
    if not is_loopback(host):
        problem = f"other machines can reach {host}, and no token is set"
        raise InputError(problem, field="--host", fix=f"set one with --token-file FILE or {TOKEN}")
    return secrets.token_urlsafe(24), True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. Raises InputError."""
    _, (address, *_) = resolved(host, 0)
    return ipaddress.ip_address(str(address).partition("%")[0]).is_loopback


@contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set."""
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
