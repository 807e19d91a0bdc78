"""A run of the synthetic lab with guards, milestones and a budget, cut off at any step."""

import json
from dataclasses import replace
from pathlib import Path

from assay.runs.run_directory import RunDirectory, stored_status, write_status
from assay.runs.run_files import write_listed
from tests.pages.synthetic import Shape, demo_run

TABLES = """
[guard.cut]
metric = "truncated_share"
above = 0.5
steps = 3

[guard.typo]
metric = "trunkated"
below = 0.5

[milestone.early]
stage = "rl"
step = 5
metric = "truncated_share"
below = 0.5
about = "answers end by themselves"

[milestone.hopeful]
stage = "rl"
step = 5
metric = "reward_mean"
above = 0.99

[milestone.fine]
stage = "rl"
step = 10
metric = "signal_share"
above = 0.75

[milestone.late]
stage = "rl"
step = 20
metric = "reward_mean"
above = 0.3

[milestone.done]
stage = "rl"
step = 24
"""
HEAD = "report_every = 5\nbudget = { seconds = 5000, cost = 1.0 }\n"


def watched_run(root: Path, steps: int = 24, name: str = "demo") -> RunDirectory:
    """A run that planned 40 steps of `rl` and has recorded `steps`; still `running` on paper."""
    run = demo_run(root, Shape(items=40, steps=steps, groups=4), name)
    write_listed(run.path, run.spec, HEAD + run.spec.read_text(encoding="utf-8") + TABLES)
    status = replace(stored_status(run.path), stage="rl", step=steps)
    write_status(run.path, status)
    change_metrics(run, groups=4)
    return run


def change_metrics(run: RunDirectory, **values: object) -> None:
    """Give every step of `rl` further metrics; functions are of the step."""
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    for line in lines:
        if line["stage"] == "rl":
            line |= {k: v(line["step"]) if callable(v) else v for k, v in values.items()}
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
