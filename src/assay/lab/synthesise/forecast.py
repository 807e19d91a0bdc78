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
from assay.lab.synthesise.place import made_folder, made_rows_file
from assay.lab.synthesise.questions import AGREE, Question, prompter_of, questions_of
from assay.runs.cost_ledger import read_calls


def forecast(session: Session, table: str) -> Iterator[Finding | Number]:
    """The calls of a table and their price, at most, beside those in the ledger of its set; nothing
    for a set that is whole. Raises InputError, LedgerUnusable."""
    spec, place = session.experiment.synthesise[table], f"{SYNTHESISE}.{table}"
    if is_whole(session, table, spec):
        return
    every = calls_left(session, table, spec)
    names = dict.fromkeys(name for name, _, _ in every)
    helpers, today = session.experiment.helpers, datetime.now(UTC).date()
    prices = {name: price_of(name, helpers[name], session.run.root)(today) for name in names}
    unpriced = [name for name in names if prices[name] is None]
    found = [
        price.of(read, written) if (price := prices[name]) else 0 for name, read, written in every
    ]
    before = len(recorded(session, table))
    count = len(every) if spec.calls is None else min(len(every), max(spec.calls - before, 0))
    cost = units(sum(sorted(found)[len(found) - count :]))
    yield Number(place, "calls, at most", count)
    told = f"{place}: at most {count} calls"
    if len(unpriced) < len(names):
        yield Number(place, "cost, at most", cost)
        told += f" for {cost:.3g}"
    evidence = [f"{before} calls are paid for"] if before else []
    for name in names:
        budget = helpers[name].budget
        evidence += [f"model.{name}.budget.run is {budget.run:g}"] if budget and budget.run else []
    evidence += [f"no price of {name} is known" for name in unpriced]
    evidence.append("each question and answer of as many tokens as it may have")
    yield Finding("note", told, "; ".join(evidence), f"{place}.calls and budget.run bound them")


def is_whole(session: Session, table: str, spec: SynthesiseSpec) -> bool:
    """Whether all rows that are wanted are there."""
    try:
        file = made_rows_file(session.run.root, session.experiment.name, table, spec)
    except InputError:  # not made, or judged by other settings
        return False
    return len(file.read_text(encoding="utf-8").splitlines()) >= spec.rows


def recorded(session: Session, table: str) -> list[tuple[str, str, str]]:
    """Operator, row and number of the calls that were answered."""
    folder = made_folder(session.run.root, session.experiment.name, table)
    calls = [each for each in read_calls(folder) if each.stage == table]
    return [(c.operator, c.problem, c.completion) for c in calls if c.status == "answered"]


def calls_left(session: Session, table: str, spec: SynthesiseSpec) -> list[tuple[str, int, int]]:
    """Model, tokens read and tokens written, at most, of each call that may come: a question that
    is not answered yet, and the answers of `agree`, where an answer of the teacher is one row."""
    helpers, known = session.experiment.helpers, recorded(session, table)
    every = questions(session, table, spec)
    written = helpers[spec.teacher].sampling.max_tokens
    asked = [each for each in every if _place(each) not in known]
    left = [(spec.teacher, most_tokens(each.messages), written) for each in asked]
    if (agree := spec.agree) is not None:
        solver = agree.model or spec.teacher
        count = len(every) * agree.samples - sum(operator == AGREE for operator, _, _ in known)
        # A made question is no longer than the whole answer that it stands in.
        own = most_tokens(()) + written
        left += [(solver, own, helpers[solver].sampling.max_tokens)] * max(count, 0)
    return left


def _place(question: Question) -> tuple[str, str, str]:
    caller = question.caller
    return caller.operator, caller.problem, caller.completion


def questions(session: Session, table: str, spec: SynthesiseSpec) -> list[Question]:
    """All questions to the teacher."""
    sets: dict[str, DataSet] = {}
    experiment, root = session.experiment, session.run.root
    given = (session.task, session.learner.encoder, root, sets)
    prepare_set(experiment, spec.data.partition(".")[0], *given)
    seeds, prompter = find_part(sets, spec.data), prompter_of(spec, root)
    return [each for _, each in questions_of(table, spec, seeds, prompter, session.seed)]
