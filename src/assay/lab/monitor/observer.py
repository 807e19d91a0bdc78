"""The events that a run reports while it is executed, and the observers that pass them on.

`Silent` drops them, `report.live_display` draws them, `report.page` writes the pages that are due.
A user's observers are `Callback`s. Nothing here changes a run.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from assay.errors import RunFailure
from assay.runs.run_directory import RunDirectory


class Observer(Protocol):
    """Receives the events of a run; returns nothing."""

    def begin(self, run: RunDirectory) -> None:
        """A run starts or resumes; its events follow until `end`."""
        ...

    def note(self, text: str) -> None:
        """A message of one line."""
        ...

    def stage(self, name: str, method: str, step: int, steps: int) -> None:
        """A stage starts or resumes after `step` of `steps`."""
        ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step of the current stage ended; its line is in `metrics.jsonl`."""
        ...

    def evaluation(self, name: str, checkpoint: str, done: int, total: int) -> None:
        """`done` of `total` answers of an evaluation are recorded."""
        ...

    def report(self, run: RunDirectory, stage: str, step: int, why: str) -> None:
        """A progress report on a run is due, after `step` of a stage."""
        ...

    def end(self, run: RunDirectory) -> None:
        """A run finished or stopped; `runs.status.read_status` says which."""
        ...


class Silent:
    """An observer that ignores all events."""

    def begin(self, run: RunDirectory) -> None:
        """See `Observer.begin`."""

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

    def end(self, run: RunDirectory) -> None:
        """See `Observer.end`."""


class Callback(Silent):
    """The base of observers that a user writes: override the events of `Observer` that you want.

    An event that raises an Exception stops the run with CallbackFailed; what is recorded is kept.
    """


class CallbackFailed(RunFailure):
    """A user's callback raised."""


@dataclass(frozen=True)
class Several:
    """Passes every event to several observers, in their order."""

    observers: Sequence[Observer]

    def begin(self, run: RunDirectory) -> None:
        """See `Observer.begin`."""
        for each in self.observers:
            each.begin(run)

    def note(self, text: str) -> None:
        """See `Observer.note`."""
        for each in self.observers:
            each.note(text)

    def stage(self, name: str, method: str, step: int, steps: int) -> None:
        """See `Observer.stage`."""
        for each in self.observers:
            each.stage(name, method, step, steps)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Observer.step`."""
        for each in self.observers:
            each.step(step, metrics)

    def evaluation(self, name: str, checkpoint: str, done: int, total: int) -> None:
        """See `Observer.evaluation`."""
        for each in self.observers:
            each.evaluation(name, checkpoint, done, total)

    def report(self, run: RunDirectory, stage: str, step: int, why: str) -> None:
        """See `Observer.report`."""
        for each in self.observers:
            each.report(run, stage, step, why)

    def end(self, run: RunDirectory) -> None:
        """See `Observer.end`."""
        for each in self.observers:
            each.end(run)


@dataclass(frozen=True)
class Called:
    """Passes every event to a user's callback; CallbackFailed names the callback that raised."""

    callback: Callback

    def begin(self, run: RunDirectory) -> None:
        """See `Observer.begin`."""
        with self._named("begin"):
            self.callback.begin(run)

    def note(self, text: str) -> None:
        """See `Observer.note`."""
        with self._named("note"):
            self.callback.note(text)

    def stage(self, name: str, method: str, step: int, steps: int) -> None:
        """See `Observer.stage`."""
        with self._named("stage"):
            self.callback.stage(name, method, step, steps)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Observer.step`."""
        with self._named("step"):
            self.callback.step(step, metrics)

    def evaluation(self, name: str, checkpoint: str, done: int, total: int) -> None:
        """See `Observer.evaluation`."""
        with self._named("evaluation"):
            self.callback.evaluation(name, checkpoint, done, total)

    def report(self, run: RunDirectory, stage: str, step: int, why: str) -> None:
        """See `Observer.report`."""
        with self._named("report"):
            self.callback.report(run, stage, step, why)

    def end(self, run: RunDirectory) -> None:
        """See `Observer.end`."""
        with self._named("end"):
            self.callback.end(run)

    @contextmanager
    def _named(self, event: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            who = f"callback {type(self.callback).__name__}.{event}"
            raise CallbackFailed(f"{who} raised {type(error).__name__}: {error}") from error
