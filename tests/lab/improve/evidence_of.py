"""Evidence of runs that were never made: stages, groups and scores as a test needs them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.compare.arm import Arm, Provenance
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.judge.scores import ItemScores
from assay.lab.improve.run_evidence import (
    Candidate,
    Group,
    Groups,
    Measured,
    RunEvidence,
    StageEvidence,
)
from assay.runs.checkpoints import Selection
from assay.runs.history import Look
from assay.runs.records import EvaluationRecord
from assay.runs.run_directory import RunDirectory

RUN = RunDirectory(Path("nowhere"), "demos", "none")
VALUES: dict[str, Any] = {
    "name": "demos",
    "about": "RCE, then GRPO",
    "model": "path:model",
    "task": "math",
    "data": {"train": {"source": "path:rows.jsonl", "format": "messages", "split": {"dev": 0.1}}},
    "stage": {
        "rce": {"method": "rce", "data": "train", "steps": 4, "prompts": 2, "reward": "accuracy"},
        "rl": {"method": "grpo", "data": "train", "steps": 4, "prompts": 2, "reward": "accuracy"},
    },
    "evaluate": {
        "test": {
            "data": "train.dev",
            "reward": "accuracy",
            "role": "report",
            "checkpoints": ["rl.last"],
        }
    },
}


def experiment(
    changes: Mapping[str, Mapping[str, Any]] | None = None, as_reported: bool = False
) -> Experiment:
    """RCE, then GRPO; `changes` are those of stages."""
    stages = {k: {**v, **(changes or {}).get(k, {})} for k, v in VALUES["stage"].items()}
    return read_experiment({**VALUES, "stage": stages, "as_reported": as_reported})


def candidate(reward: float | None, *, fallback: bool = False, **numbers: float) -> Candidate:
    return Candidate("[1]", reward, numbers, fallback)


def groups(*rewards: Sequence[float]) -> tuple[Group, ...]:
    return tuple(tuple(candidate(reward) for reward in group) for group in rewards)


def stage(
    name: str = "rl",
    found: Sequence[Group] = (),
    lines: Sequence[Mapping[str, Any]] | None = None,
    looks: Mapping[int, Sequence[float]] | None = None,
    selection: Selection | None = None,
    changes: Mapping[str, Any] | None = None,
    as_reported: bool = False,
) -> StageEvidence:
    """A stage after `rce.step-000004`, or after the base; `looks` are scores on dev by step."""
    start = "rce.step-000004" if name == "rl" else "base"
    names = {step: f"{name}.step-{step:06d}" if step else start for step in looks or {}}
    return StageEvidence(
        name=name,
        spec=experiment({name: changes or {}}, as_reported).stage[name],
        lines=lines or [{"step": step, "seconds": 0.5} for step in (1, 2, 3, 4)],
        health=(),
        start=start,
        steps=(2, 4),
        groups=Groups(tuple(found), f"samples/{name}"),
        looks=[Look(s, names[s], scores(values)) for s, values in (looks or {}).items()],
        selection=selection,
    )


def scores(values: Sequence[float]) -> ItemScores:
    ids = tuple(f"q{n}" for n in range(len(values)))
    return ItemScores(ids, np.array(values, dtype=float)[:, None])


def measured(
    by_checkpoint: Mapping[str, Sequence[float]],
    picks: Mapping[str, Sequence[Sequence[int]]] | None = None,
    name: str = "test",
    role: str = "report",
) -> Measured:
    """An evaluation of checkpoints; `picks` are their selections, else they say their scores."""
    items = scores(next(iter(by_checkpoint.values()))).item_ids
    record = EvaluationRecord(name, name, role, items, "", 1, {"temperature": 0.0}, "", "c", {}, 7)
    arms = {}
    for checkpoint, values in by_checkpoint.items():
        said: Sequence[Any] = picks[checkpoint] if picks else [f"answer {v}" for v in values]
        outputs = {(i, 0): json.dumps(text) for i, text in zip(items, said, strict=True)}
        origin = Provenance(RUN, checkpoint, record)
        arms[checkpoint] = Arm(checkpoint, scores(values), origin, outputs)
    return Measured(record, arms, 0.25)


def evidence(
    *stages: StageEvidence,
    measured: Sequence[Measured] = (),
    rows: Mapping[str, Any] | None = None,
    as_reported: bool = False,
) -> RunEvidence:
    by_name = {each.name: each for each in stages}
    specs = {name: each.spec for name, each in by_name.items()}
    plain = experiment(as_reported=as_reported)
    whole = plain.model_copy(update={"stage": {**plain.stage, **specs}})
    return RunEvidence(RUN, whole, by_name, measured, rows or {})
