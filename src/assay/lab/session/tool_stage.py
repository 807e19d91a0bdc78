"""A stage as another tool is to train it: what it starts from, its settings in that tool's words,
and what that tool cannot do. Writes nothing; `lab.run.trainer_export` does.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from assay.data.formats.plain_text import PlainText
from assay.engines.proof import template_of
from assay.errors import InputError, look_up
from assay.experiment.experiment import Experiment
from assay.experiment.reward_tables import parts_of
from assay.experiment.stage_tables import OTHER_RUN, GrpoStage, SftStage, steps_of
from assay.lab.data.prepare import find_part
from assay.lab.models.language_learner import LanguageLearner, language_model, model_folder
from assay.lab.models.learner import gold_turns, question
from assay.lab.session.reward_parts import rewards_in
from assay.lab.session.session import Session
from assay.lab.session.stage_methods import StageInput, visits_per_epoch
from assay.models.folder import read_object
from assay.models.load import GENERATION
from assay.models.supported import read_config, read_tokenizer
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.user_code import SCHEME
from assay.trainers.read_back import acting_in_training
from assay.trainers.register import MODEL, TRAINERS, Trainer
from assay.trainers.settings import Exported, Settings, Translated, translated
from assay.trainers.table import table


@dataclass(frozen=True)
class ToolStage:
    """One stage, for one tool."""

    session: Session
    name: str
    tool: str
    source: str
    """The model that the stage starts from."""

    @property
    def trainer(self) -> Trainer:
        """What is known of the tool."""
        return TRAINERS[self.tool]

    @property
    def stage(self) -> Exported:
        """The stage's table."""
        stage = self.session.experiment.stage[self.name]
        assert isinstance(stage, SftStage | GrpoStage)
        return stage

    @cached_property
    def folder(self) -> Path:
        """Where the model lies."""
        return model_folder(self.source, self.session.run.root)

    @cached_property
    def learner(self) -> LanguageLearner:
        """The experiment's. Raises InputError for a model without tokens."""
        return language_model(self.session.learner, self.trainer.title)

    @cached_property
    def generation(self) -> Mapping[str, Any]:
        """The model's generation config as its folder has it; empty where there is none."""
        file = self.folder / GENERATION
        return read_object(file) if file.is_file() else {}

    @cached_property
    def acts(self) -> Mapping[str, float]:
        """What the model does in training alone, as dropout, which no stage of Assay's does."""
        return acting_in_training(read_config(self.folder))

    @cached_property
    def text(self) -> PlainText:
        """Writes the stage's rendering for the template of the model that the tool opens."""
        encoder = self.learner.encoder(self.stage)
        return PlainText(encoder.name, read_tokenizer(self.folder))

    @property
    def inputs(self) -> StageInput:
        """The stage's rows and their order."""
        return self.session.stage_input(self.stage)

    def refuse_untrainable(self) -> None:
        """Raise InputError for a model without tokens, for what comes in several turns, for a
        reward that needs helper models, and for code that does not lie in the lab."""
        _ = self.learner
        task, place = self.session.task, f"stage.{self.name}.data"
        rows = find_part(self.session.sets, self.stage.data)
        if isinstance(self.stage, GrpoStage) and any(task.dialogue(row) for row in rows):
            problem = f"{self.trainer.title} samples one answer; an agent or a dialogue takes more"
            raise InputError(problem, field=place, fix="train the stage with Assay")
        options = next((row for row in rows if row.template_options), None)
        if options is not None:
            problem = f"row {options.id} has template options, which are no part of an export"
            raise InputError(problem, field=place, fix="leave them out")
        judge = self.inputs.judge
        for reward in () if judge is None else rewards_in(judge).values():
            if isinstance(reward, JudgeReward) and reward.helpers:
                problem = f"asks the helper model {reward.helpers[0]!r}, which only a run opens"
                fix = "another reward, or train the stage with Assay"
                raise InputError(problem, field=f"stage.{self.name}.reward", fix=fix)
        self.code_files()

    def code_files(self) -> list[Path]:
        """The user's files that task and reward name, which the tool's process needs; none in SFT.
        Raises InputError for one that does not lie in the lab."""
        if not isinstance(self.stage, GrpoStage):
            return []
        root, files = self.session.run.root.resolve(), []
        kinds = [part.kind for part in parts_of(self.stage.reward or {}).values()]
        for named in [self.session.experiment.task, *kinds]:
            if not named.startswith(SCHEME):
                continue
            file, colon, _ = named.removeprefix(SCHEME).rpartition(".py:")
            name = Path(f"{file}.py" if colon else named.removeprefix(SCHEME))
            if name.is_absolute() or not (root / name).resolve().is_relative_to(root):
                problem = f"{name} does not lie in the lab, and so cannot be taken along"
                raise InputError(problem, field="task or reward", fix=f"put it below {root}")
            files.append((root / name).resolve())
        return files

    def settings(self, inputs: StageInput) -> Settings:
        """What the translation tables read."""
        stage, encoder = self.stage, inputs.encoder
        count = visits_per_epoch(stage, inputs)
        rounds = steps_of(stage, count)
        prompts = [encoder.size(encoder.prompt(r, question(inputs.task, r))) for r in inputs.rows]
        if isinstance(stage, GrpoStage):
            longest = max(prompts) + stage.sampling.max_tokens
        else:
            stored = (gold_turns(encoder, inputs.task, r, stage.loss_on) for r in inputs.rows)
            sizes = (encoder.size(t.context) + len(t.actions) for ts in stored for t in ts)
            longest = max(*sizes, stage.pack_tokens or 0)
        limit = self.session.experiment.data[stage.data.partition(".")[0]].max_prompt_tokens
        kind, _, name = self.source.partition(":")
        ids = self.generation.get("eos_token_id")
        ends = {ids} if isinstance(ids, int) else {*(ids or ())}  # where a tool ends an answer
        as_it_lies = kind == "hf" and ends == self.learner.base.end_tokens and not self.acts
        return Settings(
            name=self.name,
            stage=stage,
            model=name if as_it_lies else MODEL,
            seed=inputs.seed,
            rounds=rounds,
            rows=count,
            longest_prompt=limit or max(prompts),
            longest=longest,
            from_base=stage.start == "base",
            template=swift_template(self.text, self.folder) if self.tool == "swift" else None,
        )

    def translated(self, settings: Settings, allowed: Collection[str] = ()) -> Translated:
        """The settings in the tool's words. Raises InputError for what has none there."""
        words = table(self.tool, self.stage.method)
        return translated(words, settings, self.trainer.title, allowed)


SWIFT_MODELS = {kind: kind for kind in ("llama", "qwen2", "qwen3")}
"""Kinds of model by the `model_type` of their configuration, which is ms-swift's too."""


def swift_template(text: PlainText, folder: Path) -> Mapping[str, Any]:
    """How ms-swift opens the model and renders the rows. Raises InputError for another kind."""
    kind = look_up(SWIFT_MODELS, read_config(folder).model_type, "kind of model for ms-swift")
    return {"model_type": kind, "template": template_of(text)}


def translations(session: Session) -> list[tuple[ToolStage, Translated]]:
    """The stages that other tools train and their settings in the words of these, before any of
    them is trained: a later one as if it started from the experiment's model, whose tokenizer and
    shape its start has. Raises InputError for what a tool cannot do."""
    pairs = []
    for name, stage in session.experiment.stage.items():
        if stage.trainer is not None:
            source = stage.start if stage.start.startswith(OTHER_RUN) else session.experiment.model
            each = ToolStage(session, name, stage.trainer, source)
            each.refuse_untrainable()
            pairs.append((each, each.translated(each.settings(each.inputs))))
    return pairs


def stage_alone(experiment: Experiment, name: str, stage: Exported) -> Experiment:
    """An experiment that is one stage, which another tool trains."""
    apart = {"evaluate": {}, "guard": {}, "milestone": {}}
    return experiment.model_copy(update={"stage": {name: stage}, **apart})
