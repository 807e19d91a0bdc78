"""Runs the checks of `assay check` that need no forward pass, before a run is made.

An error stops the run unless the user overrides it with a reason. The findings are stored in the
manifest under `CHECKED` and shown by pages and comparisons. A run with stored findings is not
checked again, because its data and settings are those of its manifest.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from assay.errors import InputError
from assay.experiment.helper_tables import choice
from assay.experiment.stage_tables import OTHER_RUN
from assay.judge.findings import Finding, filled
from assay.lab.check.all_checks import COMPUTING, Check, asked, checks_of
from assay.lab.check.rendering_mismatch import refuse_other_renderings
from assay.lab.evaluate.run_evaluation import answerer_of
from assay.lab.monitor.observer import Silent
from assay.lab.setup.session import Session
from assay.runs.manifest_file import CHECKED, read_manifest
from assay.runs.run_names import stage_start

GO_ON = "or go on all the same with --despite REASON"


class Unsound(InputError):
    """The checks before a run end with errors."""

    def __init__(self, errors: Sequence[Finding]):
        each = tuple(
            InputError(f"{error.what}: {error.evidence}", fix=f"{error.fix}; {GO_ON}")
            for error in errors
        )
        super().__init__("; ".join(one.problem for one in each), fix=each[-1].fix)
        self.each = each


class OtherBase(InputError):
    """A stage starts from a checkpoint of another model."""


class NoReason(InputError):
    """Errors are overridden without a reason."""


def looked_at(session: Session, despite: str | None = None) -> Session:
    """The session with the findings of the checks.

    Raises Unsound for errors, unless a reason overrides them; NoReason for an empty one;
    OtherRendering, which only the stage itself can allow; OtherBase; and what opening its parts
    raises. Stored findings are kept. A model that is not in this process is not checked.
    """
    reason = reason_of(despite)
    tell_choices(session)
    session.helpers.check()
    if not answerer_of(session).in_process:
        return session
    if (known := read_manifest(session.run).get(CHECKED)) is not None:
        tell_known(session, known, reason)
        return session
    cheap = cheap_checks(session)
    for part in ("learner", "sets", "evaluations"):
        getattr(session, part)  # opened here, reused by the run
    refuse_other_renderings(session)
    refuse_other_bases(session)
    began = time.monotonic()
    found = asked(session.copy(observer=Silent()), cheap, session.observer)
    session.helpers.costs()  # what the checks asked is no cost of the first step
    if found.errors and not reason:
        raise Unsound(found.errors)
    warnings = sum(finding.severity == "warning" for finding in found.findings)
    figures = {"seconds": time.monotonic() - began, "warnings": warnings}
    words = "checked in {seconds:.1f} s: {warnings:warnings}, see 'assay check'"
    session.observer.note(filled(words, figures))
    if reason and not found.errors:
        session.observer.note("--despite: no check ends with an error, so nothing is overridden")
    overridden = {"despite": reason} if found.errors else {}
    errors = [asdict(error) for error in found.errors]
    shared = [asdict(each) for each in found.shared]
    return session.copy(checked={**overridden, "errors": errors, "shared": shared})


def tell_choices(session: Session) -> None:
    """Say which models answer for the helper tables that name two."""
    begun = session.run.spec.exists()
    for name, spec in session.experiment.helpers.items():
        if said := choice(name, spec, begun):
            session.observer.note(said)


def refuse_other_bases(session: Session) -> None:
    """Raise OtherBase where a stage starts from a run that began with another model."""
    for name, stage in session.experiment.stage.items():
        if not stage.start.startswith(OTHER_RUN):
            continue
        run, _ = stage_start(session.run, stage)
        began = read_manifest(run).get("base_weights", {}).get("sha256")
        if began != session.learner.fingerprint:
            raise OtherBase(
                f"{run} began with a model of fingerprint {began}, this experiment's model has "
                f"{session.learner.fingerprint}",
                field=f"stage.{name}.start",
                fix="name the model of that run, or start from a run of this model",
            )


def cheap_checks(session: Session) -> dict[str, Check]:
    """The checks that run no model."""
    checks = checks_of(session).items()
    return {name: check for name, check in checks if name not in COMPUTING}


def tell_known(session: Session, known: Mapping[str, Any], reason: str) -> None:
    """Warn what a new reason does for a run that was checked before."""
    if not reason:
        return
    said = known.get("despite")
    why = f"overridden already: {said}" if said else "no check ended with an error"
    session.observer.note(f"--despite: {session.run} was checked when it was made; {why}")


def reason_of(despite: str | None) -> str:
    """A reason on one line; "" where none is asked for. Raises NoReason."""
    if despite is None:
        return ""
    if not (reason := " ".join(despite.split())):
        raise NoReason("is empty", field="--despite", fix="say why the run is made all the same")
    return reason
