"""The events that a run reports while it is executed, and the observers that pass them on.

`Observer` drops them, `pages.live_display` draws them, `pages.run_page` writes the pages that are
due, `Noting` notes what is under way. A user's observers are `Callback`s. Nothing here changes a
run.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partialmethod
from typing import Any

from assay.errors import RunFailure
from assay.runs.run_directory import NOW, Now, RunDirectory, write_now


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

    def inside(self, part: str, done: int, total: int) -> None:
        """Of the step under way `done` of `total` completions are sampled, judged or trained."""

    def evaluation(self, name: str, checkpoint: str, done: int, total: int) -> None:
        """`done` of `total` answers of an evaluation are sampled."""

    def work(self, what: str, done: int, total: int, at: str = "") -> None:
        """`done` of `total` parts of other work that takes seconds or more are done, and the part
        `at` begins; `total` is 0 where it is not known."""

    def report(self, run: RunDirectory, stage: str, step: int, why: str) -> None:
        """A progress report on a run is due, after `step` of a stage."""

    def end(self, run: RunDirectory) -> None:
        """A run finished or stopped; `runs.run_directory.read_status` says which."""


EVENTS = ("begin", "note", "stage", "step", "inside", "evaluation", "work", "report", "end")
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


Clock = Callable[[], float]


class Pace:
    """Estimates the remaining time of some work from what was done since it started or resumed."""

    def __init__(self, clock: Clock, step: int, steps: int):
        self.clock, self.first, self.steps = clock, step, steps
        self.started = clock()

    def left(self, step: int, share: float = 0.0) -> float | None:
        """Seconds until the last step; None before a step and that share of them is done, and after
        the last."""
        if step <= self.first or step >= self.steps or step < share * self.steps:
            return None
        return (self.clock() - self.started) / (step - self.first) * (self.steps - step)


NOTED_SECONDS = 1.0
"""Between two notes inside a step or an evaluation."""


class Noting(Passing):
    """Passes every event on, and notes in the run's folder what is under way."""

    def __init__(self, inner: Observer, run: RunDirectory, clock: Clock = time.monotonic):
        self.inner, self.run, self.clock = inner, run, clock
        self.now, self.pace, self.noted = Now(), Pace(clock, 0, 0), 0.0

    def _pass(self, event: str, *values: Any, **named: Any) -> None:
        getattr(self.inner, event)(*values, **named)
        if event == "end":
            (self.run.path / NOW).unlink(missing_ok=True)
        elif (now := self._after(event, values)) != self.now:
            self.now = now
            if not now.part or self.clock() - self.noted >= NOTED_SECONDS:
                write_now(self.run.path, now)
                self.noted = self.clock()

    def _after(self, event: str, values: Sequence[Any]) -> Now:
        match event, values:
            case "stage", (name, _, step, steps):
                self.pace = Pace(self.clock, step, steps)
                return Now(name, step, steps)
            case "step", (step, _):
                return replace(self.now, step=step, left=self.pace.left(step), part="")
            case "inside", (part, done, total):
                return replace(self.now, part=part, checkpoint="", done=done, total=total)
            case "evaluation", (name, checkpoint, done, total):
                part = name if done < total else ""
                return replace(self.now, part=part, checkpoint=checkpoint, done=done, total=total)
        return self.now
