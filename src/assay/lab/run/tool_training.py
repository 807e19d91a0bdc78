"""Trains a stage of a run with another tool: exports it, starts the tool, records what it writes.

The tool works in `trainers/STAGE` of the run's folder, in an environment and processes of its own,
which end with this one. What it writes is recorded while it works (`trainer_records`). A killed
stage goes on from its newest checkpoint by the tool's own resume; what the tool wrote behind that
is removed first, so that no step is recorded twice.
"""

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from assay.data.files import new_folder
from assay.engines.environments import (
    LAST_WORDS,
    Running,
    end_marked,
    how_ended,
    python_of,
    running,
    surroundings,
)
from assay.errors import InputError, RunFailure
from assay.experiment.checkpoint_reference import CheckpointReference
from assay.experiment.tables import patience_seconds
from assay.lab.evaluate.checkpoint_selection import selectors
from assay.lab.evaluate.run_evaluation import measure_stored
from assay.lab.monitor.guards import GuardFired, watch_stage
from assay.lab.monitor.observer import Silent
from assay.lab.run.recorder import RunRecorder
from assay.lab.run.trainer_export import Exporter
from assay.lab.run.trainer_records import Following, begin
from assay.lab.setup.learner import question
from assay.lab.setup.session import Session
from assay.lab.setup.tool_stage import ToolStage
from assay.runs.checkpoints import check_checkpoint
from assay.runs.history import History
from assay.runs.manifest_file import WENT_ON, read_manifest, write_manifest
from assay.runs.metrics import check_history, truncate_metrics
from assay.runs.run_names import checkpoint_steps
from assay.sandbox.call_watch import Meter
from assay.trainers.outputs.output import Saved
from assay.trainers.outputs.plain_folders import Output
from assay.trainers.settings import updates_of_round

LOG, OUTPUT = "log", "output"
POLL_SECONDS = 0.5
READING = 0.05
"""The share of the time that is spent on reading a log, which is read whole."""
LAST_BYTES = 1 << 16
LAST_LINES = 12
ERROR = re.compile(r"[\w.]*(Error|Exception): ")
"""How the line begins that ends a traceback; tools print hints behind it."""


@dataclass
class ToolCosts:
    """What the processes of a tool took, a step at a time."""

    meter: Meter = field(default_factory=Meter)
    waiting: list[Mapping[str, float]] = field(default_factory=list)

    def share(self, steps: int) -> None:
        """Spread what was taken since the last step evenly over `steps`, which were seen at once.
        Memory is not known on a GPU, nor where nobody looked before the end."""
        if steps:
            found = self.meter.taken()
            each = {**found, "cpu_seconds": found["cpu_seconds"] / steps}
            if torch.cuda.is_available() or not each["peak_memory_mb"]:
                del each["peak_memory_mb"]
            self.waiting = [each] * steps

    def __call__(self) -> Mapping[str, float]:
        """The next step's."""
        return self.waiting.pop()


@dataclass(frozen=True)
class ToolTraining:
    """A stage of a run that a tool trains."""

    made: ToolStage
    recorder: RunRecorder
    """Which writes down what `costs` says."""
    costs: "ToolCosts"

    @property
    def session(self) -> Session:
        """The run at work."""
        return self.made.session

    @property
    def folder(self) -> Path:
        """Where the tool works."""
        return self.session.run.trainer(self.made.name)

    @property
    def output(self) -> Output:
        """What it wrote."""
        updates = updates_of_round(self.made.stage)
        return self.made.trainer.output(self.folder / OUTPUT, updates)

    def train(self) -> None:
        """Train to the last step. Raises RunFailure where the tool does not get there."""
        session, name, steps = self.session, self.made.name, self.recorder.steps
        step = self.take_up()
        session.observer.stage(name, self.made.stage.method, step, steps)
        if step < steps:
            guards = watch_stage(session.experiment, session.run, name, step)
            watched = replace(self, recorder=replace(self.recorder, guards=guards))
            self.export()
            with self.started(step) as tool:
                watched.follow(tool)
        for step in checkpoint_steps(session.run, name):
            for evaluation in selectors(session, name):
                measure_stored(session, evaluation, CheckpointReference(name, "step", step))
        shutil.rmtree(self.folder / OUTPUT, ignore_errors=True)

    def take_up(self) -> int:
        """Record what a killed run left, then remove what lies behind the newest checkpoint;
        returns its step. Raises DamagedFile."""
        end_marked(str(self.folder))  # what a killed run left alive would go on writing
        self.cut()
        if (self.folder / OUTPUT).is_dir():
            unwatched = replace(self.recorder, observer=Silent(), costs=dict)
            replace(self, recorder=unwatched).following().take(ended=True)
        return self.cut()

    def cut(self) -> int:
        """Remove what the run recorded behind the stage's newest checkpoint; returns its step."""
        run, name = self.session.run, self.made.name
        step = max(checkpoint_steps(run, name), default=0)
        if step:
            fix = f"start the stage over: assay resume {run} --from {name}.step-0"
            check_checkpoint(run.checkpoint(name, step), fix)
            check_history(run, name, step)
        truncate_metrics(run.metrics, name, step)
        for later in History(run).sampled(name):
            if later > step:
                run.samples(name, later).unlink()
        return step

    def following(self) -> Following:
        """Records behind what the run has."""
        found, given = begin(self.session, self.recorder, self.output), self.made.given
        found.contexts = {
            row.id: given.encoder.prompt(row, question(given.task, row)) for row in given.rows
        }
        return found

    def export(self) -> None:
        """The folder that the tool trains from, unless it is there."""
        if not self.folder.is_dir():
            made = self.made
            with new_folder(self.folder) as part:
                given = (made.session, made.name, made.tool, made.source, part)
                Exporter(*given, in_run=True).write((), unproven=False)

    @contextmanager
    def started(self, step: int) -> Iterator[Running]:
        """The tool at work, from the checkpoint of a step."""
        saved = next((each for each in self.output.checkpoints() if each.step == step), None)
        if step and saved is None:
            name, run = self.made.name, self.session.run
            problem = f"{self.made.trainer.title}'s own checkpoint of step {step} is gone"
            fix = f"start the stage over: assay resume {run} --from {name}.step-0"
            raise RunFailure(f"{problem}; {fix}")
        self.clear(saved)
        more = self.made.trainer.resume(saved.folder if saved else None)
        self.say(saved)
        folder, meter = self.folder, self.costs.meter
        given = (folder, folder / LOG, self.environment(), str(folder), meter)
        with running(["bash", "run.sh", *more], *given) as tool:
            yield tool

    def clear(self, saved: Saved | None) -> None:
        """Leave nothing in the tool's output but the checkpoint that it goes on from."""
        output = self.folder / OUTPUT
        output.mkdir(exist_ok=True)
        for path in output.iterdir():
            if saved is None or path != self.within_output(saved):
                remove(path)
        if saved is not None and self.made.trainer.newest:
            (output / self.made.trainer.newest).write_text(str(saved.step), encoding="utf-8")

    def within_output(self, saved: Saved) -> Path:
        """The tool's whole folder of a checkpoint."""
        output = self.folder / OUTPUT
        return output / saved.folder.relative_to(output).parts[0]

    def say(self, saved: Saved | None) -> None:
        """What is started; of a training that goes on also in the manifest, for the pages."""
        trainer, note = self.made.trainer, self.session.observer.note
        if saved is None:
            note(f"{self.made.name}: {trainer.title} trains; its log is {self.folder / LOG}")
            return
        drawn = "other random numbers" if trainer.draws_again else "its random numbers"
        note(
            f"{self.made.name}: {trainer.title} goes on from its checkpoint of step {saved.step} "
            f"with {drawn}; what it did behind that is repeated"
        )
        run, at = self.session.run, datetime.now(UTC).isoformat(timespec="seconds")
        entry = {"at": at, "stage": self.made.name, "step": saved.step}
        entry |= {"draws_again": trainer.draws_again}
        manifest = read_manifest(run)
        manifest.setdefault("time", {}).setdefault(WENT_ON, []).append(entry)
        write_manifest(run, manifest)

    def environment(self) -> Mapping[str, str]:
        """The tool's: offline, on this machine alone, with as many threads as this process."""
        return surroundings("RAY_ADDRESS", "WORLD_SIZE", "LOCAL_RANK") | {
            "PYTHON": str(python_of(self.made.tool)),
            "ASSAY_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
            "HF_HUB_OFFLINE": "1",
            "NODES": "1",
            "RANK": "0",
        }

    def follow(self, tool: Running) -> None:
        """Record what the tool writes until it ends. Raises GuardFired, and RunFailure where it
        ends before the last step or writes what cannot be read."""

        def stepped(step: int) -> None:
            if fired := self.recorder.guards.fired():
                raise GuardFired(fired)
            self.recorder.report(step)

        following, code = self.following(), None
        following.stepped = stepped
        pause, words, since = POLL_SECONDS, (0, 0), time.monotonic()
        patience = patience_seconds(self.session.experiment.engine)
        while code is None:
            code = tool.wait(pause)
            try:
                took = self.record(following, ended=code is not None)
            except InputError as damage:  # in files that the tool wrote, and not the user
                raise RunFailure(str(damage)) from damage
            pause = max(POLL_SECONDS, took / READING)
            if words != (words := ((self.folder / LOG).stat().st_size, following.step)):
                since = time.monotonic()
            elif time.monotonic() - since > patience:
                limit = f"said nothing for {patience / 60:g} minutes (engine.patience)"
                title = self.made.trainer.title
                raise RunFailure(f"{title} {limit}; its log is {self.folder / LOG}")
        run, name = self.session.run, self.made.name
        done = max(checkpoint_steps(run, name), default=0)
        if code or done < self.recorder.steps:
            raise RunFailure(self.ending(code, following.step))

    def record(self, following: Following, *, ended: bool) -> float:
        """Take what is new, and remove the checkpoints that nothing goes on from; returns the
        seconds of reading."""
        began = time.monotonic()
        steps = [*self.output.steps(following.step, ended)]
        took = time.monotonic() - began
        self.costs.share(len(steps))
        following.take(ended, steps)
        newest = max(checkpoint_steps(self.session.run, self.made.name), default=0)
        for each in self.output.checkpoints():
            if each.step < newest:  # the run has its weights, and the tool's states are large
                remove(self.within_output(each))
        return took

    def ending(self, code: int, step: int) -> str:
        """How the tool ended, with its last words."""
        with (self.folder / LOG).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LAST_BYTES))
            text = log.read().decode("utf-8", "replace")
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        for line in lines[-LAST_LINES:]:
            self.session.observer.note(f"{self.made.tool}| {line[:LAST_WORDS]}")
        how = f"ended after step {step} of {self.recorder.steps}"
        if code == -signal.SIGKILL:
            how += " (it was killed, as the system does where memory runs out)"
        elif code:
            last = next(filter(ERROR.match, reversed(lines)), lines[-1] if lines else "no word")
            how += f" ({how_ended(code)}): {last[:LAST_WORDS]}"
        return f"{self.made.trainer.title} {how}; its log is {self.folder / LOG}"


def remove(path: Path) -> None:
    """A file, a link or a folder with all that it holds."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
