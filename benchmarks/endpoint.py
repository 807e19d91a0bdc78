"""What the endpoint client and the cost ledger add to a server's own time.

    python -m benchmarks.endpoint

A server in a process of its own takes a fixed time for an answer, and so many requests at once, as
a model server takes a batch; the others wait. 200 calls of a helper model with a price, a budget
and a ledger on disk are made at once: from 200 threads, as programs make them, and as one batch.

Two times stand beside them. The ideal is the rounds of the server times its seconds: no machine
reaches it, because the server has to read and write as well. The bare time is that of a client that
does nothing else: it sends bytes that are made before over open connections, and reads to the end
of each answer; it is the server's own time on this machine. A third time is that of httpx's own
client, in one pool, which does nothing else either. Rounds of all alternate, and figures are
medians. Client and server share the cores with whatever
else runs; the load is in the result, which lies in `benchmarks/results/endpoint`.
"""

import asyncio
import gc
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import psutil

from assay.data.row import Message
from assay.experiment.helper_tables import HelperSpec
from assay.lab.setup.helper_models import HelperModels
from assay.models.precision import choose_precision
from assay.rl.policy import SampleKey, Sampling
from assay.runs.cost_ledger import CostLedger, read_calls
from assay.tasks.helper_model import Caller, HelperModel
from benchmarks.results import machine, save_result

CALLS, ROUNDS = 200, 5
QUESTION = "Solve the problem step by step, then give the answer. " * 40
ANSWER = "First we add the numbers. " * 40
DRAWN = Sampling(1.0, 512)
TARGET = 0.10


@dataclass(frozen=True)
class Service:
    """How the server works."""

    seconds: float
    at_once: int

    @property
    def ideal(self) -> float:
        """Seconds for all calls without a client."""
        return -(-CALLS // self.at_once) * self.seconds


SERVICES = (Service(0.05, 16), Service(0.05, 8), Service(0.5, 200), Service(2.0, 200))


def serve(service: Service, told: Connection) -> None:
    """The server's process; says its port, and ends with the client."""
    message = {"role": "assistant", "content": ANSWER}
    usage = {"prompt_tokens": 440, "completion_tokens": 240}
    body = json.dumps(
        {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    ).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    async def run() -> None:
        places = asyncio.Semaphore(service.at_once)

        async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = head.lower().partition(b"content-length:")[2].partition(b"\r")[0]
                    await reader.readexactly(int(length or 0))
                    async with places:
                        await asyncio.sleep(service.seconds)
                    writer.write(answer)
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()

        server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1024)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def served(service: Service) -> Iterator[tuple[int, psutil.Process]]:
    """The port of a server in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(service, there), daemon=True)
    process.start()
    try:
        yield here.recv(), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.join()


def helpers_at(url: str, folder: Path) -> HelperModels:
    """An executor whose calls are priced, bounded and recorded."""
    table = {
        "source": "openai:m",
        "endpoint": url,
        "price": {"prompt": 0.15, "completion": 0.6},
        "budget": {"call": 0.1, "problem": 1.0, "step": 100.0, "run": 1000.0},
        "concurrency": CALLS,
    }
    specs = {"executor": HelperSpec.model_validate(table)}
    helpers = HelperModels(specs, folder, choose_precision(), CostLedger())
    helpers.record_in(folder)
    return helpers


def question(number: int) -> tuple[Message, ...]:
    """A prompt of about 440 tokens."""
    return (Message("user", f"{number}. {QUESTION}"),)


class BareConnection(asyncio.Protocol):
    """Sends a request and finds the end of its answer, and nothing else."""

    def __init__(self) -> None:
        """Not yet connected."""
        self.answered: asyncio.Future[None] | None = None
        self.transport: Any = None
        self.missing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self.transport = transport

    async def ask(self, request: bytes) -> None:
        """Send a request and wait for the end of its answer."""
        self.answered = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        await self.answered

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol; the server writes a head in one piece."""
        if not self.missing:
            head, _, body = data.partition(b"\r\n\r\n")
            self.missing = int(head.rpartition(b":")[2]) - len(body)
        else:
            self.missing -= len(data)
        if not self.missing and self.answered is not None:
            self.answered.set_result(None)


class BareClient:
    """All calls at once over connections that stay open; their requests are made before."""

    def __init__(self, port: int) -> None:
        """Nothing is open yet."""
        self.port, self.runner = port, asyncio.Runner()
        self.connections: list[BareConnection] = []
        self.requests = [bare_request(number, port) for number in range(CALLS)]

    def __call__(self) -> None:
        """Ask all."""
        self.runner.run(self._all())

    async def _all(self) -> None:
        loop = asyncio.get_running_loop()
        while len(self.connections) < CALLS:
            _, connection = await loop.create_connection(BareConnection, "127.0.0.1", self.port)
            self.connections.append(connection)
        pairs = zip(self.connections, self.requests, strict=True)
        await asyncio.gather(*(connection.ask(request) for connection, request in pairs))


def bare_request(number: int, port: int) -> bytes:
    """A request as the client of endpoints sends it."""
    asked = {"model": "m", "temperature": 1.0, "max_tokens": 512, "top_p": 1.0, "seed": 1}
    messages = [{"role": "user", "content": question(number)[0].content}]
    body = json.dumps({**asked, "messages": messages}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: "
    return f"{head}{len(body)}\r\n\r\n".encode() + body


class HttpxClient:
    """All calls at once by httpx's own client, over one pool of connections that stay open."""

    def __init__(self, port: int) -> None:
        """Nothing is open yet."""
        self.runner = asyncio.Runner()
        self.url = f"http://127.0.0.1:{port}/v1/chat/completions"
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self.client = httpx.AsyncClient(timeout=None, limits=limits)
        self.bodies = [bare_request(n, port).partition(b"\r\n\r\n")[2] for n in range(CALLS)]

    def __call__(self) -> None:
        """Ask all."""
        self.runner.run(self._all())

    async def _all(self) -> None:
        posts = (self.client.post(self.url, content=body) for body in self.bodies)
        assert all(reply.status_code == 200 for reply in await asyncio.gather(*posts))


class FromThreads:
    """Each call from a thread of its own; the threads stay, as those of the lab's programs do."""

    def __init__(self, helper: HelperModel) -> None:
        """Threads begin with their first call."""
        self.helper, self.threads = helper, ThreadPoolExecutor(CALLS)

    def __call__(self) -> None:
        """Ask all."""
        list(self.threads.map(self._ask, range(CALLS)))

    def _ask(self, number: int) -> None:
        caller = Caller("rl", 1, f"p{number}", f"1/p{number}#0", "Custom")
        keys = [SampleKey(0, "r", number)]
        (said,) = self.helper.called_by(caller).answer([question(number)], DRAWN, keys)
        assert not said.failure, said.failure


def as_one_batch(helper: HelperModel) -> None:
    """All calls in one."""
    keys = [SampleKey(0, "r", number) for number in range(CALLS)]
    said = helper.answer([question(number) for number in range(CALLS)], DRAWN, keys)
    assert not any(each.failure for each in said)


@dataclass(frozen=True)
class Round:
    """Seconds of one round: on the clock, and of CPU in the client and in the server."""

    wall: float
    client: float
    server: float


def timed(work: Callable[[], None], server: psutil.Process) -> Round:
    """One round of all calls."""
    gc.collect()  # the garbage of another way is not this one's
    before, cpu, wall = sum(server.cpu_times()[:2]), time.process_time(), time.perf_counter()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Round(wall, cpu, sum(server.cpu_times()[:2]) - before)


def measure(service: Service) -> list[dict[str, Any]]:
    """Both ways to ask beside the bare client; the first rounds, which open connections, are
    apart."""
    with served(service) as (port, server), tempfile.TemporaryDirectory() as folder:
        helpers = helpers_at(f"http://127.0.0.1:{port}/v1", Path(folder))
        helper = helpers["executor"]
        ways: dict[str, Callable[[], None]] = {
            "bare": BareClient(port),
            "httpx": HttpxClient(port),
            "from_threads": FromThreads(helper),
            "as_one_batch": lambda: as_one_batch(helper),
        }
        rounds = [
            {name: timed(work, server) for name, work in ways.items()} for _ in range(ROUNDS + 1)
        ]
        helpers.release()
        assert len(read_calls(Path(folder))) == 2 * CALLS * (ROUNDS + 1)
    return [summary(service, rounds, name) for name in ("httpx", "from_threads", "as_one_batch")]


def summary(service: Service, rounds: list[dict[str, Round]], name: str) -> dict[str, Any]:
    """Medians of one way to ask, beside the ideal and the bare client."""
    steady = rounds[1:]

    def median(way: str, part: str) -> float:
        return statistics.median(getattr(each[way], part) for each in steady)

    wall, bare = median(name, "wall"), median("bare", "wall")
    return {
        **asdict(service),
        "ideal": service.ideal,
        "work": name,
        "wall": wall,
        "bare_wall": bare,
        "walls": [each[name].wall for each in steady],
        "bare_walls": [each["bare"].wall for each in steady],
        "first_wall": rounds[0][name].wall,
        "over_ideal": wall / service.ideal - 1,
        "over_bare": wall / bare - 1,
        "bare_over_ideal": bare / service.ideal - 1,
        "cpu_ms_per_call": 1000 * median(name, "client") / CALLS,
        "bare_cpu_ms_per_call": 1000 * median("bare", "client") / CALLS,
        "server_cpu_ms_per_call": 1000 * median(name, "server") / CALLS,
        "meets_target": wall / bare - 1 < TARGET,
    }


def main() -> None:
    """Measure and save."""
    load = [os.getloadavg()[0]]
    found = [each for service in SERVICES for each in measure(service)]
    load.append(os.getloadavg()[0])
    for each in found:
        print(
            f"{each['seconds']:.2f} s, {each['at_once']:>3} at once, {each['work']:<12}: "
            f"{each['wall']:.3f} s, bare {each['bare_wall']:.3f} s, ideal {each['ideal']:.2f} s: "
            f"{each['over_bare']:+.1%} over bare, {each['over_ideal']:+.1%} over the ideal; CPU "
            f"{each['cpu_ms_per_call']:.2f} ms a call, bare {each['bare_cpu_ms_per_call']:.2f}, "
            f"server {each['server_cpu_ms_per_call']:.2f}"
        )
    result = {"machine": machine(), "calls": CALLS, "load": load, "found": found}
    print(f"load average {load[0]:.1f} to {load[1]:.1f}")
    print(save_result("endpoint", "overhead", result))


if __name__ == "__main__":
    threading.stack_size(1 << 19)
    main()
