"""The `[guard.NAME]` and `[milestone.NAME]` tables: what stops a run, and what is expected of it.

Metrics are plain names of `metrics.jsonl`; which there are depends on the stage. What is done with
the values is in `lab.monitor.guards` and `lab.monitor.milestones`.
"""

from collections.abc import Iterator, Mapping
from typing import Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from assay.errors import nearest
from assay.experiment.base_table import Count, Table, refused


class GuardSpec(Table):
    """A condition that stops the run, with its checkpoint kept, where a metric meets it."""

    metric: str
    """A metric of `metrics.jsonl`, such as `truncated_share`."""
    above: float | None = None
    """The condition: values above this; this or `below`. A value that is not finite meets any."""
    below: float | None = None
    """The condition: values below this; this or `above`."""
    steps: Count = 1
    """For how many steps in a row, among those that record the metric."""
    stage: str | None = None
    """The stage that it watches; omitted means every stage."""

    @model_validator(mode="after")
    def _has_one_bound(self) -> Self:
        check_bounds(self.above, self.below)
        return self


class MilestoneSpec(Table):
    """A step to reach, or a value expected of a metric, written down before the run."""

    stage: str
    """The stage that it is about."""
    about: str = ""
    """What it means, in a sentence."""
    step: Count | None = None
    """The step at which it is scored; omitted means every step, until the value is reached."""
    metric: str | None = None
    """The metric whose value is expected; omitted means that reaching the step is all."""
    above: float | None = None
    """Values above this are expected; this or `below`, with `metric`."""
    below: float | None = None
    """Values below this are expected; this or `above`, with `metric`."""

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        if self.metric is not None:
            check_bounds(self.above, self.below)
        elif self.above is not None or self.below is not None:
            raise refused("metric", "a bound needs the metric that it is about")
        elif self.step is None:
            raise refused("step", "a milestone needs a step, a metric, or both")
        return self


def check_bounds(above: float | None, below: float | None) -> None:
    """Raise where not exactly one of the bounds is given."""
    if (above is None) == (below is None):
        found = "neither" if above is None else "both"
        raise refused("above", f"{found} of 'above' and 'below' given", "write one of them")


def check_watched(
    guards: Mapping[str, GuardSpec],
    milestones: Mapping[str, MilestoneSpec],
    stages: Mapping[str, int | None],
) -> Iterator[PydanticCustomError]:
    """Guards and milestones name stages that exist; `stages` has their steps where given."""
    for name, guard in guards.items():
        if guard.stage is not None and guard.stage not in stages:
            fix = nearest(guard.stage, stages)
            yield refused(f"guard.{name}.stage", f"no stage {guard.stage!r}", fix)
    for name, milestone in milestones.items():
        place = f"milestone.{name}"
        if milestone.stage not in stages:
            fix = nearest(milestone.stage, stages)
            yield refused(f"{place}.stage", f"no stage {milestone.stage!r}", fix)
        steps = stages.get(milestone.stage)
        if steps is not None and milestone.step is not None and milestone.step > steps:
            problem = f"step {milestone.step} never comes: {milestone.stage!r} has {steps} steps"
            yield refused(f"{place}.step", problem, "write an earlier step")
