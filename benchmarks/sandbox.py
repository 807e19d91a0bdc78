"""How fast programs start in the sandbox and how many run in a second.

    python -m benchmarks.sandbox

A warm pool of two workers in namespaces. First one program at a time, which returns at once: the
median wall time of a run is what the sandbox costs. Then two at a time, each of which asks the lab
three questions, two of them at once: programs per second. Last, for the second kind of program, the
CPU time of the lab's own process per program. The result lies in `benchmarks/results/sandbox`.
"""

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from assay.labs.workflows.run_program import INSIDE
from assay.sandbox.limits import CallLimits, CallOutcome
from assay.sandbox.pool import WorkerPool
from benchmarks.results import machine, save_result
from benchmarks.worker import Record

STARTS, PROGRAMS, WORKERS = 200, 400, 2
WANTED = {"start_ms": 60.0, "programs_per_second": 20.0}

RETURNS = """
class Workflow:
    def __init__(self, name, llm_config, dataset):
        pass

    async def __call__(self, problem):
        return problem
"""
ASKS = """
import asyncio
import workspace.MATH.workflows.template.operator as operator
from scripts.async_llm import create_llm_instance

class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)

    async def __call__(self, problem):
        asked = [self.custom(input=problem, instruction=str(n)) for n in range(2)]
        first, second = await asyncio.gather(*asked)
        last = await self.custom(input=first["response"], instruction=second["response"])
        return last["response"], self.llm.get_usage_summary()["total_cost"]
"""
PARAMETERS = [
    {"name": name, "kind": "text", "required": True, "default": None}
    for name in ("input", "instruction")
]
OPERATORS = [{"name": "Custom", "attribute": "custom", "parameters": PARAMETERS}]


def host(name: str, arguments: Mapping[str, Any], number: int) -> dict[str, Any]:
    """An executor that takes no time."""
    return {"result": {"response": arguments["input"]}, "usage": {}}


def answered(pool: WorkerPool, program: str, host: Callable[..., Any] = host) -> CallOutcome:
    """A run of a program that has to give its problem back."""
    arguments = {"problem": "6 x 7", "entry_point": "", "operators": OPERATORS}
    found = pool.run({**arguments, "program": program}, host, 60.0)
    assert found.value == {"answer": "6 x 7"}, found
    return found


def warm(pool: WorkerPool) -> None:
    """Starts every worker: each waits in its first program until all are there."""
    all_there = threading.Barrier(WORKERS)

    def waits(name: str, arguments: Mapping[str, Any], number: int) -> dict[str, Any]:
        if number == 0:
            all_there.wait()
        return host(name, arguments, number)

    with ThreadPoolExecutor(WORKERS) as threads:
        list(threads.map(lambda _: answered(pool, ASKS, waits), range(WORKERS)))


def measured(pool: WorkerPool) -> Record:
    """Start times in milliseconds, programs per second, and what they cost the lab."""
    starts = []
    for _ in range(STARTS):
        begin = time.perf_counter()
        answered(pool, RETURNS)
        starts.append((time.perf_counter() - begin) * 1000)
    wall, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(WORKERS) as threads:
        list(threads.map(lambda _: answered(pool, ASKS), range(PROGRAMS)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "start_ms": statistics.median(starts),
        "start_ms_p95": statistics.quantiles(starts, n=20)[-1],
        "programs_per_second": PROGRAMS / wall,
        "lab_cpu_ms": cpu * 1000 / PROGRAMS,
    }


if __name__ == "__main__":
    with WorkerPool(INSIDE, WORKERS, isolation="namespaces", calls=CallLimits()) as pool:
        warm(pool)
        result = measured(pool)
    print({name: round(value, 2) for name, value in result.items()}, "wanted:", WANTED)
    print(save_result("sandbox", "programs", {"machine": machine(), **result}))
