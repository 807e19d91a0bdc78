"""Builds everything a run needs, once: task, data, model, evaluations, fingerprints.

Trains and samples nothing. The teacher of a distill stage is here: whether a student can learn from
it, and what it is asked.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from assay.agents.task import with_agent
from assay.data.row import Row
from assay.data.row_checks import field_value
from assay.errors import InputError, within
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import lines_named
from assay.experiment.reward_tables import RewardSettings
from assay.experiment.selection_tables import SELECTIONS, SYNTHESISE
from assay.experiment.stage_tables import DistillStage, SamplingStage, SftStage, StageSpec
from assay.lab.data.prepare import DataSet, find_order, find_part, prepare_set
from assay.lab.models.helper_models import HelperModels, endpoint_for, in_process
from assay.lab.models.language_learner import LanguageLearner, language_model, model_folder
from assay.lab.models.learner import Learner, LearnerInput, begun_from
from assay.lab.monitor.observer import Observer
from assay.lab.session.evaluation import Evaluation, encoded_evaluation, trained_rows
from assay.lab.session.reward_parts import reward_of
from assay.lab.session.stage_methods import StageInput
from assay.models.load import check_loadable
from assay.models.precision import Precision, choose_precision
from assay.models.supported import read_config, why_plain
from assay.rollout.engines.endpoint.client import Unanswered
from assay.rollout.engines.endpoint.openai_text import read_words
from assay.runs.cost_ledger import CostLedger
from assay.runs.run_directory import RunDirectory, read_manifest
from assay.runs.run_files import read_level
from assay.sandbox.isolation import choose_isolation
from assay.sandbox.pool import WorkerPools
from assay.tasks.helper_model import HelperModel, NextWords, Tokens
from assay.tasks.reward_table import RewardTable
from assay.tasks.running import Judgements, RewardRunner
from assay.tasks.task import (
    BaseTask,
    MadeSource,
    RewardFunction,
    Task,
    labs,
    made_source,
    makers,
    task,
)
from assay.train.checkpoint import Score
from assay.train.likelihood import Tell

TRIED = "Is 12 + 30 = 42? Yes."
"""What a teacher behind an endpoint is asked about before the run."""
SAME_TOKENIZER = "their vocabularies differ: take a teacher with the student's tokenizer"


def teller(
    helpers: Mapping[str, HelperModel], stage: DistillStage, student: LanguageLearner
) -> Tell:
    """Asks the teacher of a stage, which is opened at the first question. Raises InputError where
    a teacher behind an endpoint tells a word that is another one here."""
    known = set[int]()

    def tell(contexts: Sequence[Tokens], answers: Sequence[Tokens]) -> NextWords:
        told = helpers[stage.teacher].read(contexts, answers, stage.loss_top_k)
        if told.told_SN is not None:
            texts = {n: text for n, text in told.texts.items() if n not in known}
            refuse_other(student, stage, int(told.told_SN.max()), texts)
            known.update(texts)
        return told

    return tell


def refuse_other(
    student: LanguageLearner, stage: DistillStage, most: int, texts: Mapping[int, str]
) -> None:
    """Raise InputError where tokens that a teacher told, up to the id `most`, or their texts are
    not the student's."""
    base, names, field = student.base, named(student, stage), f"model.{stage.teacher}.source"
    size = base.config.get_text_config().vocab_size
    problem = f"token {most} is absent to {names[0]}" if most >= size else ""
    if problem := problem or other_text(base.tokenizer, texts, names):
        raise InputError(problem, field=field, fix=SAME_TOKENIZER)


def other_text(tokenizer: Any, texts: Mapping[int, str], names: tuple[str, str]) -> str:
    """The first token whose text is another one here, in a line; "" for none."""
    for number in sorted(texts):
        own, theirs = tokenizer.decode([number]), texts[number]
        # Part of a character has no text of its own.
        if own != theirs and "\ufffd" not in own + theirs:
            return f"token {number} is {own!r} to {names[0]} and {theirs!r} to {names[1]}"
    return ""


def named(student: LanguageLearner, stage: DistillStage) -> tuple[str, str]:
    """Both models, for messages."""
    teacher = student.experiment.helpers[stage.teacher].source
    return f"the student {student.experiment.model}", f"the teacher {teacher}"


def check_teacher(learner: Learner, name: str, stage: DistillStage) -> None:
    """Raise InputError where the teacher of a stage has other words than the student, reads less or
    tells none, or the student is no language model."""
    student = language_model(learner, "distillation")
    spec, field = student.experiment.helpers[stage.teacher], f"model.{stage.teacher}.source"
    if why := why_plain(read_config(student.folder)):
        raise InputError(f"a student cannot be distilled on the plain path: {why}", field="model")
    if not in_process(spec):
        try_endpoint(student, stage)
        return
    with within(field):
        folder = model_folder(spec.source, student.root)
        config, tokenizer = check_loadable(folder)
        if why := why_plain(config):
            problem = f"a teacher on the plain path tells no distributions: {why}"
            raise InputError(problem, fix="ask it behind an endpoint")
    if difference := first_difference(student.base.tokenizer, tokenizer, named(student, stage)):
        raise InputError(difference, field=field, fix=SAME_TOKENIZER)
    if stage.loss_top_k is not None and stage.loss_top_k >= len(tokenizer):
        problem = f"the vocabulary has {len(tokenizer):,} words"
        raise InputError(problem, field=f"stage.{name}.loss_top_k", fix="omit it")
    reads = getattr(config, "max_position_embeddings", None)
    if reads is not None and stage.sampling.max_tokens > reads:
        problem = f"the teacher reads {reads} tokens at once"
        raise InputError(problem, field=f"stage.{name}.sampling.max_tokens", fix="allow fewer")


def try_endpoint(student: LanguageLearner, stage: DistillStage) -> None:
    """Raise InputError where a teacher behind an endpoint tells no words, or others than the
    student's. One that is only busy is left to the run, which asks it again."""
    endpoint = endpoint_for(stage.teacher, student.experiment.helpers[stage.teacher])
    tokens = tuple(student.base.tokenizer.encode(TRIED))
    assert stage.loss_top_k is not None  # the experiment's own check
    try:
        answer = endpoint.connections.wait(endpoint.likely_words(tokens, 1, stage.loss_top_k))
    except Unanswered as error:
        if error.passing:
            return
        fix = "ask a server of vLLM's kind, or for fewer words"
        raise InputError(str(error), field=f"model.{stage.teacher}.source", fix=fix) from error
    told = read_words(answer.text)
    refuse_other(student, stage, int(told.words_TN.max()), told.texts)


def first_difference(student: Any, teacher: Any, names: tuple[str, str]) -> str:
    """The first token, by its id, that two tokenizers have differently, in a line; "" for none."""
    ours, theirs = words_of(student), words_of(teacher)
    for number in sorted(ours.keys() | theirs.keys()):
        one, other = (words.get(number, "absent") for words in (ours, theirs))
        if one != other:
            return f"token {number} is {one} to {names[0]} and {other} to {names[1]}"
    return ""


def words_of(tokenizer: Any) -> dict[int, str]:
    """By id: each token as it is written, the text that it stands for, and whether it is special,
    for a message."""
    added = tokenizer.added_tokens_decoder
    written = {number: word for word, number in tokenizer.get_vocab().items()}
    texts = tokenizer.batch_decode([[n] for n in written], clean_up_tokenization_spaces=False)
    words = {}
    for (number, word), text in zip(written.items(), texts, strict=True):
        special = ", special," if number in added and added[number].special else ""
        words[number] = repr(word) + ("" if text == word else f" ({text!r})") + special
    return words


@dataclass(frozen=True)
class Session:
    """One run at work. The parts are made when they are first asked for, then kept."""

    experiment: Experiment
    run: RunDirectory
    seed: int
    observer: Observer
    checked: Mapping[str, Any] | None = None
    """Findings before the run, see `lab.check.all_checks`; None if it was not checked."""
    pools: WorkerPools | None = None
    """Where all rewards of the session have their workers; None for each its own."""

    def __post_init__(self) -> None:
        choose_isolation(self.experiment.sandbox or "namespaces")

    def copy(self, **changes: Any) -> "Session":
        """The session with other fields; cached parts that do not depend on them are kept."""
        other = replace(self, **changes)
        parts = ["task", "precision", "learner", "sets", "helpers"]
        parts += ["evaluations"] if other.seed == self.seed else []
        other.__dict__.update({p: self.__dict__[p] for p in parts if p in self.__dict__})
        return other

    @contextmanager
    def sharing_workers(self) -> Iterator["Session"]:
        """The session whose rewards share their workers, and whose agent runs, until the outermost
        of these ends."""
        _ = self.helpers  # those of the agent are the run's, whose ledger counts them
        agent = getattr(self.task, "agent", None)
        with WorkerPools() as own:
            try:
                yield self.copy(pools=self.pools or own)
            finally:
                if agent is not None and self.pools is None:
                    agent.close()

    @cached_property
    def task(self) -> Task:
        """The experiment's skill."""
        skill = task(self.experiment.task, self.run.root)
        root, agent = self.run.root, self.experiment.agent
        return with_agent(skill, agent, root, lambda: self.helpers, self.observer.note)

    @cached_property
    def precision(self) -> Precision:
        """The number formats that the run began in; those of the machine before it has started."""
        precision = choose_precision()
        noted = read_manifest(self.run).get("machine", {}).get("precision", {})
        if noted.get("device") != precision.device:
            return precision
        compute = getattr(torch, noted.get("compute", ""), precision.compute)
        return replace(precision, compute=compute, reason=str(noted.get("reason")))

    @cached_property
    def learner(self) -> Learner:
        """What is trained."""
        experiment, root = self.experiment, self.run.root
        source, weights = begun_from(experiment.model, root)
        makers = (lab.learner(source) for lab in self.labs)
        if (make := next(filter(None, makers), None)) is None:
            return LanguageLearner(experiment, root, self.precision)
        return make(LearnerInput(experiment, root, self.precision, source, weights))

    @cached_property
    def labs(self) -> tuple[BaseTask, ...]:
        """The tasks that plug into this run."""
        source, _ = begun_from(self.experiment.model, self.run.root)
        return labs(self.task, source)

    @property
    def made_sources(self) -> list[MadeSource]:
        """What makes rows of the data sets first."""
        named = [data.source for data in self.experiment.data.values()]
        named += [f"{SYNTHESISE}:{table}" for table in self.experiment.synthesise]
        makers = [made_source(self.task, source) for source in named]
        return [*{type(maker): maker for maker in makers if maker is not None}.values()]

    def make_rows(self) -> None:
        """Make what data sets take and nobody made."""
        for maker in self.made_sources:
            maker.make(self)

    @cached_property
    def sets(self) -> Mapping[str, DataSet]:
        """The experiment's data sets."""
        made: dict[str, DataSet] = {}
        context = (self.task, self.learner.encoder, self.run.root, made, self.observer)
        for name in self.experiment.data:
            prepare_set(self.experiment, name, *context)
        return made

    @cached_property
    def evaluations(self) -> Mapping[str, Evaluation]:
        """The experiment's evaluations."""
        if not self.experiment.evaluate:  # its rows may be gone, or were never here
            return {}
        context = (self.task, self.sets, self.learner, self.seed)
        trained = trained_rows(self.experiment.stage, self.sets)
        return {
            name: encoded_evaluation(name, spec, *context, trained, self.run.root)
            for name, spec in self.experiment.evaluate.items()
        }

    @cached_property
    def helpers(self) -> HelperModels:
        """The experiment's helper models by name, each opened when it is first asked for."""
        specs, root = self.experiment.helpers, self.run.root
        return HelperModels(specs, root, self.precision, CostLedger())

    def check_helpers(self) -> None:
        """Raise what `HelperModels.check` does, and InputError for a teacher that its student
        cannot learn from."""
        self.helpers.check()
        for name, stage in self.experiment.stage.items():
            if isinstance(stage, DistillStage):
                check_teacher(self.learner, name, stage)

    def stage_input(
        self,
        stage: StageSpec,
        rows: Sequence[Row] | None = None,
        score: Score | None = None,
    ) -> StageInput:
        """The inputs that the method of a stage is built from: its rows in their order, or those
        that are handed in."""
        rows = self._rows_of_level(stage) if rows is None else rows
        tell = None
        if isinstance(stage, DistillStage):
            tell = teller(self.helpers, stage, language_model(self.learner, "distillation"))
        reward = None if isinstance(stage, SftStage) else stage.reward
        encoder = self.learner.encoder(stage)
        if isinstance(stage, SamplingStage) and stage.sampling.stop is not None:
            encoder = encoder.stopping_at(stage.sampling.stop)
        return StageInput(
            task=self.task,
            rows=find_part(self.sets, stage.data) if rows is None else tuple(rows),
            encoder=encoder,
            seed=self.seed,
            judge=None if reward is None else reward_of(self.task, reward, self.run.root),
            score=score,
            positions=self.learner.positions,
            first_batch_check=self.learner.first_batch_check(stage),
            order=find_order(self.sets, stage.data) if rows is None else None,
            tell=tell,
            observer=self.observer,
        )

    def _rows_of_level(self, stage: StageSpec) -> list[Row] | None:
        """The rows from which a round with levels learns; None of all others, and before it."""
        curriculum = stage.curriculum if isinstance(stage, SamplingStage) else None
        name = next((n for n, each in self.experiment.stage.items() if each == stage), "")
        if curriculum is None or (chosen := read_level(self.run.path, name)) is None:
            return None
        rows = find_part(self.sets, stage.data)
        return [row for row in rows if field_value(row, chosen.by) == chosen.level]

    def reward_runner(
        self,
        reward: RewardFunction | RewardTable,
        settings: RewardSettings,
        journal: Judgements | None = None,
    ) -> RewardRunner:
        """A runner for a reward, in namespaces unless the experiment says otherwise."""
        return RewardRunner(
            reward,
            deadline=settings.reward_deadline,
            workers=settings.reward_workers,
            sandbox=self.experiment.sandbox or "namespaces",
            concurrency=settings.reward_concurrency,
            helpers=self.helpers,
            journal=journal,
            pools=self.pools,
        )


def generate_tables(
    experiment: Experiment,
    root: Path,
    name: str | None,
    observer: Observer,
    scheme: str = SELECTIONS,
) -> list[Any]:
    """Make one table of an experiment, or all of the kind `scheme`. Raises what the maker
    raises."""
    nowhere = RunDirectory(root, experiment.name, "generate")
    session = Session(experiment, nowhere, experiment.seeds[0], observer)
    maker = dict(makers(session.labs))[scheme]
    with lines_named(experiment.origin):
        return maker.generate(session, name)
