"""Runs `assay check`: every problem of an experiment that can be found before training.

Calls the checks of `lab.check` in order and collects their findings. Trains nothing and makes no
run.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from assay.errors import InputError
from assay.experiment.read_file import ExperimentSource, name_line
from assay.judge.findings import Finding, worst_first
from assay.lab.check.capability import probe as sample_groups
from assay.lab.check.gold_trials import gold_answers
from assay.lab.check.helper_uses import answering, helper_uses
from assay.lab.check.memory_and_disk import helper_memory, room
from assay.lab.check.preference_pairs import preference_pairs
from assay.lab.check.rendering_mismatch import renderings
from assay.lab.check.rows import lengths, rows
from assay.lab.check.shared_items import leakage
from assay.lab.check.subject import Histogram, Number, Seen, Shared, Subject
from assay.lab.check.task_sanity import task_sanity
from assay.lab.check.trained_tokens import trained
from assay.lab.check.unusual_settings import learning_rates, smells
from assay.lab.check.work import speed
from assay.lab.evaluate.answerer import Answerer
from assay.lab.evaluate.run_evaluation import answerer_of
from assay.lab.monitor.observer import Observer, Silent
from assay.lab.setup.language_learner import LANGUAGE_MODEL
from assay.lab.setup.session import Session
from assay.lab.setup.validate import read_whole
from assay.runs.run_directory import RunDirectory

Check = Callable[[Subject], Seen]
Place = Callable[[InputError], None]
"""Makes an error of a field of the experiment name the line of its file."""

CHECKS: Mapping[str, Check] = {
    "rows": rows,
    "gold answers and controls": gold_answers,
    "rewards twice and dialogues": task_sanity,
    "lengths": lengths,
    "leakage": leakage,
    "settings": smells,
    "preference pairs": preference_pairs,
    "helper models": helper_memory,
}
"""Those of every experiment, in the order in which they are asked."""
PRICE = "price of helper models"
LEARNER_CHECKS: dict[str, Mapping[str, Check]] = {
    LANGUAGE_MODEL: {
        "renderings": renderings,
        "what is trained": trained,
        "learning rates": learning_rates,
        PRICE: helper_uses,
        "memory and disk": room,
        "speed": speed,
    },
}
"""Further ones by the name of the learner; a task has its own (`BaseTask.checks`)."""
COMPUTING = ("speed",)
"""Checks that run the model; the others take seconds."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Findings, worst first, and measurements."""

    findings: tuple[Finding, ...]
    numbers: Mapping[str, Mapping[str, float]]
    """Table of the experiment -> name of the measurement with its unit -> value."""
    histograms: tuple[Histogram, ...] = ()
    shared: tuple[Shared, ...] = ()
    """The overlap of training rows and tests."""

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def counts(self) -> dict[str, int]:
        """Findings by severity: errors, warnings, notes."""
        found = Counter(finding.severity for finding in self.findings)
        return {severity: found[severity] for severity in ("error", "warning", "note")}

    @property
    def failed(self) -> bool:
        """Whether anything found is an error."""
        return bool(self.errors)


def check_experiment(
    source: ExperimentSource,
    overrides: Sequence[str] = (),
    *,
    root: Path,
    probe: int = 0,
    calls: float | None = None,
    observer: Observer | None = None,
) -> CheckResult:
    """Check an experiment in the lab at `root`; `probe` prompts are sampled for each stage, and
    `calls` requests to a helper model are counted for each completion.

    An experiment whose model, data or evaluations cannot be opened gets that error alone. Raises
    SpecError, OverrideError and UnknownNameError where the file itself is wrong.
    """
    experiment = read_whole(source, overrides, root)
    watching = observer or Silent()
    nowhere = RunDirectory(root, experiment.name, "check")
    session = Session(experiment, nowhere, experiment.seeds[0], watching)
    answerer = answerer_of(session)
    place = partial(name_line, source=source, overrides=overrides)
    if lacking := rows_to_make(session, place):
        return lacking
    unopened = opening_error(session, answerer, place)
    chosen = [*answering(experiment)]
    if unopened is not None:
        return gather([unopened, *chosen])
    if not answerer.in_process:
        # For an endpoint, it is enough that it answers and that the items exist.
        return gather(chosen)
    checks = checks_of(session)
    if calls is not None and PRICE in checks:
        checks[PRICE] = partial(helper_uses, calls=calls)
    if probe:
        checks[f"probe of {probe} prompts"] = partial(sample_groups, prompts=probe)
    found = asked(session, checks, watching)
    return replace(found, findings=tuple(worst_first([*found.findings, *chosen])))


def rows_to_make(session: Session, place: Place) -> CheckResult | None:
    """What has to be made for data sets first; None where it is there. An experiment whose rows
    cannot be read gets that error alone."""
    try:
        found = gather([one for maker in session.made_sources for one in maker.unmade(session)])
    except InputError as error:
        return CheckResult((error_finding(error, place),), {})
    return found if found.findings else None


def checks_of(session: Session) -> dict[str, Check]:
    """The checks that apply to an experiment, in their order."""
    own = {name: check for lab in session.labs for name, check in lab.checks.items()}
    return {**CHECKS, **own, **LEARNER_CHECKS.get(session.learner.name, {})}


def asked(session: Session, checks: Mapping[str, Check], observer: Observer) -> CheckResult:
    """The findings of the checks on an opened experiment; `observer` is told how far they are."""
    subject = Subject(session)
    seen: list[Finding | Number | Histogram | Shared] = []
    for done, (name, check) in enumerate(checks.items()):
        observer.work("checking", done, len(checks), name)
        seen += check(subject)
    observer.work("checking", len(checks), len(checks))
    return gather(seen)


def opening_error(session: Session, answerer: Answerer, place: Place) -> Finding | None:
    """The first error that keeps the experiment from being opened; None if it opens."""
    try:
        answerer.check()
        session.helpers.check()
        answerer.evaluations()
    except InputError as error:
        return error_finding(error, place)
    return None


def error_finding(error: InputError, place: Place) -> Finding:
    """What is wrong with the input, as a finding."""
    place(error)
    where = ":".join(str(part) for part in (error.file, error.line) if part is not None)
    what = f"{error.field}: {error.problem}" if error.field else error.problem
    return Finding("error", what, where, error.fix or "correct it and check again")


def gather(seen: Sequence[Finding | Number | Histogram | Shared]) -> CheckResult:
    """Findings once each and worst first, numbers by their table."""
    findings = dict.fromkeys(one for one in seen if isinstance(one, Finding))
    numbers: dict[str, dict[str, float]] = {}
    for one in seen:
        if isinstance(one, Number):
            numbers.setdefault(one.place, {})[one.name] = one.value
    histograms = tuple(one for one in seen if isinstance(one, Histogram))
    shared = tuple(one for one in seen if isinstance(one, Shared))
    return CheckResult(tuple(worst_first(list(findings))), numbers, histograms, shared)
