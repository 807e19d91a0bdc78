"""A lab with a run whose rewards are written by hand: nothing is sampled or trained."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.data.splits import Shuffled
from assay.lab.select import Selected, select_rows
from assay.runs.records import write_samples
from assay.runs.run_directory import RunDirectory, create_run, stored_status, write_status
from tests.sample_lines import sample_line
from tests.tiny_labs import write_rows

SPEC = """
name = "first"
model = "path:model"
task = "math"

[data.sums]
source = "path:sums.jsonl"
format = "messages"

[data.more]
source = "path:more.jsonl"
format = "messages"

[data.mix]
mix = { sums = 0.5, more = 0.5 }

[stage.rl]
method = "grpo"
data = "DATA"
steps = 4
prompts = 2
group = 4
reward = { accuracy = { kind = "accuracy", value = 100 } }

[evaluate.dev]
data = "sums"
reward = "accuracy"
role = "select"
checkpoints = ["base"]
"""
SUMS = [(a, b) for a in (1, 2) for b in (3, 4)]
ROWS = [f"{a}+{b}" for a, b in SUMS]
Rewards = Sequence[float | None]
Group = tuple[str, Rewards]
"""A row and the rewards of its completions, full at 100."""


def group(row: str, right: int, of: int = 4) -> Group:
    """A group with so many right answers."""
    return row, [100.0] * right + [0.0] * (of - right)


def measured_lab(root: Path, steps: Sequence[Sequence[Group]], data: str = "sums") -> RunDirectory:
    """A lab whose run `first` sampled these groups, step by step, in two epochs of four rows."""
    write_rows(root / "sums.jsonl", SUMS)
    write_rows(root / "more.jsonl", [(a + 5, b) for a, b in SUMS])
    run = create_run(root, "first", seed=1, spec=SPEC.replace("DATA", data))
    write_status(run.path, replace(stored_status(run.path), status="finished"))
    counts = {name: {"train": {"rows": 4}} for name in ("sums", "more")}
    counts["mix"] = {"train": {"rows": 8, "epoch_rows": 8}}
    run.manifest.write_text(json.dumps({"data": counts}))
    visits: dict[str, int] = {}
    for step, groups in enumerate(steps, 1):
        lines = []
        for row, rewards in groups:
            visit = visits.setdefault(row, 0)
            visits[row] += 1
            lines += [line(step, row, visit, k, reward) for k, reward in enumerate(rewards)]
        write_samples(run.samples("rl", step), lines)
    return run


def line(step: int, row: str, visit: int, sample: int, reward: float | None) -> dict[str, Any]:
    why = "" if reward is not None else "deadline"
    return sample_line(step, row, 4 * visit + sample, visit=visit, reward=reward, why=why)


def shuffled_steps(shares: Mapping[str, Sequence[int]], prompts: int = 2) -> list[list[Group]]:
    """The groups of a stage that visits the rows as an unsorted set is visited, with so many right
    answers of four for each row by epoch."""
    rows, epochs = list(shares), len(next(iter(shares.values())))
    order, groups = Shuffled(len(rows)), []
    for position in range(len(rows) * epochs):
        epoch, place = order.visit(1, position)
        groups.append(group(rows[place], shares[rows[place]][epoch]))
    return [groups[i : i + prompts] for i in range(0, len(groups), prompts)]


def select(root: Path, **options: Any) -> Selected:
    """`assay select first --to chosen`, by default on the stage."""
    return select_rows(root, "first", **{"to": "chosen", "stage": "rl", **options})
