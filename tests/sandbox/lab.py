"""A lab to be killed: starts a worker call that never ends and prints what it started.

Its second argument "forked" makes it fork a bystander that keeps the worker's pipes open; "asking"
makes the call one that waits for the lab.
"""

import os
import sys
import threading
import time
from pathlib import Path

import psutil

from assay.sandbox.isolation import Mode
from assay.sandbox.limits import CallLimits
from assay.sandbox.pool import Worker, WorkerPool

sys.path.insert(0, str(Path(__file__).parents[2]))


def start(isolation: Mode) -> Worker:
    worker = Worker("tests.sandbox.faults:grandchild_pid_inside", isolation=isolation)
    threading.Thread(target=worker.call, args=({}, 1000.0), daemon=True).start()
    return worker


def start_asking(isolation: Mode) -> Worker:
    pool = WorkerPool("tests.sandbox.asking:chain", 1, isolation=isolation, calls=CallLimits())
    asked = threading.Event()

    def host(name: str, arguments: object, number: int) -> dict[str, str]:
        asked.set()
        time.sleep(1000)
        return {}

    arguments = ({"names": ["a"]}, host, 1000.0)
    threading.Thread(target=pool.run, args=arguments, daemon=True).start()
    asked.wait()
    return pool._workers[0]


def main(isolation: Mode, bystander: bool, asking: bool) -> None:
    # The tool that made the namespaces comes first.
    wanted = (2 if asking else 3) + (isolation == "namespaces")
    worker = start_asking(isolation) if asking else start(isolation)
    while len(found := psutil.Process().children(recursive=True)) < wanted:
        time.sleep(0.02)
    if bystander and os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    print(worker._scratch, *[process.pid for process in found], flush=True)
    time.sleep(1000)


main(sys.argv[1], "forked" in sys.argv, "asking" in sys.argv)  # type: ignore[arg-type]
