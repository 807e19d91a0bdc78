"""Finds questions shared by training rows, dev items and reported items, which inflate scores.

Benchmark items are compared without their worked examples. Paraphrases are not found.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from assay.data.leakage import Overlap, Played, call_path, overlap
from assay.data.row import Row
from assay.errors import Finding
from assay.lab.check.subject import (
    SHOWN,
    Number,
    Seen,
    Shared,
    SharedKind,
    Subject,
    reading,
    share_of,
    some,
)
from assay.lab.setup.evaluation import bare_items, plays, shared_texts
from assay.lab.setup.prepare import find_part

WORDS: Mapping[SharedKind, str] = {
    "questions": "holds questions",
    "calls": "makes the calls",
    "functions": "has functions",
    "conversations": "has conversations",
}
OF_KIND: Mapping[SharedKind, str] = {
    "questions": ", {exact} of them word for word",
    "calls": " make all calls of an item, one after another",
    "functions": "",
    "conversations": "",
}
APART = "name the benchmark in the data set's disjoint_from, or take other rows"
HIDDEN = "where its world hides another state, same_prompt = true in its table says so"
ONCE = "leave out the rows that say the same, or give them one conversation, so that a split keeps "
ONCE += "them together"


def leakage(subject: Subject) -> Seen:
    """Every training set against every evaluation; dev items against reported items."""
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
            compared_by = (
                plays(session.task, evaluation.dialogue),
                bool(evaluation.spec.same_prompt),
            )
            place = f"evaluate.{name}"
            yield from shared_with_test(data, rows, place, items[name], report, *compared_by)
    yield from validating(subject)
    yield from choosing_and_reporting(subject, items)


def validating(subject: Subject) -> Seen:
    """Every training set against the rows whose loss is measured beside training."""
    session = subject.session
    trained = dict.fromkeys(stage.data for stage in session.experiment.stage.values())
    for data, (place, stage, validated) in product(trained, reading(session)):
        if validated != stage.data:
            sides = [find_part(session.sets, name) for name in (data, validated)]
            yield from shared_with_test(data, sides[0], place, sides[1], False, plays(session.task))


def shared_with_test(
    data: str,
    rows: Sequence[Row],
    place: str,
    items: Sequence[Row],
    report: bool,
    played: Played,
    same_prompt: bool = False,
) -> Seen:
    """Questions, function names and conversations that a training set shares with a test."""
    both = overlap(rows, items, played, same_prompt)
    dialogues = bool(both.normalised) and any(map(played, items)) and not same_prompt
    for found in shared_parts(data, rows, place, items, report, both):
        if found.kind in ("questions", "calls"):
            name = "questions" if found.kind == "questions" else "call_paths"
            yield Number(place, f"{name}_shared_with: data.{data}", found.rows)
        if found.rows:
            yield found
            finding = finding_of(found)
            hint = f"{finding.fix}; {HIDDEN}" if dialogues and found.kind == "questions" else ""
            yield replace(finding, fix=hint or finding.fix)


def shared_parts(
    data: str,
    rows: Sequence[Row],
    place: str,
    items: Sequence[Row],
    report: bool,
    both: Overlap,
) -> Iterator[Shared]:
    """The overlap of the two sides, kind by kind."""

    def part(kind: SharedKind, ids: Sequence[str], exact: int = 0, names: object = ()) -> Shared:
        named = tuple(sorted(names) if names else ids)[:SHOWN]  # type: ignore[call-overload]
        return Shared(kind, data, place, report, len(ids), len(rows), exact, named)

    yield part("questions", shared_texts(both), len({train for train, _ in both.exact}))
    if any(call_path(row) for row in items):
        yield part("calls", list(dict.fromkeys(train for train, _ in both.paths)))
    ids = dict.fromkeys(id_ for ids in both.functions.values() for id_ in ids)
    yield part("functions", list(ids), names=both.functions)
    # A row that names no conversation is known by its id, which another file may use as well.
    talks = {row.conversation for row in rows} & {item.conversation for item in items} - {""}
    yield part("conversations", [r.id for r in rows if r.conversation in talks], names=talks)


def finding_of(found: Shared) -> Finding:
    """The finding on an overlap: a reported test must share no question with training rows."""
    grave = found.kind in ("questions", "calls")
    fix = APART if found.report else ONCE
    if found.kind == "conversations":
        severity, fix = "warning", "split by conversation"
    elif grave:
        severity = "error" if found.report else "warning"
    else:
        severity = "warning" if found.report else "note"
    said = OF_KIND[found.kind].format(exact=found.exact)
    evidence = f"{share_of(found.rows, found.of)} training rows{said}: {', '.join(found.names)}"
    what = f"data.{found.data} is trained on and {WORDS[found.kind]} of {found.place}"
    return Finding(severity, what, evidence, fix)


def choosing_and_reporting(subject: Subject, items: dict[str, tuple[Row, ...]]) -> Seen:
    """Dev items that are also reported."""
    specs = subject.session.experiment.evaluate
    select = [name for name, spec in specs.items() if spec.role == "select"]
    report = [name for name, spec in specs.items() if spec.role == "report"]
    for chooser, reporter in product(select, report):
        made = subject.session.evaluations[reporter]
        played = plays(subject.session.task, made.dialogue)
        sides = items[chooser], items[reporter]
        shared = overlap(*sides, played, bool(made.spec.same_prompt))
        ids = list(shared_texts(shared))
        if ids:
            yield Finding(
                "error",
                f"evaluate.{chooser} chooses on items that evaluate.{reporter} reports",
                f"{share_of(len(ids), len(items[chooser]))}: {some(ids)}",
                "the reported score would be too good; choose on other items",
            )
