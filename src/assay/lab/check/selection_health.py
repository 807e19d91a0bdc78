"""Checks stored selections: whether their groups can teach anything, or what making them costs.

Nothing is made here.
"""

from assay.judge.findings import Finding
from assay.lab.check.subject import Number, Seen, Subject
from assay.lab.generate.generate_selections import missing, queries
from assay.lab.setup.prepare import find_part
from assay.lab.setup.selection_rows import (
    selections_of,
    stored_file,
    stored_findings,
    stored_health,
)
from assay.lab.setup.session import Session
from assay.tasks.demos.beams import searched
from assay.tasks.demos.demonstrations import POOL, SHOTS
from assay.tasks.demos.selection_file import read_selection_file


def stored_groups(subject: Subject) -> Seen:
    """Shares of positives and of groups without signal, of each table that a data set takes."""
    session = subject.session
    experiment = session.experiment
    for data in experiment.data.values():
        if (name := selections_of(data.source)) is None:
            continue
        spec = experiment.selections[name]
        found = read_selection_file(stored_file(experiment, name, session.run.root))
        health = stored_health(found, spec, find_part(session.sets, spec.data))
        place = f"selections.{name}"
        yield from (Number(place, key, value) for key, value in health.numbers().items())
        yield from stored_findings(found, spec, find_part(session.sets, spec.data), place)


def not_made(session: Session) -> Seen:
    """The selections that a run would make first, and what the frozen model is asked for them."""
    for name in missing(session):
        spec, place = session.experiment.selections[name], f"selections.{name}"
        rows = queries(session, spec)
        scores = answers = 0
        for row in rows:
            if spec.kind == "beam":
                scores += searched(len(row.extra[POOL]), row.extra[SHOTS], spec.width)
                answers += spec.width
            else:
                samples = spec.samples * len(spec.temperatures)
                answers += spec.width + samples + spec.similar + spec.random
        yield Number(place, "queries to make selections for", len(rows))
        yield Number(place, "probabilities to ask the frozen model for", scores + answers)
        yield Number(place, "answers to ask the frozen model for", answers)
        yield Finding(
            "warning",
            f"{place}: its selections are not made yet, so nothing else was checked",
            f"the frozen model is asked for about {scores + answers} probabilities and {answers} "
            f"answers to {len(rows)} queries",
            f"assay generate FILE {name} makes them; else a run makes them first",
        )
