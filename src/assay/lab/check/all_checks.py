"""Runs `assay check`, every problem of an experiment that can be found before training, and those
of its checks that need no forward pass before a run is made.

Of these an error stops the run unless the user overrides it with a reason. The findings are stored
in the manifest under `CHECKED` and shown by pages and comparisons. A run with stored findings is
not checked again, because its data and settings are those of its manifest. Trains nothing.

Checks of settings are here too: what is allowed but seldom intended, learning rates, temperatures
and clips; and what helper models will cost. A judge asks what it declares, reads the prompt and the
answer and writes `max_tokens`, an upper end; how often a program asks nobody knows.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from assay.data.renderings.packed_rows import remembered
from assay.errors import Finding, InputError, worst_first
from assay.experiment.experiment import Experiment
from assay.experiment.price_table import units
from assay.experiment.read_file import name_line
from assay.experiment.stage_tables import OTHER_RUN, DistillStage, GrpoStage, SamplingStage
from assay.experiment.training_settings import LoraAdapt
from assay.judge.templates import filled
from assay.lab.check import work
from assay.lab.check.capability import probe as sample_groups
from assay.lab.check.gold_trials import gold_answers, task_sanity
from assay.lab.check.rendering_mismatch import refuse_other_renderings, renderings, trained
from assay.lab.check.rows import leakage, lengths, rows
from assay.lab.check.subject import Number, Seen, SharedItems, Subject
from assay.lab.evaluate.run_evaluation import answerer_of, read_labels, rubrics_in
from assay.lab.models.language_learner import LANGUAGE_MODEL
from assay.lab.models.learner import encoded_by
from assay.lab.monitor.observer import Observer, Silent
from assay.lab.session.reward_parts import reward_of, rewards_in
from assay.lab.session.session import Session
from assay.lab.session.tool_stage import translations
from assay.rl.losses import LOSSES
from assay.runs.run_directory import CHECKED, RunDirectory, read_manifest
from assay.runs.run_names import stage_start
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.reward_table import RewardTable
from assay.tasks.task import RewardFunction
from assay.train.grpo import algorithm_of, most

Check = Callable[[Subject], Seen]


COLD = 0.3
"""Below this temperature the completions of a group are nearly the same."""
LORA_LOW, FULL_HIGH = 2e-6, 1e-4


def smells(subject: Subject) -> Seen:
    """Every stage."""
    for name, stage in subject.session.experiment.stage.items():
        if not isinstance(stage, GrpoStage):
            continue
        temperature = most(stage.sampling.temperature)
        if temperature < COLD:
            what = f"stage.{name}: the completions of a group will be nearly the same"
            fix = "GRPO learns from differences inside a group: use a temperature near 1"
            yield Finding("warning", what, f"temperature {temperature:g}", fix)
        yield from idle_clip(f"stage.{name}", stage)


def learning_rates(subject: Subject) -> Seen:
    """Learning rates of a language model's stages that belong to the other way of training."""
    for name, stage in subject.session.experiment.stage.items():
        rate, lora = stage.optimizer.lr, isinstance(stage.adapt, LoraAdapt)
        if lora and rate <= LORA_LOW:
            what, fix = "a learning rate for full training with LoRA", "LoRA wants about 1e-4"
        elif not lora and rate >= FULL_HIGH:
            what = "a learning rate for LoRA with full training"
            fix = "full training wants about 1e-5 or less"
        else:
            continue
        yield Finding("warning", f"stage.{name}: {what}", f"lr = {rate:g}", fix)


def idle_clip(place: str, stage: GrpoStage) -> Seen:
    """A loss or clip that is the preset's or the stage's own, where every ratio is 1: the gradient
    is then the plain policy gradient's, whatever the loss."""
    algorithm = algorithm_of(stage)
    loss, clip = algorithm.loss, algorithm.clip
    bounds = [name for name, value in stage.clip if value is not None]
    own = stage.loss is not None or bounds or clip.low != clip.high
    several = stage.updates.minibatches * stage.updates.epochs > 1
    if own and LOSSES[loss].reads and not (several or stage.stored):
        what = f"{place}: with one update for each rollout the loss {loss!r} and its clip do "
        what += "nothing: it trains by the plain policy gradient"
        told = f"algorithm {stage.algorithm!r}, updates {{ minibatches = 1, epochs = 1 }}: every "
        told += "ratio is 1, inside any bounds"
        fix = "make several updates of a rollout (updates.minibatches or updates.epochs), or read "
        fix += "the result as that of the advantage and the average alone"
        yield Finding("warning", what, told, fix)


def other_trainers(subject: Subject) -> Seen:
    """What is not the same in the tools that train stages."""
    for each, made in translations(subject.session):
        for one in made.differences:
            what = f"stage.{each.name}.{one.key}: {each.trainer.title} {one.what}"
            told = "allowed by name" if one.allowed else "another definition"
            yield Finding("note", what, told, "nothing; the run's page lists it")


JudgedCompletions = tuple[int, float, int | None]
"""The completions of one stage or evaluation whose reward asks a helper model; mean tokens of one
with its prompt; the questions about each, None where a reward leaves them to the completion."""


def helper_uses(subject: Subject) -> Seen:
    """Requests and price of each declared model."""
    session = subject.session
    seeds = len(session.experiment.seeds)
    for name, spec in session.experiment.helpers.items():
        uses = judged_with(subject, name)
        completions = sum(count for count, _, _ in uses) * seeds
        if not completions:
            yield Number(f"model.{name}", "requests", 0)
            continue
        if any(questions is None for _, _, questions in uses):
            what = f"helper model {name}: what it will cost is not known"
            told = f"each of {completions} completions asks as often as it likes"
            fix = "a run of a few steps shows how many requests there are for each: assay costs"
            yield Finding("note", what, told, fix)
            continue
        requests = sum(count * (questions or 0) for count, _, questions in uses) * seeds
        yield Number(f"model.{name}", "requests", requests)
        if (price := spec.token_price) is None:
            continue
        tokens = sum(count * each for count, each, _ in uses) * seeds / completions
        read, written = round(requests * tokens), requests * spec.sampling.max_tokens
        cost = units(price.of(read, written))
        yield Number(f"model.{name}", "cost", cost)
        what = f"helper model {name}: about {cost:.2f} for {requests} requests at its price"
        told = f"as the reward asks {completions} completions: {read} tokens read, {written} "
        told += "written at most"
        yield Finding("note", what, told, f'bound it: [budget] "helper/{name}/cost"')


def judged_with(subject: Subject, name: str) -> list[JudgedCompletions]:
    """The completions of each stage and evaluation that a helper model is asked about, by a reward
    or as a teacher."""
    session, uses = subject.session, list[JudgedCompletions]()
    for stage in session.experiment.stage.values():
        if not isinstance(stage, SamplingStage) or not (sizes := work.stage_work(subject, stage)):
            continue
        tokens, visits = sizes.prompt + sizes.answer_most, sizes.steps * sizes.prompts
        if not stage.stored and stage.reward is not None:
            score = reward_of(session.task, stage.reward, session.run.root)
            uses += asking(score, name, visits * sizes.group, tokens)
        if isinstance(stage, DistillStage) and stage.teacher == name:
            each = stage.lmbda * sizes.group + 1 - stage.lmbda
            uses.append((math.ceil(visits * each), tokens, 1))
    for evaluation in session.evaluations.values():
        golds = subject.golds_of_items(evaluation).answers
        prompt = sum(gold.prompt_size for gold in golds) / max(len(golds), 1)
        items = sum(work.asked_items(subject, evaluation))
        tokens = prompt + evaluation.spec.sampling.max_tokens
        uses += asking(evaluation.score, name, items * evaluation.spec.repeats, tokens)
    return uses


def asking(
    score: RewardFunction | RewardTable, name: str, completions: int, tokens: float
) -> list[JudgedCompletions]:
    """What a score asks a helper model about its completions; nothing where it asks another."""
    judges = [each for each in rewards_in(score).values() if isinstance(each, JudgeReward)]
    counts = [each.questions for each in judges if name in each.helpers]
    told = [count for count in counts if count is not None]
    questions = sum(told) if len(told) == len(counts) else None
    return [(completions, tokens, questions)] if counts else []


def judges(subject: Subject) -> Seen:
    """The rubrics of stages and evaluations: whether anybody holds their judges to labels."""
    for use in rubrics_in(subject.session):
        name, file = use.kind, use.opened.labels
        if file is None:
            what = f"{name}: nobody knows whether people agree with the judge"
            fix = "let people label some answers: labels = FILE in the rubric"
            yield Finding(
                "warning", what, "the rubric names no labels; its scores pass no gate", fix
            )
            continue
        try:
            labels = read_labels(file, use.opened.rubric)
        except InputError as wrong:
            yield Finding("error", f"{name}: labels cannot be read", str(wrong), "mend the file")
            continue
        yield Number(name, "labelled answers", len(labels))
        questions = 2 if use.opened.rubric.both_orders else 1
        yield Number(name, "questions about them", len(labels) * questions)


CHECKS: Mapping[str, Check] = {
    "rows": rows,
    "gold answers and controls": gold_answers,
    "rewards twice and dialogues": task_sanity,
    "lengths": lengths,
    "leakage": leakage,
    "settings": smells,
    "preference pairs": work.preference_pairs,
    "helper models": work.helper_memory,
    "judges": judges,
}
"""Those of every experiment, in the order in which they are asked."""

COMPUTING = "speed"
"""The check that runs the model; the others take seconds."""
LEARNER_CHECKS: dict[str, Mapping[str, Check]] = {
    LANGUAGE_MODEL: {
        "renderings": renderings,
        "what is trained": trained,
        "learning rates": learning_rates,
        "other trainers": other_trainers,
        "price of helper models": helper_uses,
        "memory and disk": work.room,
        COMPUTING: work.speed,
    },
}
"""Further ones by the name of the learner; a task has its own (`BaseTask.checks`)."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Findings, worst first, and measurements."""

    findings: tuple[Finding, ...]
    numbers: Mapping[str, Mapping[str, float]]
    """Table of the experiment -> name of the measurement with its unit -> value."""
    shared: tuple[SharedItems, ...] = ()
    """The overlap of training rows and tests."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def counts(self) -> dict[str, int]:
        """Findings by severity: errors, warnings, notes."""
        every = [finding.severity for finding in self.findings]
        return {severity: every.count(severity) for severity in ("error", "warning", "note")}

    @property
    def failed(self) -> bool:
        """Whether anything found is an error."""
        return bool(self.errors)


def check_experiment(
    experiment: Experiment,
    *,
    root: Path,
    observer: Observer | None = None,
    probe: int = 0,
) -> CheckResult:
    """Check an experiment that was read whole; `probe` prompts of each stage are sampled.

    An experiment whose model, data or evaluations cannot be opened gets that error alone.
    """
    watching = observer or Silent()
    nowhere = RunDirectory(root, experiment.name, "check")
    session = Session(experiment, nowhere, experiment.seeds[0], watching)
    answerer, seen = answerer_of(session), list[Finding | Number | SharedItems]()
    try:
        seen += [one for maker in session.made_sources for one in maker.unmade(session)]
        if any(isinstance(one, Finding) and one.severity != "note" for one in seen):
            return gather(seen)
        answerer.check()
        session.check_helpers()
        answerer.evaluations()
        if answerer.in_process:
            _ = session.sets
        translations(session)
    except InputError as error:
        name_line(error, experiment.origin)
        where = ":".join(str(part) for part in (error.file, error.line) if part is not None)
        what = f"{error.field}: {error.problem}" if error.field else error.problem
        fix = error.fix or "correct it and check again"
        return gather([Finding("error", what, where, fix), *seen])
    if not answerer.in_process:
        # For an endpoint, it is enough that it answers and that the items exist.
        return gather(seen)
    checks = checks_of(session)
    if probe:
        checks[f"probe of {probe} prompts"] = partial(sample_groups, prompts=probe)
    return gather([*seen, *asked(session, checks, watching)])


def checks_of(session: Session) -> dict[str, Check]:
    """The checks that apply to an experiment, in their order."""
    own = {name: check for lab in session.labs for name, check in lab.checks.items()}
    return {**CHECKS, **own, **LEARNER_CHECKS.get(session.learner.name, {})}


def asked(
    session: Session, checks: Mapping[str, Check], observer: Observer
) -> list[Finding | Number | SharedItems]:
    """The results of the checks on an opened experiment; `observer` is told how far they are."""
    seen: list[Finding | Number | SharedItems] = []
    with session.sharing_workers() as sharing:
        subject = Subject(sharing)
        for done, (name, check) in enumerate(checks.items()):
            observer.work("checking", done, len(checks), name)
            seen += kept_check(subject, name, check) if name in KEPT else check(subject)
    observer.work("checking", len(checks), len(checks))
    return seen


KEPT = ("rows", "lengths", "leakage", "renderings", "what is trained")
"""Checks whose results depend on rows, settings and the model alone."""
KINDS: Any = {each.__name__: each for each in (Finding, Number, SharedItems)}


def kept_check(subject: Subject, name: str, check: Check) -> list[Finding | Number | SharedItems]:
    """What a check says, as it was when all that it depends on was the same."""
    session, experiment = subject.session, subject.session.experiment
    rows = [row for made in session.sets.values() for row in made.rows]
    rows += [row for made in session.evaluations.values() for row in made.items]
    tables = [*experiment.stage.values(), *experiment.evaluate.values()]
    settings: Any = [encoded_by(session.task, session.learner.encoder(each)) for each in tables]
    sets = [
        (replace(made, train=(), dev=(), test=()), len(made.train), len(made.dev))
        for made in session.sets.values()
    ]
    model = session.learner.fingerprint, session.learner.positions
    settings.append(repr((sets, model, experiment.model_dump(exclude={"seeds"}))))
    told = remembered(
        f"check {name}",
        rows,
        None if None in settings else settings,
        lambda: [[type(one).__name__, asdict(one)] for one in check(subject)],
    )
    return [KINDS[kind](**values) for kind, values in told]


def gather(seen: Sequence[Finding | Number | SharedItems]) -> CheckResult:
    """Findings once each and worst first, numbers by their table."""
    findings = dict.fromkeys(one for one in seen if isinstance(one, Finding))
    numbers: dict[str, dict[str, float]] = {}
    for one in seen:
        if isinstance(one, Number):
            numbers.setdefault(one.place, {})[one.name] = one.value
    shared = tuple(one for one in seen if isinstance(one, SharedItems))
    return CheckResult(tuple(worst_first(list(findings))), numbers, shared)


TOKENS = "conversation_tokens_"
GO_ON = "or go on all the same with --despite REASON"


def looked_at(session: Session, despite: str | None = None) -> Session:
    """The session with the findings of the checks.

    Raises InputError for errors, unless a reason overrides them; for an empty reason, for other
    renderings or bases, which no reason overrides; and what opening its parts raises. Stored
    findings are kept. A model that is not in this process is not checked.
    """
    reason = reason_of(despite)
    session.check_helpers()
    if not answerer_of(session).in_process:
        return session
    if (known := read_manifest(session.run).get(CHECKED)) is not None:
        if reason:
            before = known.get("despite")
            why = f"overridden already: {before}" if before else "no check ended with an error"
            words = f"--despite: {session.run} was checked when it was made; {why}"
            session.observer.note(words)
        return session
    cheap = checks_of(session)
    cheap.pop(COMPUTING, None)
    for part in ("learner", "sets", "evaluations"):
        getattr(session, part)  # opened here, reused by the run
    refuse_other_renderings(session)
    refuse_other_bases(session)
    translations(session)
    began = time.monotonic()
    report = gather(asked(session.copy(observer=Silent()), cheap, session.observer))
    session.helpers.costs()  # what the checks asked is no cost of the first step
    if report.errors and not reason:
        each = [
            InputError(f"{error.what}: {error.evidence}", fix=f"{error.fix}; {GO_ON}")
            for error in report.errors
        ]
        unsound = InputError("; ".join(one.problem for one in each), fix=each[-1].fix)
        unsound.each = tuple(each)
        raise unsound
    warnings = [finding for finding in report.findings if finding.severity == "warning"]
    figures = {"seconds": time.monotonic() - began, "warnings": len(warnings)}
    words = "checked in {seconds:.1f} s: {warnings:warnings}, see 'assay check'"
    session.observer.note(filled(words, figures))
    for each in warnings:
        session.observer.note(f"warning: {' '.join(each.what.split())}")
    if reason and not report.errors:
        session.observer.note("--despite: no check ends with an error, so nothing is overridden")
    overridden = {"despite": reason} if report.errors else {}
    errors = [asdict(error) for error in report.errors]
    shared = [asdict(each) for each in report.shared]
    tokens = {
        place: {name: value for name, value in values.items() if name.startswith(TOKENS)}
        for place, values in report.numbers.items()
    }
    seen = {"errors": errors, "shared": shared, "tokens": tokens}
    return session.copy(checked={**overridden, **seen})


def refuse_other_bases(session: Session) -> None:
    """Raise InputError where a stage starts from a run that began with another model."""
    for name, stage in session.experiment.stage.items():
        if not stage.start.startswith(OTHER_RUN):
            continue
        run, _ = stage_start(session.run, stage)
        began = read_manifest(run).get("base_weights", {}).get("sha256")
        if began != (own := session.learner.fingerprint):
            problem = f"{run} began with a model of fingerprint {began}, this model has {own}"
            fix = "name the model of that run, or start from a run of this model"
            raise InputError(problem, field=f"stage.{name}.start", fix=fix)


def reason_of(despite: str | None) -> str:
    """A reason on one line; "" where none is asked for. Raises InputError."""
    if despite is None:
        return ""
    if not (reason := " ".join(despite.split())):
        raise InputError("is empty", field="--despite", fix="say why the run is made all the same")
    return reason
