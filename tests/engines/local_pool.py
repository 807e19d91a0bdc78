"""A pool of threads behind the seam of Ray's: what it is told is pickled there and back, and its
processes die when the test says so, before or after they have done their work."""

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.engines.ray_pool import Node, NodeNeeds

BEFORE, AFTER = "before", "after"
TWO = (Node("1", "one", 1.0), Node("2", "two", 1.0))


@dataclass(eq=False)
class Host:
    """A process that stays: one thread, dead or alive."""

    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    dead: bool = False


@dataclass
class LocalPool:
    """See `engines.ray_pool.RayPool`. `deaths` says of a call, by number, when its process dies."""

    deaths: Callable[[int], str] = lambda number: ""
    there: Sequence[Node] = TWO
    name: str = "--on"
    address: str = "local:1"
    done: list[Any] = field(default_factory=list)
    """What each call that was carried out was told, dead processes included."""
    calls: int = 0
    died: int = 0
    hosts: list[Host] = field(default_factory=list)
    idle: list[Host] = field(default_factory=list)
    dropped: list[Host] = field(default_factory=list)

    looked: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        room = max(1, sum(int(node.cpus) for node in self.there))
        self.slots = ThreadPoolExecutor(room)

    def nodes(self) -> list[Node]:
        """See `RayPool`."""
        return [*self.there]

    def submit(
        self, needs: NodeNeeds, function: Callable[..., Any], *arguments: Any
    ) -> Future[Any]:
        """See `RayPool`."""
        return self.slots.submit(self._work, Host(), self._sent(function, arguments))

    def host(self, needs: NodeNeeds) -> Host:
        """See `RayPool`."""
        if self.idle:
            return self.idle.pop()
        self.hosts.append(Host())
        return self.hosts[-1]

    def call(self, host: Host, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """See `RayPool`."""
        return host.thread.submit(self._work, host, self._sent(function, arguments))

    def rest(self, needs: NodeNeeds, host: Host) -> None:
        """See `RayPool`."""
        self.idle.append(host)

    def drop(self, host: Host) -> None:
        """See `RayPool`."""
        host.dead = True
        self.dropped.append(host)

    def ready(self, tickets: Sequence[Future[Any]], seconds: float) -> list[Future[Any]]:
        """See `RayPool`; the last one first, as no order is promised."""
        done = wait(tickets, seconds, FIRST_COMPLETED).done
        return [ticket for ticket in reversed(tickets) if ticket in done]

    def take(self, ticket: Future[Any]) -> Any:
        """See `RayPool`."""
        return pickle.loads(ticket.result())

    def on_node(self, node: Node, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """See `RayPool.on_node`."""
        return self.slots.submit(self._work, Host(), self._sent(function, arguments))

    def _sent(self, function: Callable[..., Any], arguments: Any) -> bytes:
        return pickle.dumps((function, arguments))

    def _work(self, host: Host, sent: bytes) -> bytes:
        self.calls += 1
        death = self.deaths(self.calls)
        if host.dead or death == BEFORE:
            self.died += not host.dead
            host.dead = True
            raise ChildProcessError("the node is gone")
        function, arguments = pickle.loads(sent)
        result = function(*arguments)
        self.done.append(arguments)
        if death == AFTER:
            self.died += 1
            host.dead = True
            raise ChildProcessError("the node is gone")
        return pickle.dumps(result)
