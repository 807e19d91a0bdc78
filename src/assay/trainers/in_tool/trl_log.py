"""Runs TRL's own script, with a line in output/logging.jsonl for everything that it logs.

TRL keeps its log in memory until a checkpoint is written; the lines are there at once, so that the
run can be followed. Part of a folder that `assay export --to trl` wrote.
"""

import json
import runpy
import sys
import time
from pathlib import Path

from transformers import TrainerCallback, trainer

LOG = "logging.jsonl"


class Lines(TrainerCallback):
    """Writes the log of the first process."""

    def __init__(self):
        self.last = time.perf_counter()

    def on_log(self, args, state, control, logs=None, **others):
        """One entry; that of an update has the seconds since the one before."""
        now, entry = time.perf_counter(), {**logs, "step": state.global_step}
        if "loss" in logs:
            entry.setdefault("step_time", now - self.last)
        self.last = now
        if state.is_world_process_zero:
            file = Path(args.output_dir, LOG)
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    trainer.DEFAULT_CALLBACKS.append(Lines)
    script = f"trl.scripts.{sys.argv.pop(1)}"
    runpy.run_module(script, run_name="__main__", alter_sys=True)
