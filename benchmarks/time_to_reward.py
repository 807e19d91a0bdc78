"""CPU-seconds of training until held-out questions are answered well: Assay against TRL 1.16.

    python benchmarks/time_to_reward.py

Both sides start from the same checkpoint, which has just begun to call functions, and train GRPO
with the same rows in the same order, 4 prompts x 8 completions a step, temperature 1, the model's
own end token, the same optimizer and BFCL's checker as the reward (`reward_grpo.toml`). They take
turns step by step, in one thread each. After every few steps each side's weights answer the
held-out rows greedily; that is done by one program for both and not counted.

The samples differ, so the curves do; what is compared is the cost at which each first reaches a
level. One seed: the levels say something about two runs, not about the methods. Start and learning
rate are those at which Assay alone, in trials, learned something in so few steps.
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from cells import result_file, save_result, say
from environments import environment
from reward_task import RewardTask, reward_task, train_start
from workers import MachineFull, Worker, WorkerDied, machine

from assay.data.row import Row
from assay.lab.setup.merged_models import model_folder
from assay.models.precision import choose_precision
from assay.rollout.policies.language import LanguagePolicy

BENCHMARK, NAME = "time_to_reward", "smollm2-1t"
PEER = "trl-1.16"
EVERY = 3
"""Steps between two looks at the held-out rows."""
TRL_ROWS = 2
"""TRL's micro-batch: the one of least CPU-seconds in `grpo_vs_trl` at 256/32."""


Side = dict[str, list[Any]]
"""What a side's steps took, and its looks at the held-out rows."""


class JudgedWorker(Worker):
    """A worker that may ask for rewards before it answers."""

    def __init__(self, task: RewardTask, settings: Mapping[str, Any]):
        self.task = task
        self.rows = rows_of(task)
        super().__init__(environment(PEER), "trl_reward_worker.py", settings, 1)

    def answer(self) -> dict[str, Any]:
        """See `Worker.answer`."""
        found = super().answer()
        while "score" in found:
            rows = [self.rows[n] for n in found["rows"]]
            rewards = self.task.judge(rows, found["score"])
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps({"rewards": rewards}).encode() + b"\n")
            self.process.stdin.flush()
            found = super().answer()
        return found


def rows_of(task: RewardTask) -> list[Row]:
    """The rows of all steps and of one more: TRL's trainer answers only while it waits for one."""
    return task.rows_in_order((task.stage.steps or 0) + 1)


def trl_settings(task: RewardTask) -> dict[str, Any]:
    """What TRL's worker is started with."""
    stage = task.stage
    rows = rows_of(task)
    (end,) = task.session.base.end_tokens
    return {
        "model": str(model_folder(task.session.experiment.model, task.session.run.root)),
        "contexts": [list(task.prompt(row)) for row in rows],
        "end": end,
        "prompts": stage.prompts,
        "group": stage.group,
        "rows": TRL_ROWS,
        "max_tokens": stage.sampling.max_tokens,
        "learning_rate": stage.optimizer.lr,
        "clip_norm": stage.optimizer.clip_norm,
        "bf16": choose_precision().compute == torch.bfloat16,
        "threads": 1,
    }


def held_out_reward(task: RewardTask, weights: Path | None) -> float:
    """Mean reward of greedy answers by these weights, or by the start's."""
    loaded = task.session.shelf.load_base()
    if weights is not None:
        loaded.model.load_state_dict(torch.load(weights, weights_only=True))
    policy = LanguagePolicy(loaded.model, task.session.precision, loaded.end_tokens)
    return task.held_out_reward(policy)


def train_both(
    task: RewardTask, workers: Mapping[str, Worker], folder: Path, sides: dict[str, Side]
) -> None:
    """Steps in turn, with looks at the held-out rows in between; `sides` gets them as they come."""
    start = held_out_reward(task, None)
    say(f"held-out reward at the start {start:.3f}")
    sides |= {name: {"steps": [], "held_out": [[0.0, start]]} for name in workers}
    for number in range(1, (task.stage.steps or 0) + 1):
        for name, worker in workers.items():
            side = sides[name]
            side["steps"].append(worker.ask("step"))
            if number % EVERY == 0:
                worker.ask("save", file=str(folder / "weights.pt"))
                spent = sum(step["cpu"] for step in side["steps"])
                side["held_out"].append([spent, held_out_reward(task, folder / "weights.pt")])
        said = (f"{name} {side_words(side)}" for name, side in sides.items())
        say(f"  step {number}: " + "   ".join(said))


def up_to_the_last_look(sides: Mapping[str, Side]) -> dict[str, Side]:
    """What every side has, where one was cut off: whole looks and the steps before them."""
    looks = min(len(side["held_out"]) for side in sides.values())
    return {
        name: {"steps": side["steps"][: EVERY * (looks - 1)], "held_out": side["held_out"][:looks]}
        for name, side in sides.items()
    }


def side_words(side: Mapping[str, Sequence[Any]]) -> str:
    """The last step and the last look."""
    step, (spent, reward) = side["steps"][-1], side["held_out"][-1]
    words = f"{step['cpu']:.1f} CPU-s, reward {step['reward']:.3f}"
    return f"{words} (held out {reward:.3f} after {spent:.0f} CPU-s)"


def measure() -> dict[str, Any]:
    """The result, up to the last look where a worker died: an hour's work is not thrown away."""
    train_start()
    task = reward_task()
    before = machine()
    sides: dict[str, Side] = {}
    stopped = ""
    with ExitStack() as stack:
        ours = Worker(Path(sys.executable), "reward_worker.py", {"threads": 1}, 1)
        workers: dict[str, Worker] = {"assay": stack.enter_context(ours)}
        workers[PEER] = stack.enter_context(JudgedWorker(task, trl_settings(task)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            train_both(task, workers, folder, sides)
        except (WorkerDied, MachineFull) as reason:
            if not sides or len(next(iter(sides.values()))["steps"]) < EVERY:
                raise
            stopped = str(reason).splitlines()[0]
            say(f"stopped: {stopped}")
        versions = {name: worker.ready["versions"] for name, worker in workers.items()}
    return {
        "machine": before,
        "versions": versions,
        "held_out_rows": len(task.held_out),
        "sides": up_to_the_last_look(sides),
        "stopped": stopped,
    }


def main() -> None:
    """Measure, unless there is a result."""
    torch.set_num_threads(1)
    if not result_file(BENCHMARK, NAME).exists():
        save_result(BENCHMARK, NAME, measure())


if __name__ == "__main__":
    main()
