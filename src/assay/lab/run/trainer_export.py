"""Exports a stage for another trainer: rows, configuration, reward, launch scripts, in one folder.

Rows are the text that the model's own template renders as the stage does, in the order of the
stage's visits; the tool itself loads them, and its tokens are compared with Assay's. Settings are
translated by `trainers`. Nothing is trained.
"""

import json
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from assay.data.files import CHECKSUMS, atomic_write_text, new_folder
from assay.data.formats.formats import write_rows
from assay.data.formats.plain_text import BEYOND
from assay.data.formats.trl_rows import EARLIER, UNLIKE
from assay.data.json_files import write_jsonl
from assay.data.row import Row
from assay.data.row_json import row_values
from assay.data.row_order import visits
from assay.engines.environments import installed
from assay.engines.proof import Proof, prove
from assay.errors import InputError, look_up, nearest
from assay.experiment.experiment import Experiment
from assay.experiment.reward_tables import plain
from assay.experiment.stage_tables import OTHER_RUN, GrpoStage, rows_per_step
from assay.experiment.toml_write import experiment_toml
from assay.lab.monitor.observer import Silent
from assay.lab.setup.manifest import make_manifest
from assay.lab.setup.prepare import find_part
from assay.lab.setup.reward_process import ROWS, SETTINGS
from assay.lab.setup.session import Session
from assay.lab.setup.stage_methods import StageInput
from assay.lab.setup.tool_stage import ToolStage, stage_alone
from assay.models.folder import CONFIG
from assay.models.load import GENERATION
from assay.models.supported import read_object
from assay.runs.run_directory import RunDirectory
from assay.tasks.user_code import source_files
from assay.trainers.register import MODEL, README, TRAINERS, Trainer, filled, folder_texts
from assay.trainers.settings import Difference, Settings, Translated

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
    differences: tuple[Difference, ...]
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

    Raises InputError, UnknownName, and InputError for what the tool cannot do, for rows that it
    renders otherwise, and where it is not installed, unless the rows may go unproven.
    """
    trainer = look_up(TRAINERS, tool, "trainer")
    name = chosen_stage(experiment, tool, trainer, stage)
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


def chosen_stage(experiment: Experiment, tool: str, trainer: Trainer, stage: str | None) -> str:
    """The stage to export: the one named, or the only one. Raises InputError."""
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
    return name


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
        given = self.given
        settings = self.settings(given)
        settings = replace(settings, model=MODEL) if self.in_run else settings
        made = self.translated(settings, allowed)
        rows = [self.written(row) for row in given.rows]
        proof = None if unproven else self.proof(rows)
        visited = rows  # of a stage that packs, once each
        if isinstance(self.stage, GrpoStage) or self.stage.pack_tokens is None:
            count = settings.rounds * rows_per_step(self.stage)
            visited = [row for _, row in visits(rows, given.seed, 0, count, given.order)]
        losses = self.write_rows(self.trainer.data, visited)
        beyond = losses.get(BEYOND) if proof is None else proof.beyond
        behind = [Difference(END_OF_ANSWERS, MORE)] if beyond else []
        if self.trainer.dev and self.stage.validation is not None:
            held_out = find_part(self.session.sets, self.stage.validation)
            self.write_rows(self.trainer.dev, [self.written(row) for row in held_out])
        if isinstance(self.stage, GrpoStage):
            self.write_reward(given, settings)
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

    def write_reward(self, given: StageInput, settings: Settings) -> None:
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
        write_jsonl(self.part / ROWS, map(row_values, given.rows))
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
