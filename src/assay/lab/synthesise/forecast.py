"""What `assay synthesise` will ask and pay at most; `assay check` says it, and asks nobody."""

from collections.abc import Iterator
from datetime import UTC, datetime

from assay.errors import Finding, InputError
from assay.experiment.price_table import units
from assay.experiment.synthesise_table import SYNTHESISE, SynthesiseSpec
from assay.lab.check.subject import Number
from assay.lab.setup.helper_models import price_of
from assay.lab.setup.metering import most_tokens
from assay.lab.setup.prepare import DataSet, find_part, prepare_set
from assay.lab.setup.session import Session
from assay.lab.synthesise.made_set import made_folder, made_rows_file
from assay.lab.synthesise.questions import Question, prompter_of, questions_of
from assay.runs.cost_ledger import read_calls


def forecast(session: Session, table: str) -> Iterator[Finding | Number]:
    """The calls of a table and their price, at most, beside those in the ledger of its set; nothing
    for a set that is whole. Raises InputError, LedgerUnusable."""
    spec, place = session.experiment.synthesise[table], f"{SYNTHESISE}.{table}"
    if is_whole(session, table, spec):
        return
    known, name = recorded(session, table), spec.teacher
    helper = session.experiment.helpers[name]
    price = price_of(name, helper, session.run.root)(datetime.now(UTC).date())
    left = [
        most_tokens(each.messages)
        for each in questions(session, table, spec)
        if (each.caller.problem, each.caller.completion) not in known
    ]
    count = len(left) if spec.calls is None else min(len(left), max(spec.calls - len(known), 0))
    yield Number(place, "calls, at most", count)
    told = f"{place}: at most {count} calls"
    evidence = [f"{len(known)} calls are paid for"] if known else []
    if price is None:
        evidence.append(f"no price of {name} is known")
    else:
        costs = sorted(price.of(read, helper.sampling.max_tokens) for read in left)
        cost = units(sum(costs[len(costs) - count :]))
        yield Number(place, "cost, at most", cost)
        told += f" for {cost:.3g}"
    if helper.budget and helper.budget.run:
        evidence.append(f"model.{name}.budget.run is {helper.budget.run:g}")
    evidence.append("each question and answer of as many tokens as it may have")
    yield Finding("note", told, "; ".join(evidence), f"{place}.calls and budget.run bound them")


def is_whole(session: Session, table: str, spec: SynthesiseSpec) -> bool:
    """Whether all rows that are wanted are there."""
    try:
        file = made_rows_file(session.run.root, session.experiment.name, table, spec)
    except InputError:  # not made, or judged by other settings
        return False
    return len(file.read_text(encoding="utf-8").splitlines()) >= spec.rows


def recorded(session: Session, table: str) -> list[tuple[str, str]]:
    """Row and number of the calls that were answered."""
    folder = made_folder(session.run.root, session.experiment.name, table)
    calls = [each for each in read_calls(folder) if each.stage == table]
    return [(c.problem, c.completion) for c in calls if c.status == "answered"]


def questions(session: Session, table: str, spec: SynthesiseSpec) -> list[Question]:
    """All questions to the teacher."""
    sets: dict[str, DataSet] = {}
    experiment, root = session.experiment, session.run.root
    given = (session.task, session.learner.encoder, root, sets)
    prepare_set(experiment, spec.data.partition(".")[0], *given)
    seeds, prompter = find_part(sets, spec.data), prompter_of(spec, root)
    return [each for _, each in questions_of(table, spec, seeds, prompter, session.seed)]
