"""Sends a run to its sinks while it trains: a thread with a bounded queue for each.

A sink that fails is tried again, after a growing pause; it never stops or delays the run. What did
not arrive is written into `sinks.json` and the notebook, and sent where the run is resumed.
"""

import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from assay.compare.judged_table import reported_rows
from assay.experiment.experiment import Experiment
from assay.judge.intervals import score_interval
from assay.lab.monitor.observer import Observer, Several, Silent
from assay.lab.monitor.sinks import SINKS, Sink, SinkOpening, check_log
from assay.rollout.engines.endpoint.openai_text import redact
from assay.runs.history import evaluation_records
from assay.runs.metrics import read_metrics
from assay.runs.notes import add_note
from assay.runs.records import read_scores
from assay.runs.run_directory import (
    RunDirectory,
    SinkStates,
    read_manifest,
    read_sink_states,
    stored_status,
)

MOST_WAITING = 10_000
"""Steps that may wait for a slow sink; then it is given up until the run is resumed."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a sink that failed is tried again; each pause is twice the one before."""
LAST_SECONDS = 60.0
"""How long the end of a run waits for a sink."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_USER = re.compile(r"(?<=://)[^/@\s]+@")

Deliver = Callable[[Sink], None]


@dataclass(frozen=True)
class Parcel:
    """One call of a sink."""

    deliver: Deliver
    step: int = 0
    """The step that the sink has got by it; 0 where it is no step."""
    last: bool = False


class Sender:
    """The thread of one sink."""

    def __init__(self, name: str, states: SinkStates, open_sink: Callable[[], Sink]):
        self.name, self.states, self.open_sink = name, states, open_sink
        self.waiting: queue.Queue[Parcel] = queue.Queue(MOST_WAITING)
        self.behind = False
        """Whether it was given up: what it lacks is sent when the run is resumed."""
        self.problem = ""
        """The first failure of this process."""
        self.closing = threading.Event()
        self.sink: Sink | None = None
        self.thread = threading.Thread(target=self._work, name=f"sink-{name}", daemon=True)

    def put(self, parcel: Parcel) -> None:
        """Queue a call. Once the queue was full nothing is taken, so that no step is skipped."""
        if self.behind:
            return
        try:
            self.waiting.put_nowait(parcel)
        except queue.Full:
            self.behind = True
            self._failed(f"it did not keep up: {MOST_WAITING:,} steps were waiting")

    def close(self, parcels: Sequence[Parcel]) -> None:
        """Deliver what waits and the last parcels, within LAST_SECONDS."""
        for parcel in parcels:
            self.put(parcel)
        self.closing.set()
        if self.behind:
            return
        self.thread.join(LAST_SECONDS)
        if self.thread.is_alive():
            self._failed(f"it did not end within {LAST_SECONDS:.0f} seconds")
        elif not self.behind:
            self.states.change(self.name, problem="")

    def catch_up(self, lines: Sequence[Mapping[str, Any]], sink: Sink) -> None:
        """Send the recorded steps that the sink lacks."""
        for step, line in enumerate(lines, 1):
            if step > self.states.of(self.name).step:
                sink.metrics(step, step_values(line["stage"], line))
                self.states.change(self.name, step=step)

    def _work(self) -> None:
        while True:
            parcel = self.waiting.get()
            if not self._delivered(parcel) or parcel.last:
                return

    def _delivered(self, parcel: Parcel) -> bool:
        """Try until the sink takes it; once the run ends, one time more."""
        pause = FIRST_PAUSE
        while True:
            ending = self.closing.is_set()
            try:
                if self.sink is None:
                    self.sink = self._opened()
                if 0 < parcel.step <= self.states.of(self.name).step:
                    return True
                parcel.deliver(self.sink)
            except Exception as error:
                self._failed(f"{type(error).__name__}: {error}")
                if ending:
                    self.behind = True
                    return False
                self.closing.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            if parcel.step:
                self.states.change(self.name, step=parcel.step)
            return True

    def _opened(self) -> Sink:
        """The sink; what its remote run says it has counts more than what was sent before."""
        sink, known = self.open_sink(), self.states.of(self.name).step
        step = known if sink.step is None else sink.step
        self.states.change(self.name, remote=sink.remote, step=step)
        return sink

    def _failed(self, why: str) -> None:
        """Keep an error in one line, without the keys of the environment and users in addresses."""
        for name, value in os.environ.items():
            if _SECRET.search(name):
                why = redact(why, value, answer=True)
        text = " ".join(_USER.sub("", why).split())[:1000]
        self.problem = self.problem or text
        self.states.change(self.name, problem=text)


class Sinks(Silent):
    """An observer that queues the events of one run for its sinks."""

    def __init__(self, run: RunDirectory, senders: Sequence[Sender], observer: Observer):
        self.run, self.senders, self.observer = run, senders, observer
        self.name, self.before, self.now = "", 0, 0
        self.told: set[str] = set()

    def begin(self, run: RunDirectory) -> None:
        """Send what a sink lacks of the steps that were recorded before."""
        lines = read_metrics(run.metrics)
        for sender in self.senders:
            sender.put(Parcel(partial(sender.catch_up, lines)))

    def stage(self, name: str, method: str, step: int, steps: int) -> None:
        """See `Observer.stage`."""
        self.name, self.before = name, len(read_metrics(self.run.metrics)) - step
        self.now = self.before + step

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """See `Observer.step`."""
        self.now = now = self.before + step
        values = step_values(self.name, metrics)
        self._put(Parcel(lambda sink: sink.metrics(now, values), now))
        self._tell()

    def evaluation(self, name: str, checkpoint: str, done: int, total: int) -> None:
        """Send a score on dev items; those of reports are sent at the end, with verdicts."""
        if done == total:
            self._put(Parcel(partial(self._dev_score, name, checkpoint, self.now)))
        self._tell()

    def close(self) -> None:
        """Send scores and verdicts, and wait for the sinks."""
        end = Parcel(lambda sink: sink.close(stored_status(self.run.path).status), last=True)
        for sender in self.senders:
            sender.close([Parcel(self._results), end])
        self._tell()

    def _dev_score(self, name: str, checkpoint: str, step: int, sink: Sink) -> None:
        """Send the score of a selecting evaluation; nothing of a reporting one."""
        for record in evaluation_records(self.run):
            if record.name == name and record.role == "select":
                scores = read_scores(self.run, record, checkpoint)
                limits = score_interval(scores)
                values = {"score": scores.mean, "low": limits.low, "high": limits.high}
                sink.metrics(step, {f"{name}/{key}": value for key, value in values.items()})

    def _results(self, sink: Sink) -> None:
        """Send scores and verdicts of the reports."""
        if rows := list(reported_rows(self.run)):
            sink.scores(self.now, rows)

    def _put(self, parcel: Parcel) -> None:
        for sender in self.senders:
            sender.put(parcel)

    def _tell(self) -> None:
        """Say once, and note, that a sink fails."""
        for sender in self.senders:
            if sender.problem and sender.name not in self.told:
                self.told.add(sender.name)
                text = f"{sender.name} failed, and the run goes on: {sender.problem}"
                self.observer.note(text)
                add_note(self.run.root, str(self.run), text)


def step_values(stage: str, line: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a step by `STAGE/metric`."""
    return {
        f"{stage}/{key}": value
        for key, value in line.items()
        if key not in ("stage", "step")
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < float("inf")
    }


@contextmanager
def sending(
    experiment: Experiment, run: RunDirectory, seed: int, observer: Observer
) -> Iterator[Observer]:
    """The observer with the run's sinks behind it, which are closed at the end.

    Raises InputError before anything is sent.
    """
    log = experiment.log
    if log is None:
        yield observer
        return
    check_log(log)
    states = read_sink_states(run.path)
    prints = {key: value for key, value in read_manifest(run).items() if key != "packages"}
    plain = experiment.model_dump(mode="json", exclude_none=True)
    config = {"experiment": plain, "fingerprints": prints}

    def opened(name: str) -> Sink:
        state = states.of(name)
        about = state.remote, state.step, config
        return SINKS[name](SinkOpening(run, seed, log, *about))

    senders = [Sender(name, states, partial(opened, name)) for name in dict.fromkeys(log.to)]
    sinks = Sinks(run, senders, observer)
    for sender in senders:
        sender.thread.start()
    try:
        yield Several((observer, sinks))
    finally:
        sinks.close()
