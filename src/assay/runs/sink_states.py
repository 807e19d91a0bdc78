"""What a run has sent to its sinks, `sinks.json`: the remote run, the last step, what failed.

So a resumed run continues the same remote run without sending a step twice, and pages say what is
missing there. Nothing is sent here.
"""

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.runs.run_files import as_entry, read_json, write_json

SINKS = "sinks.json"


@dataclass(frozen=True, slots=True)
class SinkState:
    """One sink of a run."""

    remote: str = ""
    """The id of the remote run; "" before there is one."""
    step: int = 0
    """The last step that arrived, counted over all stages."""
    problem: str = ""
    """What failed and what is missing; "" where all arrived."""
    attempt: int = 0
    """How often the run was started over: each time is another remote run."""


@dataclass
class SinkStates:
    """The file of one run, written by the threads of all its sinks."""

    file: Path
    states: dict[str, SinkState]
    log: Mapping[str, Any] | None
    """The `[log]` table that a resumed run was given; None: that of its experiment."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, sink: str) -> SinkState:
        """The state of a sink; that of one which has got nothing yet, if it is new."""
        return self.states.get(sink, SinkState())

    def change(self, sink: str, **values: str | int) -> None:
        """Store new values of a sink's state."""
        with self._lock:
            self.states[sink] = replace(self.of(sink), **values)  # type: ignore[arg-type]
            self._write()

    def keep_log(self, log: Mapping[str, Any]) -> None:
        """Store the table that the run is resumed with."""
        with self._lock:
            self.log = log
            self._write()

    def _write(self) -> None:
        sinks = {name: asdict(state) for name, state in self.states.items()}
        write_json(self.file, {"log": self.log, "sinks": sinks})


def read_sink_states(run: Path) -> SinkStates:
    """The states of the run in folder `run`; empty if it never had a sink. Raises DamagedFile."""
    file = run / SINKS
    found = read_json(file, dict) if file.exists() else {}
    states = {
        name: as_entry(SinkState, values, file) for name, values in found.get("sinks", {}).items()
    }
    return SinkStates(file, states, found.get("log"))


def start_sinks_over(run: Path) -> None:
    """Let every sink begin another remote run, because steps that were sent are trained again."""
    states = read_sink_states(run)
    for name, state in list(states.states.items()):
        states.change(name, remote="", step=0, problem="", attempt=state.attempt + 1)
