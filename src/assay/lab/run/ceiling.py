"""Measures the arms that a task brings: what the best choice could win before anything is trained.

Each arm is a model of its own (`selector:oracle`, `workflow:direct`) in a run of its own without
stages, which is recorded, resumed and compared like any other; what is measured is not measured
again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.data.hashing import canonical_json, sha256_text
from assay.errors import InputError, nearest
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import ExperimentSource, lines_named
from assay.lab.monitor.observer import Observer
from assay.lab.run.runner import launch_or_resume
from assay.lab.setup.session import Session
from assay.lab.setup.validate import read_whole
from assay.runs.history import evaluation_records
from assay.runs.records import read_scores
from assay.runs.run_directory import RunDirectory

LEAST_GAIN = 0.05
"""A best arm that is less than this above the first leaves little to win."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The runs of the arms, and what there is to win."""

    evaluation: str
    runs: Mapping[str, RunDirectory]
    """By arm; the first is what the others are compared with."""
    scores: Mapping[str, float]
    hindsight: float
    """The mean over items of the best arm's score, an upper bound that luck raises."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """A gap that leaves little to win."""
        first, *_ = self.scores
        best = max(self.scores, key=lambda arm: self.scores[arm])
        gain = self.scores[best] - self.scores[first]
        if gain >= LEAST_GAIN:
            return ()
        problem = f"the best arm, {best}, is {gain * 100:.1f} points above {first}: there is little"
        return (f"{problem} to win (take other items, larger pools or another helper model)",)


def measure_ceiling(
    source: ExperimentSource,
    overrides: Sequence[str],
    root: Path,
    observer: Observer,
    *,
    on: str | None = None,
    items: int | None = None,
    repeats: int = 1,
) -> Ceiling:
    """Measure every arm of an experiment's task in the lab at `root`.

    Raises InputError where the task brings no arm or no evaluation fits, and what runs raise.
    """
    experiment = read_whole(source, overrides, root)
    nowhere = RunDirectory(root, experiment.name, "ceiling")
    labs = Session(experiment, nowhere, experiment.seeds[0], observer).labs
    arms = {label: arm for lab in labs for label, arm in lab.ceiling.items()}
    if not arms:
        problem = f"the task {experiment.task!r} brings no arm whose ceiling could be measured"
        raise InputError(problem, field="task")
    name = evaluation_of(experiment, on)
    runs = {}
    for label, (model, options) in arms.items():
        made = arm_experiment(experiment, name, label, model, options, items, repeats)
        with lines_named(source, overrides):
            (launched,) = launch_or_resume(made, (), root=root, observer=observer)
        runs[label] = launched.run
    scores = {}
    for label, run in runs.items():
        (record,) = evaluation_records(run)
        scores[label] = read_scores(run, record, "base")
    best: dict[str, float] = {}
    for each in scores.values():
        for item, value in zip(each.item_ids, map(float, each.item_means), strict=True):
            best[item] = max(value, best.get(item, 0.0))
    means = {label: each.mean for label, each in scores.items()}
    return Ceiling(name, runs, means, sum(best.values()) / len(best))


def evaluation_of(experiment: Experiment, on: str | None) -> str:
    """The evaluation that is asked for, else the first on a benchmark. Raises InputError."""
    known = [name for name, spec in experiment.evaluate.items() if spec.benchmark is not None]
    if on is None and known:
        return known[0]
    if on not in known:
        fix = nearest(on, known) if on and known else "add [evaluate.test] with a benchmark"
        raise InputError(f"no evaluation {on or 'on a benchmark'!r}", field="evaluate", fix=fix)
    return on


def arm_experiment(
    experiment: Experiment,
    name: str,
    label: str,
    model: str,
    options: Mapping[str, Any],
    items: int | None,
    repeats: int,
) -> Experiment:
    """The experiment that measures one arm and trains nothing. Its name has a hash of what is
    measured, so that other items or another helper model are other runs."""
    values = experiment.model_dump(mode="json", exclude_none=True)
    kept = ("task", "helpers", "selector", "sandbox", "as_reported")
    made = {key: values[key] for key in kept if key in values}
    spec = values["evaluate"][name] | {"checkpoints": ["base"], "repeats": repeats, "fewer": {}}
    if items is not None:
        spec["take"] = {"rows": items, "how": "first"}
    made["evaluate"] = {name: spec}
    key = sha256_text(canonical_json(made))[:8]
    spec["options"] = {**spec.get("options", {}), **options}
    return Experiment(
        name=f"{experiment.name}-ceiling-{label}-{key}",
        about=f"What {label} reaches on {name}; trains nothing",
        model=model,
        seeds=experiment.seeds[:1],
        vary=("model", "evaluate"),
        **made,
    )
