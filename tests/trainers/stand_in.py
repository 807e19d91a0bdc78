"""Stands in for the Python of TRL: replays what TRL wrote, a step at a time, and fails as told.

STAND_IN in the environment is JSON: at `step` it dies by the signal or the exit code `dies`, with
`writes` in its log before; or it `hangs`, and says so. Weights of its checkpoints are the start's,
moved by the step. It goes on from a checkpoint as TRL does.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

from safetensors.numpy import load_file, save_file

RECORDED = Path(__file__).with_name("recorded") / "trl-grpo"
OUTPUT, WEIGHTS, STATE = Path("output"), "model.safetensors", "trainer_state.json"


def main(arguments: list[str]) -> None:
    """`-c` asks for the version; anything else trains."""
    if arguments[0] == "-c":
        print("1.16.0")
        return
    Path("asked.json").write_text(json.dumps(arguments))
    orders, done = json.loads(os.environ.get("STAND_IN", "{}")), 0
    if "--resume_from_checkpoint" in arguments:
        folder = Path(arguments[arguments.index("--resume_from_checkpoint") + 1])
        assert (folder / WEIGHTS).is_file()
        done = json.loads((folder / STATE).read_text())["global_step"]
    for line in (RECORDED / "logging.jsonl").read_text().splitlines():
        step = json.loads(line)["step"]
        if step > done:
            if step == orders.get("step"):
                fail(orders)
            train(step, line)
    print("trained")


def train(step: int, line: str) -> None:
    """One step: its completions, its line, its checkpoint, whose state comes last."""
    table = f"completions/completions_{step:05d}.parquet"
    (OUTPUT / "completions").mkdir(parents=True, exist_ok=True)
    shutil.copy(RECORDED / table, OUTPUT / table)
    with (OUTPUT / "logging.jsonl").open("a") as log:
        log.write(line + "\n")
    folder = f"checkpoint-{step}"
    if (RECORDED / folder).is_dir() and not (OUTPUT / folder).exists():
        (OUTPUT / folder).mkdir()
        weights = load_file(Path("model", WEIGHTS))
        save_file({k: v + step for k, v in weights.items()}, OUTPUT / folder / WEIGHTS)
        shutil.copy(Path("model", "config.json"), OUTPUT / folder)
        shutil.copy(RECORDED / folder / STATE, OUTPUT / folder)


def fail(orders: dict) -> None:
    """Write what is asked for; then hang, or die."""
    with (OUTPUT / "logging.jsonl").open("a") as log:
        log.write(orders.get("writes", ""))
    while orders.get("hangs"):
        Path("hangs").touch()
        time.sleep(1)
    print("RuntimeError: out of cheese", flush=True)
    if orders["dies"] < 0:
        os.kill(os.getpid(), -orders["dies"])
    sys.exit(orders["dies"])


if __name__ == "__main__":
    main(sys.argv[1:])
