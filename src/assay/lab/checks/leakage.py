"""What training rows, choosing items and reporting items share, so that no number is too good.

Benchmark items are looked at without worked examples, whose questions are meant to be shown.
Paraphrases are not found.
"""

from collections.abc import Sequence
from itertools import product

from assay.data.leakage import call_path, overlap
from assay.data.row import Row
from assay.judge.findings import Finding
from assay.lab.checks.subject import Number, Seen, Subject, reading, share_of, some
from assay.lab.prepare import find_part
from assay.lab.trained_items import bare_items, shared_texts

APART = "name the benchmark in the data set's disjoint_from, or take other rows"
ONCE = "leave out the rows that say the same, or give them one conversation, so that a split keeps "
ONCE += "them together"


def leakage(subject: Subject) -> Seen:
    """Every training set against every evaluation; choosing items against reporting items."""
    session = subject.session
    items = {
        name: bare_items(e.spec, e.items, session.task, session.run.root)
        for name, e in session.evaluations.items()
    }
    trained = dict.fromkeys(stage.data for stage in session.experiment.stage.values())
    compared = set()
    for data, (name, evaluation) in product(trained, session.evaluations.items()):
        tested = evaluation.spec.benchmark or evaluation.spec.data or ""
        key = (data, tested, tuple(row.id for row in items[name]))
        if key not in compared:
            compared.add(key)
            rows = find_part(session.sets, data)
            report = evaluation.spec.role == "report"
            yield from shared_with_test(data, rows, f"evaluate.{name}", items[name], report)
    yield from validating(subject)
    yield from choosing_and_reporting(subject, items)


def validating(subject: Subject) -> Seen:
    """Every training set against the rows whose loss is measured beside training."""
    session = subject.session
    trained = dict.fromkeys(stage.data for stage in session.experiment.stage.values())
    for data, (place, stage, validated) in product(trained, reading(session)):
        if validated != stage.data:
            sides = [find_part(session.sets, name) for name in (data, validated)]
            yield from shared_with_test(data, sides[0], place, sides[1], report=False)


def shared_with_test(
    data: str, rows: Sequence[Row], place: str, items: Sequence[Row], report: bool
) -> Seen:
    """Questions, function names and conversations that a training set shares with a test."""
    shared = overlap(rows, items)
    texts = shared_texts(shared)
    yield Number(place, f"questions_shared_with: data.{data}", len(texts))
    if texts:
        exact = len({train for train, _ in shared.exact})
        yield Finding(
            "error" if report else "warning",
            f"data.{data} is trained on and holds questions of {place}",
            f"{share_of(len(texts), len(rows))} training rows, {exact} of them word for word: "
            f"{some(list(texts))}",
            APART if report else ONCE,
        )
    if any(call_path(row) for row in items):
        calls = list(dict.fromkeys(train for train, _ in shared.paths))
        yield Number(place, f"call_paths_shared_with: data.{data}", len(calls))
        if calls:
            yield Finding(
                "error" if report else "warning",
                f"data.{data} is trained on and makes the calls of {place}",
                f"{share_of(len(calls), len(rows))} training rows make all calls of an item, one "
                f"after another: {some(calls)}",
                APART if report else ONCE,
            )
    names = dict.fromkeys(id_ for ids in shared.functions.values() for id_ in ids)
    if names:
        yield Finding(
            "warning" if report else "note",
            f"data.{data} is trained on and has functions of {place}",
            f"{share_of(len(names), len(rows))} training rows: {some(list(shared.functions))}",
            APART if report else ONCE,
        )
    # A row that names no conversation is known by its id, which another file may use as well.
    talks, tested = ({row.conversation for row in side} - {""} for side in (rows, items))
    conversations = talks & tested
    if conversations:
        yield Finding(
            "warning",
            f"data.{data} is trained on and has conversations of {place}",
            f"{len(conversations)}: {some(sorted(conversations))}",
            "split by conversation",
        )


def choosing_and_reporting(subject: Subject, items: dict[str, tuple[Row, ...]]) -> Seen:
    """Items that choose a checkpoint and also report its score."""
    specs = subject.session.experiment.evaluate
    select = [name for name, spec in specs.items() if spec.role == "select"]
    report = [name for name, spec in specs.items() if spec.role == "report"]
    for chooser, reporter in product(select, report):
        shared = overlap(items[chooser], items[reporter])
        ids = list(shared_texts(shared))
        if ids:
            yield Finding(
                "error",
                f"evaluate.{chooser} chooses on items that evaluate.{reporter} reports",
                f"{share_of(len(ids), len(items[chooser]))}: {some(ids)}",
                "the reported score would be too good; choose on other items",
            )
