"""GRPO steps of SmolLM2-135M: two ranks of one thread beside one process of two, in turn.

    python -m benchmarks.ranks            in fp32 and, where the processor has it, in bf16

Each side is a process that stays; a step is sampling, rewards, scores and the update, on prompts of
its own. Both sides take the same prompts, and at the end their weights are compared. CPU-seconds
count all processes of a side. Takes about four minutes on two cores; needs 8 GB.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.results import machine, medians, result_file, save_result
from benchmarks.shapes import CLIP_NORM, GRPO_RATE, GrpoCell, prompt_of, reward_of
from benchmarks.worker import Record, open_channel, versions

CELL = {"model": "smollm2", "prompt": 256, "completion": 32, "prompts": 4, "group": 8}
ROUNDS = 3
SIDES = {"one process, 2 threads": 1, "2 ranks, 1 thread each": 2}
"""Ranks by the name of a side."""


def main() -> None:
    """Measure what has no result yet."""
    from assay.models.precision import bf16_hardware

    for dtype in ("fp32", *(["bf16"] if bf16_hardware("cpu") else [])):
        file = result_file("ranks", dtype)
        if not file.exists():
            file = save_result("ranks", dtype, measured({**CELL, "dtype": dtype}))
        print(file)
        print(json.dumps(json.loads(file.read_text())["medians"], indent=1))


def measured(cell: Record, rounds: int = ROUNDS) -> Record:
    """Steps of both sides, in turn, after one of each that is not counted."""
    found: dict[str, list[Record]] = {side: [] for side in SIDES}
    result: Record = {"cell": cell, "machine": machine()}
    with side_of(cell, 1) as one, side_of(cell, 2) as two:
        for step in range(rounds + 1):
            for name, side in zip(SIDES, (one, two), strict=True):
                said = ask(side, do="step", step=step)
                if step:
                    found[name].append(said)
        sums = [ask(side, do="weights") for side in (one, two)]
    off = abs(sums[0]["moved"] - sums[1]["moved"]) / sums[0]["moved"]
    if off > 0.05:
        raise SystemExit(f"the sides do not train the same: their weights moved {sums}")
    shown = {name: medians(steps) for name, steps in found.items()}
    return {**result, "steps": found, "medians": shown, "versions": {"assay": sums[0]["versions"]}}


@contextmanager
def side_of(cell: Record, ranks: int) -> "Iterator[subprocess.Popen[str]]":
    """A side's process, which ends with the block."""
    settings = json.dumps({"cell": cell, "ranks": ranks})
    command = [sys.executable, "-m", "benchmarks.ranks", settings]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **streams) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def ask(side: "subprocess.Popen[str]", **command: Any) -> Record:
    """The answer of a side. Raises SystemExit where it has ended."""
    assert side.stdin is not None and side.stdout is not None
    side.stdin.write(json.dumps(command) + "\n")
    side.stdin.flush()
    line = side.stdout.readline()
    if not line:
        raise SystemExit("a side ended; see above")
    return json.loads(line)


class Trained:
    """What each rank trains, the same everywhere."""

    def __init__(self, cell: Record):
        """All weights of the cell's model."""
        from assay.models.adapt import train_all
        from assay.models.load import load_model
        from assay.models.precision import choose_precision
        from assay.rollout.policies.language import LanguagePolicy
        from assay.train.update import make_optimizer
        from benchmarks.models import model_folder

        self.cell = GrpoCell(**cell)
        precision = choose_precision(self.cell.dtype, "cpu")  # type: ignore[arg-type]
        loaded = load_model(Path(model_folder(self.cell.model)), precision)
        module, _ = train_all(loaded.model)
        self.vocabulary: int = loaded.model.config.vocab_size
        self.policy = LanguagePolicy(module.train(), precision, frozenset())
        self.optimizer = make_optimizer(module.parameters(), lr=GRPO_RATE)


class Side(Trained):
    """Rank 0, or the only process, as the driver asks it."""

    def __init__(self, cell: Record):
        """Nothing is trained yet."""
        super().__init__(cell)
        self.first = {n: p.detach().clone() for n, p in self.policy.module.named_parameters()}
        self.trains: Any = self.policy

    def step(self, step: int) -> Record:
        """One whole step; its seconds and the tokens that were sampled."""
        from assay.data.episode import Episode, Reward
        from assay.experiment.stage_tables import GrpoStage
        from assay.rl.objectives import GrpoObjective
        from assay.rl.policy import SampleKey, Sampling
        from assay.train.grpo import Grpo
        from assay.train.pair_choice import GroupChoice
        from assay.train.update import update

        cell, started, cpu = self.cell, time.perf_counter(), self.cpu()
        rows = [n for n in range(cell.prompts) for _ in range(cell.group)]
        prompts = [tuple(prompt_of(cell, self.vocabulary, step, n)) for n in range(cell.prompts)]
        keys = [SampleKey(0, f"{step}/{row}", place) for place, row in enumerate(rows)]
        sampling = Sampling(1.0, cell.completion)
        turns = self.trains.sample([prompts[row] for row in rows], keys, sampling)
        sampled = time.perf_counter()
        groups = [
            [
                Episode(f"{row}#{n}", str(row), (turn,), Reward(reward_of(turn.actions)))
                for n, (place, turn) in enumerate(zip(rows, turns, strict=True))
                if place == row
            ]
            for row in range(cell.prompts)
        ]
        stage = GrpoStage.model_validate(
            {
                "method": "grpo",
                "data": "d",
                "steps": 1,
                "prompts": 1,
                "reward": "r",
                "algorithm": "verl_grpo",
                "drop_without_signal": True,
            }
        )
        method = Grpo(None, stage, GrpoObjective(several_updates=True), str)  # type: ignore[arg-type]
        updates, _, _ = method.updates(self.trains, groups, GroupChoice(tuple(range(cell.prompts))))
        settings = {"micro_tokens": stage.micro_tokens, "clip_norm": CLIP_NORM}
        for packed in updates:
            update(self.trains, packed, method.objective, self.optimizer, **settings)
        wall = time.perf_counter() - started
        generation = sampled - started
        tokens = sum(len(turn.actions) for turn in turns)
        return {
            "cpu": self.cpu() - cpu,
            "wall": wall,
            "generation_wall": generation,
            "update_wall": wall - generation,
            "tokens": tokens,
        }

    def cpu(self) -> float:
        """Seconds of this process and of the ranks that it started."""
        here = psutil.Process()
        times = [each.cpu_times() for each in (here, *here.children(recursive=True))]
        return sum(each.user + each.system for each in times)

    def weights(self) -> Record:
        """How far the weights moved."""
        named = self.policy.module.named_parameters()
        moved = sum(float((p.detach() - self.first[n]).double().square().sum()) for n, p in named)
        return {"moved": moved**0.5, "versions": versions("assay-lab", "transformers", "torch")}


def serve_side() -> None:
    """Answer the driver until it closes."""
    channel, settings = open_channel()
    import torch

    from assay.engines.ranks import team
    from assay.train.ranks import Member, RankedPolicy

    torch.set_num_threads(2)
    if settings["ranks"] == 1:
        channel.serve(Side(settings["cell"]))
        return
    follower = [sys.executable, "-m", "benchmarks.ranks", "follow", json.dumps(settings["cell"])]
    with team(settings["ranks"], follower, 600) as others:
        side = Side(settings["cell"])
        side.trains = RankedPolicy(side.policy, Member(side.policy, side.optimizer, others), others)
        channel.serve(side)
        side.trains.end()


def follow(cell: str) -> None:
    """Be the other rank."""
    from assay.engines.ranks import followed
    from assay.train.ranks import Member, serve

    others = followed()
    trained = Trained(json.loads(cell))
    serve(Member(trained.policy, trained.optimizer, others))


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case ["follow", cell]:
            follow(cell)
        case _:
            serve_side()
