"""What the endpoint client and the cost ledger add to a server's own time.

    python -m benchmarks.endpoint

A server in a process of its own takes a fixed time for an answer, and so many requests at once, as
a model server takes a batch; the others wait. 200 calls of a helper model with a price, a budget
and a ledger on disk are made at once: from 200 threads, as programs make them, and as one batch.
The ideal is the server's own time: its rounds times its seconds. Client and server share the
machine's cores. The result lies in `benchmarks/results/endpoint`.
"""

import asyncio
import json
import multiprocessing
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

from assay.data.row import Message
from assay.experiment.helper_tables import HelperSpec
from assay.lab.setup.helper_models import HelperModels
from assay.models.precision import choose_precision
from assay.rl.policy import SampleKey, Sampling
from assay.runs.cost_ledger import CostLedger, read_calls
from assay.tasks.helper_model import Caller, HelperModel, bound
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
def served(service: Service) -> Iterator[str]:
    """The URL of a server in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(service, there), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}/v1"
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


def from_threads(helper: HelperModel) -> None:
    """Each call from its own thread."""

    def ask(number: int) -> None:
        caller = Caller("rl", 1, f"p{number}", f"1/p{number}#0", "Custom")
        (said,) = bound(helper, caller).answer(
            [question(number)], DRAWN, [SampleKey(0, "r", number)]
        )
        assert not said.failure, said.failure

    with ThreadPoolExecutor(CALLS) as threads:
        list(threads.map(ask, range(CALLS)))


def as_one_batch(helper: HelperModel) -> None:
    """All calls in one."""
    keys = [SampleKey(0, "r", number) for number in range(CALLS)]
    said = helper.answer([question(number) for number in range(CALLS)], DRAWN, keys)
    assert not any(each.failure for each in said)


def measure(service: Service, work: Callable[[HelperModel], None]) -> dict[str, Any]:
    """Wall and CPU seconds of each round; the first, which opens the connections, is apart."""
    with served(service) as url, tempfile.TemporaryDirectory() as folder:
        helpers = helpers_at(url, Path(folder))
        walls, cpus = [], []
        for _ in range(ROUNDS + 1):
            wall, cpu = time.perf_counter(), time.process_time()
            work(helpers["executor"])
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
        helpers.release()
        assert len(read_calls(Path(folder))) == CALLS * (ROUNDS + 1)
    wall = statistics.median(walls[1:])
    return {
        **asdict(service),
        "ideal": service.ideal,
        "work": work.__name__,
        "wall": wall,
        "first_wall": walls[0],
        "walls": walls[1:],
        "overhead": wall / service.ideal - 1,
        "cpu_ms_per_call": 1000 * statistics.median(cpus[1:]) / CALLS,
        "meets_target": wall / service.ideal - 1 < TARGET,
    }


def main() -> None:
    """Measure and save."""
    found = [
        measure(service, work) for service in SERVICES for work in (from_threads, as_one_batch)
    ]
    for each in found:
        print(
            f"{each['seconds']:.2f} s, {each['at_once']:>3} at once, {each['work']:<12}: "
            f"{each['wall']:.3f} s for {each['ideal']:.2f} s, {each['overhead']:+.1%}, "
            f"{each['cpu_ms_per_call']:.2f} ms CPU a call"
        )
    print(
        save_result("endpoint", "overhead", {"machine": machine(), "calls": CALLS, "found": found})
    )


if __name__ == "__main__":
    threading.stack_size(1 << 19)
    main()
