"""Reads everything that a run's page shows, once, from the run's directory.

Holds the scores, the curves of metrics, the rewards of groups and the dev scores. Words and
drawings are added elsewhere.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.compare.judged_table import compare_checkpoints
from assay.compare.table import ComparisonTable, with_trials
from assay.data.files import kept, stamp
from assay.errors import Finding, InputError
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.experiment import Experiment
from assay.experiment.tables import EvaluateSpec
from assay.judge.intervals import Interval, score_interval
from assay.lab.monitor.guards import estimate
from assay.lab.monitor.stage_health import stage_health
from assay.runs.history import History, answers_in
from assay.runs.metrics import read_metrics
from assay.runs.records import EvaluationRecord
from assay.runs.run_directory import RunDirectory, Status, read_status
from assay.runs.run_files import read_selection
from assay.runs.run_names import experiment_of
from assay.train.metric_names import PART

CURVES = (
    "reward_mean",
    "signal_share",
    "reward_margin",
    "reward_accuracy",
    "chosen_logp",
    "rejected_logp",
    "own_divergence",
    "divergence",
    "teacher_agreement",
    "on_policy_share",
    "teacher_tail",
    "divergence_gap",
    "grad_norm",
    "length_mean",
    "truncated_share",
    "entropy",
    "kl",
    "nll",
    "validation_loss",
    "clip_low_share",
    "clip_high_share",
    "rollout_gap_mean",
    "abstained_share",
    "learning_rate",
)
"""Metrics with a curve, in the order of the page. The clipped surrogate is left out, because it
does not measure learning."""
IDLE_AT_ZERO = ("truncated_share", "abstained_share", "repeated_share", "fallback_share")
IDLE_AT_ZERO += ("kl", "clipped_share", "clip_low_share", "clip_high_share", "rollout_gap_mean")
IDLE_AT_ZERO += ("api_error_share", "skipped_steps", "cost")
"""Metrics that say nothing while they are 0: what they count did not happen, or is switched off."""
ZERO = 1e-6
"""Below it a metric is 0 but for rounding."""


def idle(metric: str, values: Iterable[float | None]) -> bool:
    """Whether a metric says nothing: one of IDLE_AT_ZERO that is 0 throughout."""
    return metric in IDLE_AT_ZERO and all(v is not None and abs(v) < ZERO for v in values)


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric of one stage. A value that was not finite is None."""

    metric: str
    steps: tuple[int, ...]
    values: tuple[float | None, ...]
    limits: tuple[Interval | None, ...]
    """95 % intervals of the values; None for a step without an error estimate."""

    @property
    def constant(self) -> bool:
        """Whether several steps recorded one value only."""
        return len(self.values) > 1 and len(set(self.values)) == 1

    @property
    def points(self) -> list[tuple[int, float | None]]:
        """Steps with their values."""
        return list(zip(self.steps, self.values, strict=True))

    @property
    def last(self) -> float | None:
        """The value of the last step."""
        return self.values[-1]


@dataclass(frozen=True, slots=True)
class DevScore:
    """A checkpoint's score on dev items."""

    step: int
    score: float
    interval: Interval
    items: int
    chosen: bool


@kept(256)
def _table(folder: Path, run: RunDirectory, manifest: Hashable, *measured: str) -> ComparisonTable:
    """The verdicts on an evaluation, whose folder changes with every record in it."""
    return compare_checkpoints(run, folder.name, measured[0], measured[1:])


@dataclass(frozen=True)
class Measurement:
    """One `[evaluate.NAME]` table with its records."""

    name: str
    spec: EvaluateSpec | None
    """None for an evaluation that was added after the run."""
    table: ComparisonTable | None
    """None where no checkpoint was measured."""
    missing: tuple[str, ...]
    """Checkpoints that the experiment lists and that have no finished record."""


@dataclass(frozen=True)
class RunFacts:
    """A run as its directory shows it. Parts are read when they are first asked for."""

    run: RunDirectory
    experiment: Experiment
    status: Status

    @cached_property
    def history(self) -> History:
        """What the run recorded."""
        return History(self.run)

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """The fingerprints; empty while the run has not written them."""
        return self.history.manifest

    @cached_property
    def metrics(self) -> Mapping[str, list[Mapping[str, Any]]]:
        """Metrics lines by stage."""
        stages: dict[str, list[Mapping[str, Any]]] = {}
        for line in read_metrics(self.run.metrics):
            stages.setdefault(line["stage"], []).append(line)
        return stages

    @cached_property
    def _reporting(self) -> Sequence[tuple[str, EvaluateSpec | None, EvaluationRecord | None]]:
        records, specs = self.history.evaluations, self.experiment.evaluate
        known = {record.name: record for record in records}
        named = [(n, spec, known.get(n)) for n, spec in specs.items() if spec.role == "report"]
        return [*named, *((each.name, None, each) for each in records if each.name not in specs)]

    @cached_property
    def reported(self) -> tuple[Measurement, ...]:
        """Reporting evaluations, those of the experiment first, in its order."""
        rest = (self._measurement(*each) for each in self._reporting[1:])
        return (self.main, *rest) if self.main else ()

    @cached_property
    def main(self) -> Measurement | None:
        """The evaluation that the page is about: the first reporting one."""
        return self._measurement(*self._reporting[0]) if self._reporting else None

    def _measurement(
        self, name: str, spec: EvaluateSpec | None, record: EvaluationRecord | None
    ) -> Measurement:
        measured = self.history.measured(record) if record else []
        wanted = [n for text in (spec.checkpoints if spec else ()) for n in self.expected(text)]
        missing = tuple(dict.fromkeys(n for n in wanted if n not in measured))
        table = None
        if record is not None and measured:
            folder = self.run.evaluations / record.key
            table = with_trials(_table(folder, self.run, stamp(self.run.manifest), *measured))
        return Measurement(name, spec, table, missing)

    def expected(self, text: str) -> list[str]:
        """The checkpoints that a reference of the experiment means, as far as is known yet."""
        reference = parse_checkpoint(text)
        if reference is None or reference.stage is None:
            return [text]
        steps = self.checkpoint_steps(reference.stage)
        if reference.which == "step":
            steps = [reference.step or 0]
        elif reference.rule is not None:
            best = read_selection(self.run.path, reference.stage, reference.rule)
            return [best.checkpoint if best else text]
        elif reference.which == "last":
            steps = steps[-1:]
        return [f"{reference.stage}.step-{step:06d}" for step in steps] or [text]

    def checkpoint_steps(self, stage: str) -> list[int]:
        """Steps of a stage's checkpoints, those that only records remember included."""
        folder = self.run.checkpoints(stage)
        names = {f"{stage}.{path.name}" for path in folder.glob("step-*")}
        names |= {name for r in self.history.evaluations for name in self.history.measured(r)}
        references = [parse_checkpoint(name) for name in names]
        return sorted({r.step for r in references if r and r.stage == stage and r.step})

    def answers(self, record: EvaluationRecord, checkpoint: str) -> list[dict[str, Any]]:
        """The lines of one record."""
        return answers_in(record.file(self.run.evaluations, checkpoint))

    def curves(self, stage: str) -> list[Curve]:
        """The metrics of a stage over its steps; shares and rewards with intervals."""
        if stage not in self._curves:
            self._curves[stage] = self._estimated(stage, CURVES)
        return self._curves[stage]

    def part_curves(self, stage: str) -> list[Curve]:
        """The parts of a stage's reward over its steps, with intervals; of a table those that it
        names, without their own parts."""
        lines = self.metrics.get(stage, [])
        every = dict.fromkeys(name for line in lines for name in line if name.startswith(PART))
        whole = [name for name in every if name.rpartition("/")[0] not in every]
        return self._estimated(stage, tuple(whole))

    def further_curves(self, stage: str) -> list[Curve]:
        """Every other metric of a stage that is a number, by name."""
        lines = self.metrics.get(stage, [])
        every = sorted({name for line in lines for name in line} - {*CURVES, "stage", "step"})
        names = [name for name in every if not name.startswith(PART)]
        return self._estimated(stage, tuple(names))

    @cached_property
    def _curves(self) -> dict[str, list[Curve]]:
        return {}

    def _estimated(self, stage: str, names: Sequence[str]) -> list[Curve]:
        # Step by step: the samples of a step are read once for all its metrics.
        spec, curves = self.experiment.stage[stage], {name: list[Any]() for name in names}
        for line in self.metrics.get(stage, []):
            for name in (name for name in names if name in line):
                figure = estimate(self.run, spec, line, name)
                curves[name].append((line["step"], line[name], figure and figure.interval))
        drawn = []
        for name, points in curves.items():
            steps, values, limits = zip(*points, strict=True) if points else ((), (), ())
            if any(value is not None for value in values) and not idle(name, values):
                drawn.append(Curve(name, steps, values, limits))
        return drawn

    def dev_scores(self, stage: str) -> list[DevScore]:
        """Scores on dev items, by step."""
        best = read_selection(self.run.path, stage)
        return [
            DevScore(
                look.step,
                look.scores.mean,
                score_interval(look.scores),
                len(look.scores.item_ids),
                best is not None and look.name == best.checkpoint,
            )
            for look in self.history.looks(stage)
        ]

    def health(self, stage: str) -> Sequence[Finding]:
        """Findings of the health rules, worst first."""
        return stage_health(self.history, stage).findings


def gather(run: RunDirectory) -> RunFacts:
    """The facts of a run. Raises InputError where there is no run."""
    if not run.spec.is_file():
        raise InputError("no run here", file=run.path, fix="list runs with 'assay runs'")
    return RunFacts(run, experiment_of(run), read_status(run.path))
