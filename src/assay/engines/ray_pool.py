"""Ray as a pool of processes on one machine or on several: the one module that imports it.

`connect` starts a cluster on this machine, bound to loopback and closed to others by a token, or
joins one that runs, and looks whether every node can do the work: the same Assay, the same lab
folder, locks that reach there. Where a process or its node dies, the caller, who knows what may be
repeated, decides what happens then.
"""

import atexit
import os
import platform
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from assay.data.files import lock, sha256_file
from assay.engines.environments import remove_abandoned
from assay.errors import InputError, RunFailure

RAY = "ray"
"""The address that stands for a cluster on this machine, started for the command."""
CLIENT = "ray://"
FORMS = "write ray for this machine, ray://HOST:10001, or HOST:6379 on a node of the cluster"
CONNECT_SECONDS, JOIN_SECONDS, LOOK_SECONDS = 5.0, 30.0, 120.0
"""For the port to open, for Ray to answer there, and for every node to be looked at."""
STORE_BYTES = 128 << 20
"""Of the object store of a cluster on this machine; what goes through it is small."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_METRICS_COLLECTION": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}
"""Nothing is reported to anybody, and nothing written but Assay's own lines."""
SILENT = {"log_to_driver": False, "logging_level": "ERROR"}


@dataclass(frozen=True, slots=True)
class NodeNeeds:
    """What a process takes of its node."""

    cpus: float
    gpus: float = 0.0

    def fit(self, node: "Node") -> int:
        """How many such processes a node holds at once."""
        counts = [int(node.cpus / self.cpus)] if self.cpus else []
        counts += [int(node.gpus / self.gpus + 1e-9)] if self.gpus else []
        return min(counts)

    def __str__(self) -> str:
        gpus = f" and {self.gpus:g} GPUs" if self.gpus else ""
        return f"{self.cpus:g} CPUs{gpus}"


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster, or a part of one."""

    id: str
    host: str
    cpus: float
    gpus: float = 0.0


PATIENCE = 300.0
"""Seconds for which room that was there is waited for: a node that left may come back."""
MOST_LOST = 5
"""Processes that one piece of work may lose: it may be what kills them."""
AHEAD = 2
"""Calls that a process has at once, the one that waits included."""
LOOK_AGAIN = 1.0
Call = tuple[Callable[..., Any], tuple[Any, ...]]


def as_they_come(pool: "RayPool", needs: NodeNeeds, calls: Sequence[Call]) -> Generator[Any]:
    """The results of calls in processes that stay, each as soon as it is there.

    What a process was at when it died is called again in another, so that calls must change nothing
    anywhere. Raises InputError where no node has room for a process, RunFailure where none is left
    that has, or where a call loses too many, and what a call raises.
    """
    room, patience = room_of(pool, needs), Patience(pool)
    waiting = deque(enumerate(calls))
    lost: Counter[int | None] = Counter()
    tickets: dict[Any, tuple[Any, int | None]] = {}
    ready: set[Any] = set()

    def begin() -> None:
        host = pool.host(needs)
        tickets[pool.call(host, socket.gethostname)] = host, None

    def give(host: Any) -> None:
        # One call waits behind the one at work, so that no process idles while its result travels.
        while waiting and sum(busy is host for busy, _ in tickets.values()) < AHEAD:
            number, (function, arguments) = waiting.popleft()
            tickets[pool.call(host, function, *arguments)] = host, number

    for _ in range(min(room, len(calls))):
        begin()
    try:
        while tickets or waiting:
            if not ready:
                patience.look(needs)
            come = pool.ready([*tickets], LOOK_AGAIN)
            for ticket in [each for each in tickets if each in come]:  # as they were given
                host, number = tickets.pop(ticket)
                try:
                    result = pool.take(ticket)
                except ChildProcessError as error:
                    if number is not None:
                        waiting.appendleft((number, calls[number]))
                    if host in ready or number is None:  # what waited behind it is not to blame
                        ready.discard(host)
                        lost[number] += 1
                        if lost[number] == MOST_LOST:
                            raise RunFailure(f"{MOST_LOST} processes died at it: {error}") from None
                        begin()
                    continue
                ready.add(host)
                give(host)
                if number is not None:
                    yield result
            for host in ready:
                give(host)
    finally:
        busy = {id(host): host for host, _ in tickets.values()}
        for host in busy.values():
            pool.drop(host)
        for host in ready:
            if id(host) not in busy:
                pool.rest(needs, host)


def room_of(pool: "RayPool", needs: NodeNeeds) -> int:
    """How many processes the cluster holds at once. Raises InputError where that is none."""
    room = sum(needs.fit(node) for node in pool.nodes())
    if not room:
        raise InputError(no_room(needs))
    return room


def no_room(needs: NodeNeeds) -> str:
    """What is wrong where no process finds a node."""
    return f"no node of the cluster has {needs}, which one process takes"


@dataclass(frozen=True)
class Patience:
    """Waits for room that was there."""

    pool: "RayPool"
    since: dict[NodeNeeds, float] = field(default_factory=dict)
    """When there was found to be none."""

    def look(self, needs: NodeNeeds) -> bool:
        """Whether the last room has gone since the look before. Raises RunFailure where there was
        none for longer than PATIENCE."""
        if any(needs.fit(node) for node in self.pool.nodes()):
            self.since.pop(needs, None)
            return False
        now, first = time.monotonic(), needs not in self.since
        if now - self.since.setdefault(needs, now) >= PATIENCE:
            raise RunFailure(f"{no_room(needs)}, and none came in {PATIENCE:g} s")
        return first


def need_ray(address: str, name: str) -> None:
    """Check an address before anything is started. Raises InputError, about the option or key
    `name`, without Ray, for what is no address, and where nothing listens at it."""
    place = host_and_port(address, name)
    if find_spec("ray") is None:
        raise InputError("Ray is not installed", field=name, fix="pip install 'assay-lab[ray]'")
    if place is None:
        return
    if address.startswith(CLIENT) and find_spec("grpc") is None:
        fix = "pip install 'assay-lab[ray]'"
        raise InputError("Ray's client needs grpcio, which is not installed", field=name, fix=fix)
    try:
        socket.create_connection(place, CONNECT_SECONDS).close()
    except OSError as error:
        why = error.strerror or "it does not answer"
        problem = f"no Ray cluster at {address}: {why}"
        raise InputError(problem, field=name, fix="ray start --head, on its first node") from error


def host_and_port(address: str, name: str) -> tuple[str, int] | None:
    """The host and the port of an address; None for `ray`. Raises InputError."""
    if address == RAY:
        return None
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(f"{address!r} is no address of a cluster", field=name, fix=FORMS)
    return host.strip("[]"), int(port)


@dataclass(frozen=True)
class RayPool:
    """Processes that do work elsewhere. Every function and argument is pickled."""

    address: str
    name: str
    """The option or key that asked for it, for messages."""
    folder: Path | None = None
    """Ray's own files, of a cluster that ends with this process."""
    idle: dict[NodeNeeds, list[Any]] = field(default_factory=dict)
    """Processes that stayed: each has imported what it needs."""
    looked: set[Path] = field(default_factory=set)
    """The labs that every node was found to see."""

    @cached_property
    def ray(self) -> Any:
        """The package."""
        import ray  # type: ignore[import-not-found]

        # Else the last words of a node that dies are printed over the lines of progress.
        ray._private.worker._worker_logs_enabled = False
        return ray

    def nodes(self) -> list[Node]:
        """The living nodes."""
        nodes = []
        for each in self.ray.nodes():
            if each["Alive"]:
                has = each["Resources"]
                host = each.get("NodeManagerHostname") or each["NodeManagerAddress"]
                nodes.append(Node(each["NodeID"], host, has.get("CPU", 0.0), has.get("GPU", 0.0)))
        return nodes

    def submit(self, needs: NodeNeeds, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function once, in some process; returns the ticket of its result."""
        task = self.ray.remote(_called).options(**_taken(needs), max_retries=0)
        return task.remote(function, *arguments)

    def host(self, needs: NodeNeeds) -> Any:
        """A process that stays, for `call`; it begins when a node has room."""
        if resting := self.idle.get(needs):
            return resting.pop()
        return self.ray.remote(_Host).options(**_taken(needs), max_restarts=0).remote()

    def call(self, host: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a process that stays; one at a time, in order. Returns a ticket."""
        return host.call.remote(function, *arguments)

    def rest(self, needs: NodeNeeds, host: Any) -> None:
        """Give back a process that has nothing to do, for the next `host`."""
        self.idle.setdefault(needs, []).append(host)

    def drop(self, host: Any) -> None:
        """End a process that stays, whatever it is at."""
        self.ray.kill(host)

    def ready(self, tickets: Sequence[Any], seconds: float) -> list[Any]:
        """The tickets whose results are there, at least one unless `seconds` pass first."""
        done, _ = self.ray.wait([*tickets], num_returns=1, timeout=seconds)
        if done and len(tickets) > 1:
            done, _ = self.ray.wait([*tickets], num_returns=len(tickets), timeout=0)
        return done

    def take(self, ticket: Any) -> Any:
        """The result, once it is there. Raises ChildProcessError where the process or its node
        died, what the function raised, and RunFailure for what is none of its errors."""
        errors = self.ray.exceptions
        try:
            return self.ray.get(ticket)
        except errors.RayTaskError as error:
            raise error.cause or RunFailure(_first_line(error)) from None
        except (
            *(errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError),
            *(errors.RayActorError, errors.ObjectLostError, errors.LocalRayletDiedError),
            errors.TaskUnschedulableError,
        ) as error:
            raise ChildProcessError(_first_line(error).partition(". ")[0]) from None
        except errors.RayError as error:
            raise RunFailure(f"Ray at {self.address}: {_first_line(error)}") from error

    def on_node(self, node: Node, function: Callable[..., Any], *arguments: Any) -> Any:
        """The ticket of a function that is called on one node."""
        from ray.util import scheduling_strategies  # type: ignore[import-not-found]

        there = scheduling_strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)
        options = {"num_cpus": 0, "scheduling_strategy": there, "max_retries": 0}
        return self.ray.remote(_called).options(**options).remote(function, *arguments)

    def close(self) -> None:
        """Leave the cluster; one that was started for this process ends."""
        _OPEN.pop(self.address, None)
        self.ray.shutdown()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


class _Host:
    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


def _taken(needs: NodeNeeds) -> dict[str, Any]:
    return {"num_cpus": needs.cpus, "num_gpus": needs.gpus}


_OPEN: dict[str, RayPool] = {}
_OPENING = threading.Lock()


def connect(address: str, name: str) -> RayPool:
    """The pool at an address, joined once for this process.

    Raises InputError, about the option or key `name`: no Ray, no cluster, other versions.
    """
    with _OPENING:
        if address in _OPEN:
            return _OPEN[address]
        need_ray(address, name)
        if _OPEN:
            raise InputError(f"this process is in the cluster {next(iter(_OPEN))}", field=name)
        pool = _started(name) if address == RAY else _joined(address, name)
        _OPEN[address] = pool
        atexit.register(pool.close)
        return pool


def leave() -> None:
    """Leave the cluster that this process is in, if any: nothing is held there meanwhile."""
    for pool in [*_OPEN.values()]:
        pool.close()


def _started(name: str) -> RayPool:
    """A cluster on this machine."""
    # Ray binds to loopback where it thinks that no cluster of several machines is possible.
    os.environ.update({**QUIET, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"})
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    folder = own_folder(name)
    pool = RayPool(RAY, name, folder)
    with tempfile.TemporaryFile() as words, errors_to(words.fileno()):
        # Without an address Ray joins whatever cluster of this user runs on the machine.
        options = {"address": "local", "include_dashboard": False, **SILENT}
        pool.ray.init(object_store_memory=STORE_BYTES, _temp_dir=str(folder), **options)
    return pool


PREFIX = "assay-ray-"
SOCKET = "/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store"
"""Ray's longest path of a socket in its folder; the kernel takes MOST_BYTES."""
MOST_BYTES = 107


def own_folder(name: str) -> Path:
    """A folder for a cluster on this machine, whose sockets' paths are short enough; in /tmp where
    TMPDIR is too long. What killed processes left there is removed. Raises InputError where that
    cannot be written."""
    for place in (tempfile.gettempdir(), "/tmp"):
        prefix = f"{PREFIX}{os.getpid()}-"
        longest = os.fsencode(f"{place}/{prefix}00000000{SOCKET}")
        if len(longest) <= MOST_BYTES and os.access(place, os.W_OK):
            remove_abandoned(Path(place), PREFIX)
            return Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    problem = (
        f"Ray's sockets take at most {MOST_BYTES} bytes of path, {len(SOCKET)} of them its own"
    )
    raise InputError(problem, field=name, fix="set TMPDIR to a shorter folder, such as /tmp")


@contextmanager
def errors_to(descriptor: int) -> Iterator[None]:
    """Inside, what this process writes to standard error goes to a file: Ray's own part writes
    there before its level of logging holds."""
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _joined(address: str, name: str) -> RayPool:
    """The cluster that runs at an address. Raises InputError."""
    for key, value in QUIET.items():
        os.environ.setdefault(key, value)
    pool = RayPool(address, name)
    failed: list[BaseException] = []

    def init() -> None:
        try:
            pool.ray.init(address=address, **SILENT)
        except BaseException as error:
            failed.append(error)

    # Ray waits for minutes for a port behind which something else is, and says each second that a
    # head refuses its token.
    joining, until = threading.Thread(target=init, daemon=True), time.monotonic() + JOIN_SECONDS
    with tempfile.TemporaryFile() as words, errors_to(words.fileno()):
        joining.start()
        refused = False
        while joining.is_alive() and not refused and time.monotonic() < until:
            joining.join(0.2)
            refused = b"InvalidAuthToken" in os.pread(words.fileno(), 1 << 16, 0)
    if refused:
        fix = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the one of its head"
        raise InputError(f"{address} wants another token", field=name, fix=fix)
    if joining.is_alive():
        problem = f"{address} does not answer as a Ray cluster in {JOIN_SECONDS:g} s"
        raise InputError(problem, field=name, fix=FORMS)
    if failed:
        raise _refusal(address, name, failed[0])
    return pool


def _refusal(address: str, name: str, error: BaseException) -> InputError:
    """Why Ray did not join, in one line."""
    text = " ".join(str(error).split())
    if "ersion mismatch" in text or "version" in text.lower():
        own = f"Ray {version('ray')} and Python {platform.python_version()}"
        problem, fix = f"{address} runs other versions than {own}: {text}", "install the same"
        return InputError(problem, field=name, fix=fix)
    fix = FORMS if address.startswith(CLIENT) else "from outside it: ray://HOST:10001"
    return InputError(f"cannot join {address}: {text or type(error).__name__}", field=name, fix=fix)


def look(root: Path, token: str, secret: str, assay: str, files: Mapping[Path, str]) -> str:
    """Why the node that calls this cannot work in the lab, where another process holds the file
    `token`; "" where it can. `files` are further ones with the sha256 that they have there."""
    if (own := version("assay-lab")) != assay:
        return f"has Assay {own}, and this is {assay}"
    if not (root / token).is_file():
        return f"does not see the lab folder {root}"
    if (root / token).read_text(encoding="utf-8") != secret:
        return f"has another folder at {root}"
    try:
        os.close(lock(root / token, wait=False))
        return f"does not see locks on {root}: two processes could take one run"
    except BlockingIOError:
        other = [file for file, sha256 in files.items() if _sha256(file) != sha256]
        return f"does not have the same {other[0]}" if other else ""


def _sha256(file: Path) -> str:
    return sha256_file(file) if file.is_file() else ""


def look_at_nodes(pool: RayPool, root: Path, files: Sequence[Path] = ()) -> None:
    """Raise InputError for the first node that cannot work in the lab at `root`: without Assay,
    without the folder, its locks, or the same further `files`."""
    root.mkdir(parents=True, exist_ok=True)
    token, secret = f".ray-{secrets.token_hex(8)}", secrets.token_hex(16)
    (root / token).write_text(secret, encoding="utf-8")
    seen = root, token, secret, version("assay-lab"), {file: _sha256(file) for file in files}
    handle = lock(root / token)
    try:
        tickets = {pool.on_node(node, look, *seen): node for node in pool.nodes()}
        for ticket, node in tickets.items():
            if not pool.ready([ticket], LOOK_SECONDS):
                raise InputError(f"node {node.host} does not answer", field=pool.name)
            try:
                problem = pool.take(ticket)
            except Exception as error:  # such as a node that cannot import Assay at all
                problem = f"cannot work: {_first_line(error)}"
            if problem and node.id in {each.id for each in pool.nodes()}:  # else it has left
                fix = "every node needs this Assay, the lab at the same path and its locks"
                raise InputError(f"node {node.host} {problem}", field=pool.name, fix=fix)
    finally:
        os.close(handle)
        (root / token).unlink()


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
