"""A lab to be killed: starts a worker call that never ends and prints what it started.

Its second argument "forked" makes it fork a bystander that keeps the worker's pipes open.
"""

import os
import sys
import threading
import time
from pathlib import Path

import psutil

from assay.sandbox.isolation import Mode
from assay.sandbox.pool import Worker


def main(isolation: Mode, bystander: bool) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    worker = Worker("tests.sandbox.faults:grandchild_pid_inside", isolation=isolation)
    threading.Thread(target=worker.call, args=({}, 1000.0), daemon=True).start()
    wanted = 3 if isolation == "limits-only" else 4  # the tool that made the namespaces comes first
    while len(found := psutil.Process().children(recursive=True)) < wanted:
        time.sleep(0.02)
    if bystander and os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    print(worker._scratch, *[process.pid for process in found], flush=True)
    time.sleep(1000)


main(sys.argv[1], "forked" in sys.argv)  # type: ignore[arg-type]
