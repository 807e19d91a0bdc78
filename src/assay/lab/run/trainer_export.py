"""Exports a stage for another trainer: rows, configuration, reward, launch scripts, in one folder.

Rows are the text that the model's own template renders as the stage does, in the order of the
stage's visits; the tool itself loads them, and its tokens are compared with Assay's. Settings are
translated by `trainers`.

`ToolTraining` trains a stage of a run so: the tool works in `trainers/STAGE` of the run's folder,
in an environment and processes of its own, which end with this one. What it writes is recorded
while it works. A killed stage goes on from its newest checkpoint by the tool's own resume; what the
tool wrote behind that is removed first, so that no step is recorded twice.
"""

import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from assay.data.episode import row_values
from assay.data.files import CHECKSUMS, atomic_write_text, new_folder
from assay.data.formats.chat_rows import EARLIER, UNLIKE
from assay.data.formats.formats import write_rows
from assay.data.formats.plain_text import BEYOND
from assay.data.json_files import write_jsonl
from assay.data.row import Row
from assay.data.splits import visits
from assay.engines.environments import (
    LAST_WORDS,
    RunningTool,
    end_marked,
    how_ended,
    installed,
    python_of,
    running,
    surroundings,
)
from assay.engines.proof import Proof, prove
from assay.errors import InputError, RunFailure, look_up, nearest
from assay.experiment.experiment import Experiment
from assay.experiment.stage_tables import OTHER_RUN, GrpoStage, plain, rows_per_step
from assay.experiment.tables import patience_seconds
from assay.experiment.toml_write import experiment_toml
from assay.lab.data.prepare import find_part
from assay.lab.evaluate.checkpoint_selection import selectors
from assay.lab.evaluate.run_evaluation import measure_stored
from assay.lab.models.learner import question
from assay.lab.monitor.guards import stopped, watch_stage
from assay.lab.monitor.observer import Silent
from assay.lab.run.recorder import Following, RunRecorder, begin
from assay.lab.session.manifest import make_manifest
from assay.lab.session.reward_process import ROWS, SETTINGS
from assay.lab.session.session import Session
from assay.lab.session.stage_methods import StageInput
from assay.lab.session.tool_stage import ToolStage, stage_alone
from assay.models.folder import CONFIG, read_object
from assay.models.load import GENERATION
from assay.runs.history import History
from assay.runs.metrics import check_history, truncate_metrics
from assay.runs.run_directory import (
    WENT_ON,
    RunDirectory,
    check_checkpoint,
    read_manifest,
    write_manifest,
)
from assay.sandbox.call_watch import ProcessMeter
from assay.tasks.user_code import source_files
from assay.trainers.outputs.output import Saved
from assay.trainers.outputs.plain_folders import Output
from assay.trainers.register import MODEL, README, TRAINERS, filled, folder_texts
from assay.trainers.settings import SettingDifference, Settings, Translated, updates_of_round

MORE = "trains what the model's template writes behind the end of an answer as well"
END_OF_ANSWERS = "(end of answers)"
MANIFEST, TRANSLATION, EXPERIMENT = "manifest.json", "translation.json", "experiment.toml"
"""What `assay import` reads of the folder."""
NOT_PROVEN = "the rows were not loaded in the tool"


@dataclass(frozen=True, slots=True)
class ForTrainer:
    """What was exported."""

    stage: str
    tool: str
    rows: int
    """Visits in the file: rows in the stage's order, epoch after epoch."""
    settings: Mapping[str, Any]
    differences: tuple[SettingDifference, ...]
    proof: Proof | None
    """None where the rows were not loaded in the tool."""


def export_for(
    root: Path,
    experiment: Experiment,
    tool: str,
    folder: Path,
    *,
    stage: str | None = None,
    allowed: Collection[str] = (),
    unproven: bool = False,
) -> ForTrainer:
    """Write a stage of an experiment into `folder`, for `tool` to train.

    Raises InputError, also for what the tool cannot do, for rows that it
    renders otherwise, and where it is not installed, unless the rows may go unproven.
    """
    trainer = look_up(TRAINERS, tool, "trainer")
    known = list(experiment.stage)
    if stage is None and len(known) != 1:
        problem = f"the experiment has {len(known)} stages"
        raise InputError(problem, field="--stage", fix="one of " + ", ".join(known))
    name = known[0] if stage is None else stage
    if name not in experiment.stage:
        raise InputError(f"no stage {name!r}", field="--stage", fix=nearest(name, known))
    method = experiment.stage[name].method
    if method not in trainer.methods:
        able = ", ".join(trainer.methods)
        problem = f"{method} stages are not exported to {tool}"
        raise InputError(problem, field=f"stage.{name}.method", fix=f"it takes {able}")
    if not unproven and installed(tool) is None:
        fix = f"assay engines add {tool}, or --unproven"
        raise InputError(f"{tool} is not installed to load the rows", field="--to", fix=fix)
    nowhere = RunDirectory(root, experiment.name, "export")
    session = Session(experiment, nowhere, experiment.seeds[0], Silent())
    source = untrained_source(experiment, name)
    with new_folder(folder) as part:
        return Exporter(session, name, tool, source, part).write(allowed, unproven)


def untrained_source(experiment: Experiment, name: str) -> str:
    """The model that a stage starts from. Raises InputError for a stage of this experiment, which
    would have to be trained first."""
    start = experiment.stage[name].start
    if start == "base":
        return experiment.model
    if start.startswith(OTHER_RUN):
        return start
    problem = f"starts from {start}, which is trained first"
    place = f"run:{experiment.name}/ID@{start}"
    fix = f'--set \'stage.{name}.start="{place}"\' once it is there, or "base"'
    raise InputError(problem, field=f"stage.{name}.start", fix=fix)


@dataclass(frozen=True)
class Exporter(ToolStage):
    """One export at work."""

    part: Path
    """The folder that becomes the export."""
    in_run: bool = False
    """Whether a run trains from it, so that the model can stay where it is."""

    def write(self, allowed: Collection[str], unproven: bool) -> ForTrainer:
        """Everything, into the folder that becomes the export."""
        self.refuse_untrainable()
        inputs = self.inputs
        settings = self.settings(inputs)
        settings = replace(settings, model=MODEL) if self.in_run else settings
        made = self.translated(settings, allowed)
        rows = [self.written(row) for row in inputs.rows]
        proof = None if unproven else self.proof(rows)
        visited = rows  # of a stage that packs, once each
        if isinstance(self.stage, GrpoStage) or self.stage.pack_tokens is None:
            count = settings.rounds * rows_per_step(self.stage)
            visited = [row for _, row in visits(rows, inputs.seed, 0, count, inputs.order)]
        losses = self.write_rows(self.trainer.data, visited)
        beyond = losses.get(BEYOND) if proof is None else proof.beyond
        behind = [SettingDifference(END_OF_ANSWERS, MORE)] if beyond else []
        if self.trainer.dev and self.stage.validation is not None:
            held_out = find_part(self.session.sets, self.stage.validation)
            self.write_rows(self.trainer.dev, [self.written(row) for row in held_out])
        if isinstance(self.stage, GrpoStage):
            self.write_reward(inputs, settings)
        if settings.model == MODEL:
            self.write_model(self.part / MODEL)
        differences = (*made.differences, *behind)
        result = ForTrainer(self.name, self.tool, len(visited), made.values, differences, proof)
        self.write_texts(settings, made, result)
        return result

    def written(self, row: Row) -> Row:
        """A row as the tool is to train it: the task's prompt, and the answer in SFT."""
        task = self.session.task
        prompt = task.prompt(row)
        if isinstance(self.stage, GrpoStage):
            return replace(row, messages=tuple(replace(m, loss=False) for m in prompt))
        if self.stage.loss_on == "last":
            prompt = tuple(replace(m, loss=m.loss and m.role != "assistant") for m in prompt)
        made = replace(row, messages=(*prompt, task.target(row)))
        if self.text.sequences(made) > 1:
            problem = f"row {row.id} trains several sequences: the rendering rewrites its answers"
            place, fix = f"stage.{self.name}.rendering", 'expand = "each_turn" in the data set'
            raise InputError(problem, field=place, fix=fix)
        return made

    def write_rows(self, name: str, rows: Sequence[Row]) -> Mapping[str, int]:
        """Rows in the tool's format, and what it loses of them. Raises RenderingError, and
        InputError for a row that the tool would train otherwise."""
        file = self.part / name
        file.parent.mkdir(parents=True, exist_ok=True)
        losses = write_rows(file, rows, self.tool, "train", self.text)
        for loss in (EARLIER, UNLIKE):
            if self.stage.method == "sft" and losses.get(loss):
                problem = f"{losses[loss]:,} rows have {loss}"
                fix = 'expand = "each_turn" in the data set'
                place = f"stage.{self.name}.data"
                raise InputError(problem, field=place, fix=fix if loss == EARLIER else None)
        return losses

    def proof(self, rows: Sequence[Row]) -> Proof:
        """What the tool makes of the rows, each once. Raises InputError with the first token that
        differs."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / Path(self.trainer.data).name
            write_rows(file, rows, self.tool, "train", self.text)
            proof = prove(file, self.tool, self.text, rows)
        if not proof.equal:
            problem = f"{proof.package} renders the rows otherwise: {proof.difference}"
            raise InputError(problem, field=f"stage.{self.name}.rendering", fix="name another")
        return proof

    def write_reward(self, inputs: StageInput, settings: Settings) -> None:
        """The reward's settings, the rows that it judges, and the code that asks it."""
        stage = settings.grpo
        assert stage.reward is not None
        value = {
            "task": self.session.experiment.task,
            "reward": plain(stage.reward),
            "deadline": stage.reward_deadline,
            "workers": stage.reward_workers,
            "concurrency": stage.reward_concurrency,
            "sandbox": self.session.experiment.sandbox or "namespaces",
            "overlong": stage.overlong and stage.overlong.model_dump(),
            "max_tokens": stage.sampling.max_tokens,
            "end_tokens": sorted(self.learner.base.end_tokens),
            "model": settings.model,
        }
        write_json(self.part / SETTINGS, value)
        write_jsonl(self.part / ROWS, map(row_values, inputs.rows))
        self.write_code("reward.py", *self.trainer.loads)
        root = self.session.run.root.resolve()
        for file in self.code_files():  # with what it imports beside it, at the same place
            for beside, text in source_files(file).items():
                target = self.part / file.parent.relative_to(root) / beside
                target.parent.mkdir(parents=True, exist_ok=True)
                atomic_write_text(target, text)

    def write_model(self, target: Path) -> None:
        """The model, of which a run has links, with all tokens that end an answer in Assay, and
        without what acts in training alone, such as dropout.

        Tools end an answer at the tokens of the generation config, which need not name the
        template's, and have no key for dropout, or one that reaches a part of it.
        """
        apart = {CHECKSUMS, GENERATION, *([CONFIG] if self.acts else [])}
        if self.in_run:
            target.mkdir()
            for file in self.folder.resolve().iterdir():
                if file.name not in apart:
                    (target / file.name).symlink_to(file)
        else:
            shutil.copytree(self.folder, target, ignore=lambda *_: apart)
            for file in target.iterdir():
                file.chmod(0o644)  # safetensors creates files that only their owner can read
        ends = {"eos_token_id": sorted(self.learner.base.end_tokens)}
        text = json.dumps({**self.generation, **ends}, indent=2) + "\n"
        atomic_write_text(target / GENERATION, text)
        if self.acts:
            config = read_object(self.folder / CONFIG)
            inner = config.get("text_config", config)
            inner |= dict.fromkeys(self.acts, 0.0)
            atomic_write_text(target / CONFIG, json.dumps(config, indent=2) + "\n")

    def write_code(self, *names: str) -> None:
        """Files that run inside the tool."""
        for name in names:
            code = files("assay.trainers.in_tool").joinpath(name).read_text(encoding="utf-8")
            atomic_write_text(self.part / name, code)

    def write_texts(self, settings: Settings, made: Translated, result: ForTrainer) -> None:
        """Configuration, scripts, the translation, the experiment and a README."""
        name = self.session.experiment.name
        self.write_code(*self.trainer.starts)
        for file, text in folder_texts(self.tool, settings, made, name).items():
            atomic_write_text(self.part / file, text)
            if file.endswith(".sh"):
                (self.part / file).chmod(0o755)
        about = {
            "experiment": name,
            "stage": self.name,
            "tool": self.trainer.package,
            "rows": result.rows,
            "settings": dict(made.values),
            "differences": [asdict(each) for each in result.differences],
            "proof": None if result.proof is None else asdict(result.proof),
        }
        write_json(self.part / TRANSLATION, about)
        atomic_write_text(self.part / EXPERIMENT, experiment_toml(self.session.experiment))
        if not self.in_run:
            # The fingerprints of what is exported, which `assay import` takes over.
            allowed = tuple(each.key for each in made.differences if each.allowed) or None
            stage = self.stage.model_copy(update={"trainer": self.tool, "allow": allowed})
            alone = stage_alone(self.session.experiment, self.name, stage)
            manifest = make_manifest(self.session.copy(experiment=alone))
            write_json(self.part / MANIFEST, manifest)
        proof = NOT_PROVEN
        if result.proof is not None:
            proof = f"{result.proof.package} loaded the rows and makes Assay's tokens of them"
        count = len(result.differences)
        readme = filled(
            README,
            NAME=name,
            STAGE=self.name,
            PACKAGE=self.trainer.package,
            RAY=self.trainer.ray,
            COUNT=f"{count} difference" + ("" if count == 1 else "s"),
            PROOF=proof,
        )
        atomic_write_text(self.part / "README.md", readme)


def write_json(file: Path, value: Any) -> None:
    """A value, laid out for people."""
    atomic_write_text(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


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

    meter: ProcessMeter = field(default_factory=ProcessMeter)
    waiting: list[Mapping[str, float]] = field(default_factory=list)

    def share(self, steps: int) -> None:
        """Spread what was taken since the last step evenly over `steps`, which were seen at once.
        Memory is not known on a GPU, nor where nobody looked before the end."""
        if steps:
            costs = self.meter.taken()
            each = {**costs, "cpu_seconds": costs["cpu_seconds"] / steps}
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
        for step in session.run.checkpoint_steps(name):
            for evaluation in selectors(session, name):
                measure_stored(session, evaluation, f"{name}.step-{step:06d}")
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
        step = max(run.checkpoint_steps(name), default=0)
        if step:
            check_checkpoint(run.checkpoint(name, step), fix="start another run with --new")
            check_history(run, name, step)
        truncate_metrics(run.metrics, name, step)
        for later in History(run).sampled(name):
            if later > step:
                run.samples(name, later).unlink()
        return step

    def following(self) -> Following:
        """Records behind what the run has."""
        start, inputs = begin(self.session, self.recorder, self.output), self.made.inputs
        start.contexts = {
            row.id: inputs.encoder.prompt(row, question(inputs.task, row)) for row in inputs.rows
        }
        return start

    def export(self) -> None:
        """The folder that the tool trains from, unless it is there."""
        if not self.folder.is_dir():
            made = self.made
            with new_folder(self.folder) as part:
                parts = (made.session, made.name, made.tool, made.source, part)
                Exporter(*parts, in_run=True).write((), unproven=False)

    @contextmanager
    def started(self, step: int) -> Iterator[RunningTool]:
        """The tool at work, from the checkpoint of a step."""
        saved = next((each for each in self.output.checkpoints() if each.step == step), None)
        if step and saved is None:
            problem = f"{self.made.trainer.title}'s own checkpoint of step {step} is gone"
            raise RunFailure(f"{problem}; start another run with --new")
        self.clear(saved)
        more = self.made.trainer.resume(saved.folder if saved else None)
        self.say(saved)
        folder, meter = self.folder, self.costs.meter
        arguments = (folder, folder / LOG, self.environment(), str(folder), meter)
        with running(["bash", "run.sh", *more], *arguments) as tool:
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

    def follow(self, tool: RunningTool) -> None:
        """Record what the tool writes until it ends. Raises RunFailure where a guard stops it or it
        ends before the last step or writes what cannot be read."""

        def stepped(step: int) -> None:
            if fired := self.recorder.guards.fired():
                raise stopped(fired)
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
        done = max(run.checkpoint_steps(name), default=0)
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
        newest = max(self.session.run.checkpoint_steps(self.made.name), default=0)
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
