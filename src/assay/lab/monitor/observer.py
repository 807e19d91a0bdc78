"""The events that a run reports while it trains.

`Silent` drops them, and the command line draws them.
"""

from collections.abc import Mapping
from typing import Protocol

from assay.runs.run_directory import RunDirectory


class Observer(Protocol):
    """Receives the events of a run; returns nothing."""

    def note(self, text: str) -> None:
        """A message of one line."""
        ...

    def stage(self, name: str, method: str, step: int, steps: int) -> None:
        """A stage starts or resumes after `step` of `steps`."""
        ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step of the current stage ended."""
        ...

    def evaluation(self, name: str, checkpoint: str, done: int, total: int) -> None:
        """`done` of `total` answers of an evaluation are recorded."""
        ...

    def report(self, run: RunDirectory, stage: str, step: int, why: str) -> None:
        """A progress report on a run is due, after `step` of a stage."""
        ...


class Silent:
    """An observer that ignores all events."""

    def note(self, text: str) -> None:
        """See `Observer.note`."""

    def stage(self, name: str, method: str, step: int, steps: int) -> None:
        """See `Observer.stage`."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Observer.step`."""

    def evaluation(self, name: str, checkpoint: str, done: int, total: int) -> None:
        """See `Observer.evaluation`."""

    def report(self, run: RunDirectory, stage: str, step: int, why: str) -> None:
        """See `Observer.report`."""
