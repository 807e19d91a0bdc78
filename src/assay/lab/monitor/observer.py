"""The events that a run reports while it is executed, and the observers that pass them on.

`Observer` drops them, `pages.live_display` draws them, `pages.run_page` writes the pages that are
due. A user's observers are `Callback`s. Nothing here changes a run.
"""

from collections.abc import Mapping, Sequence
from functools import partialmethod
from typing import Any

from assay.errors import RunFailure
from assay.runs.run_directory import RunDirectory


class Observer:
    """Receives the events of a run and drops them; override the events that are wanted."""

    def begin(self, run: RunDirectory) -> None:
        """A run starts or resumes; its events follow until `end`."""

    def note(self, text: str) -> None:
        """A message of one line."""

    def stage(self, name: str, method: str, step: int, steps: int) -> None:
        """A stage starts or resumes after `step` of `steps`."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step of the current stage ended; its line is in `metrics.jsonl`."""

    def evaluation(self, name: str, checkpoint: str, done: int, total: int) -> None:
        """`done` of `total` answers of an evaluation are sampled."""

    def work(self, what: str, done: int, total: int, at: str = "") -> None:
        """`done` of `total` parts of other work that takes seconds or more are done, and the part
        `at` begins; `total` is 0 where it is not known."""

    def report(self, run: RunDirectory, stage: str, step: int, why: str) -> None:
        """A progress report on a run is due, after `step` of a stage."""

    def end(self, run: RunDirectory) -> None:
        """A run finished or stopped; `runs.status.read_status` says which."""


EVENTS = ("begin", "note", "stage", "step", "evaluation", "work", "report", "end")
Silent = Observer


class Passing(Observer):
    """An observer that passes every event on; `_pass` says to whom."""

    def _pass(self, event: str, *values: Any, **named: Any) -> None:
        raise NotImplementedError


def _passed(self: Passing, event: str, *values: Any, **named: Any) -> None:
    self._pass(event, *values, **named)


for _event in EVENTS:
    setattr(Passing, _event, partialmethod(_passed, _event))


class Callback(Observer):
    """The base of observers that a user writes: override the events of `Observer` that you want.

    An event that raises an Exception stops the run with RunFailure; what is recorded is kept.
    """


class Several(Passing):
    """Passes every event to several observers, in their order."""

    def __init__(self, observers: Sequence[Observer]):
        self.observers = observers

    def _pass(self, event: str, *values: Any, **named: Any) -> None:
        for each in self.observers:
            getattr(each, event)(*values, **named)


class Called(Passing):
    """Passes every event to a user's callback; RunFailure names the callback that raised."""

    def __init__(self, callback: Callback):
        self.callback = callback

    def _pass(self, event: str, *values: Any, **named: Any) -> None:
        try:
            getattr(self.callback, event)(*values, **named)
        except Exception as error:
            who = f"callback {type(self.callback).__name__}.{event}"
            raise RunFailure(f"{who} raised {type(error).__name__}: {error}") from error
