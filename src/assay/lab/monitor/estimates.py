"""What one step of a stage says about a metric, with how well it is known.

Shares, rewards and their parts are counted again from the step's samples, in which the completions
of a prompt are one cluster; without samples a share is taken from the metrics with the trials that
they name. Comparing steps is `progress`'s part.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.experiment.stage_tables import SamplingStage, StageSpec
from assay.judge.rates import Estimate, counted, grouped
from assay.runs.records import whole_table
from assay.runs.run_directory import RunDirectory

Line = Mapping[str, Any]
SHARE, TRIALS, PART = "_share", "_trials", "part/"
COLUMNS = ["row_id", "reward", "parts", "ended"]
GROUP_SHARES = frozenset({"signal_share"})
"""Shares of groups; other shares are of completions."""


def is_share(metric: str) -> bool:
    """Whether a metric is a share of one by its name."""
    return metric.endswith(SHARE)


def estimate(run: RunDirectory, stage: StageSpec, line: Line, metric: str) -> Estimate | None:
    """The metric at the step of a line; None where the step did not record a finite number."""
    value = line.get(metric)
    if value is None:
        return None
    found = _sampled(run, line, metric)
    if found is not None:
        return found
    trials = _trials(stage, line, metric) if is_share(metric) else None
    if trials and 0 <= value <= 1:
        return counted(value, trials)
    return Estimate(value, None)


def _sampled(run: RunDirectory, line: Line, metric: str) -> Estimate | None:
    """From the samples of the step, where they hold what the metric counts."""
    file = run.samples(line["stage"], line["step"])
    if not file.exists():
        return None
    samples = _samples(file, file.stat().st_mtime_ns)
    if metric == "truncated_share":
        pairs = [(float(s["ended"] == "length"), s["row_id"]) for s in samples]
    elif metric == "abstained_share":
        pairs = [(float(s["reward"] is None), s["row_id"]) for s in samples]
    elif metric == "reward_mean":
        pairs = [(s["reward"], s["row_id"]) for s in samples if s["reward"] is not None]
    elif metric.startswith(PART):
        name = metric.removeprefix(PART)
        parts = [(json.loads(s["parts"]).get(name), s["row_id"]) for s in samples]
        pairs = [(value, row) for value, row in parts if value is not None]
    else:
        return None
    if not pairs:
        return None
    values, rows = zip(*pairs, strict=True)
    # A reward may be punished below 0 or carry a bonus above 1.
    return grouped(values, rows, (min(0.0, *values), max(1.0, *values)))


@lru_cache(maxsize=64)
def _samples(file: Path, written: int) -> Sequence[Line]:
    """The samples of a step, which change only where it is trained again."""
    return whole_table(file, columns=COLUMNS).to_pylist()


def _trials(stage: StageSpec, line: Line, metric: str) -> int | None:
    """How many trials a share is of, as the step recorded it."""
    if metric + TRIALS in line:
        return int(line[metric + TRIALS])
    if metric in GROUP_SHARES:
        return int(line.get("groups", line.get("rows", 0)))
    if "completions" in line:
        return int(line["completions"])
    if isinstance(stage, SamplingStage) and "rows" in line:
        return int(line["rows"]) * stage.group
    return None
