"""A worker whose steps cost what its settings say; it may crash or hang at one of them."""

import sys
import time
from pathlib import Path

from benchmarks.worker import Record, open_channel

CHANNEL, SETTINGS = open_channel()


class Side:
    """Steps of agreed costs."""

    def __init__(self) -> None:
        self.step_number = 0

    def step(self) -> Record:
        """The next cost; logs that it was asked for."""
        number, self.step_number = self.step_number, self.step_number + 1
        with Path(SETTINGS["log"]).open("a") as log:
            log.write(f"{SETTINGS['name']} {number}\n")
        if SETTINGS.get("crash") == number:
            sys.exit("no more memory")
        if Path(SETTINGS.get("hang", "/nowhere")).exists():
            time.sleep(600)
        cost = SETTINGS["costs"][number]
        return {"cpu": cost, "wall": 2 * cost, "peak_bytes": 100 + number}


CHANNEL.send(versions={"stub": "1.0"})
CHANNEL.serve(Side())
