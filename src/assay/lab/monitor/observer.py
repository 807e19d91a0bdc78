"""The events that a run reports while it is executed, and the observers that pass them on.

`Silent` drops them, `report.live_display` draws them, `report.page` writes the pages that are due.
A user's observers are `Callback`s. Nothing here changes a run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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
        """`done` of `total` answers of an evaluation are sampled."""
        ...

    def work(self, what: str, done: int, total: int, at: str = "") -> None:
        """`done` of `total` parts of other work that takes seconds or more are done, and the part
        `at` begins; `total` is 0 where it is not known."""
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

    def work(self, what: str, done: int, total: int, at: str = "") -> None:
        """See `Observer.work`."""

    def report(self, run: RunDirectory, stage: str, step: int, why: str) -> None:
        """See `Observer.report`."""

    def end(self, run: RunDirectory) -> None:
        """See `Observer.end`."""


class Passing:
    """An observer that passes every event on; `_pass` says to whom."""

    def _pass(self, event: str, *values: Any) -> None:
        raise NotImplementedError

    def begin(self, run: RunDirectory) -> None:
        """See `Observer.begin`."""
        self._pass("begin", run)

    def note(self, text: str) -> None:
        """See `Observer.note`."""
        self._pass("note", text)

    def stage(self, name: str, method: str, step: int, steps: int) -> None:
        """See `Observer.stage`."""
        self._pass("stage", name, method, step, steps)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Observer.step`."""
        self._pass("step", step, metrics)

    def evaluation(self, name: str, checkpoint: str, done: int, total: int) -> None:
        """See `Observer.evaluation`."""
        self._pass("evaluation", name, checkpoint, done, total)

    def work(self, what: str, done: int, total: int, at: str = "") -> None:
        """See `Observer.work`."""
        self._pass("work", what, done, total, at)

    def report(self, run: RunDirectory, stage: str, step: int, why: str) -> None:
        """See `Observer.report`."""
        self._pass("report", run, stage, step, why)

    def end(self, run: RunDirectory) -> None:
        """See `Observer.end`."""
        self._pass("end", run)


class Callback(Silent):
    """The base of observers that a user writes: override the events of `Observer` that you want.

    An event that raises an Exception stops the run with CallbackFailed; what is recorded is kept.
    """


class CallbackFailed(RunFailure):
    """A user's callback raised."""


@dataclass(frozen=True)
class Several(Passing):
    """Passes every event to several observers, in their order."""

    observers: Sequence[Observer]

    def _pass(self, event: str, *values: Any) -> None:
        for each in self.observers:
            getattr(each, event)(*values)


@dataclass(frozen=True)
class Called(Passing):
    """Passes every event to a user's callback; CallbackFailed names the callback that raised."""

    callback: Callback

    def _pass(self, event: str, *values: Any) -> None:
        try:
            getattr(self.callback, event)(*values)
        except Exception as error:
            who = f"callback {type(self.callback).__name__}.{event}"
            raise CallbackFailed(f"{who} raised {type(error).__name__}: {error}") from error
