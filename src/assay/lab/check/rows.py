"""Checks the rows of data sets: counts, omitted rows, ids, tools, missing answers, token lengths.

Reads the prepared data and changes none of it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from assay.data.conversation import NULLS
from assay.data.leakage import Played, call_path, overlap
from assay.data.loaded import UNREADABLE, DataError, Record
from assay.data.row import Row
from assay.data.row_checks import NO_TOOLS, UNDECLARED, WHERE, conflicts
from assay.data.splits import Fixed, Mixture, length_statistics
from assay.data.tools import parse_tools
from assay.errors import Finding, Severity, within
from assay.experiment.base_table import RenderingSettings
from assay.experiment.stage_tables import (
    DistillStage,
    DpoStage,
    SamplingStage,
    SftStage,
    counts_rows,
    rows_per_step,
    steps_of,
)
from assay.lab.check.subject import (
    SHOWN,
    Golds,
    Number,
    Seen,
    SharedItems,
    SharedKind,
    Subject,
    on_rows,
    reading,
    reward_uses,
    samples,
    share_of,
    some,
    target_messages,
    with_line,
)
from assay.lab.data.prepare import (
    LONGER,
    SHORTER,
    TOO_LONG,
    DataSet,
    find_order,
    find_part,
)
from assay.lab.models.learner import question
from assay.lab.session.evaluation import bare_items, plays, shared_texts

WORDS: Mapping[SharedKind, tuple[str, str]] = {
    "questions": ("holds questions", ", {} of them word for word"),
    "calls": ("makes the calls", " make all calls of an item, one after another"),
    "functions": ("has functions", ""),
    "conversations": ("has conversations", ""),
}
APART = "name the benchmark in the data set's disjoint_from, or take other rows"
HIDDEN = "where its world hides another state, same_prompt = true in its table says so"
ONCE = "leave out the rows that say the same, or give them one conversation, so that a split keeps "
ONCE += "them together"
OTHERS = "the reported score would be too good; choose on other items"


def leakage(subject: Subject) -> Seen:
    """Every training set against every evaluation and the rows whose loss is measured beside
    training; dev items against reported items."""
    session = subject.session
    specs, task = session.experiment.evaluate, session.task
    made = session.evaluations.items()
    items = {name: bare_items(e.spec, e.items, task, session.run.root) for name, e in made}
    trained = dict.fromkeys(stage.data for stage in session.experiment.stage.values())
    compared = set()
    for data, (name, each) in product(trained, made):
        tested = each.spec.benchmark or each.spec.data or ""
        key = (data, tested, tuple(row.id for row in items[name]))
        if key not in compared:
            compared.add(key)
            place, report = f"evaluate.{name}", each.spec.role == "report"
            how = plays(task, each.dialogue), bool(each.spec.same_prompt)
            rows = find_part(session.sets, data)
            yield from shared_with_test(data, rows, place, items[name], report, *how)
    for data, (place, stage, validated) in product(trained, reading(session)):
        if validated != stage.data:
            sides = [find_part(session.sets, name) for name in (data, validated)]
            yield from shared_with_test(data, sides[0], place, sides[1], False, plays(task))
    for chooser, reporter in product(specs, specs):
        if (specs[chooser].role, specs[reporter].role) == ("select", "report"):
            played = plays(task, session.evaluations[reporter].dialogue)
            both = overlap(
                items[chooser], items[reporter], played, bool(specs[reporter].same_prompt)
            )
            what = f"evaluate.{chooser} chooses on items that evaluate.{reporter} reports"
            ids = [*shared_texts(both)]
            yield from on_rows("error", what, ids, len(items[chooser]), OTHERS)


def shared_with_test(
    data: str,
    rows: Sequence[Row],
    place: str,
    items: Sequence[Row],
    report: bool,
    played: Played,
    same_prompt: bool = False,
) -> Seen:
    """Questions, calls, functions and conversations that a training set shares with a test; a
    reported one must share no question."""
    both = overlap(rows, items, played, same_prompt)
    exact = len({train for train, _ in both.exact})
    calling = {id_: None for ids in both.functions.values() for id_ in ids}
    # A row that names no conversation is known by its id, which another file may use as well.
    talks = {row.conversation for row in rows} & {item.conversation for item in items} - {""}
    talking = [row.id for row in rows if row.conversation in talks]
    grave: Severity = "error" if report else "warning"
    fix = APART if report else ONCE
    hidden = any(map(played, items)) and both.normalised and not same_prompt
    parts: dict[SharedKind, tuple[Sequence[str], Iterable[str], Severity, str]] = {
        "questions": (shared_texts(both), (), grave, f"{fix}; {HIDDEN}" if hidden else fix),
        "calls": ([*dict.fromkeys(train for train, _ in both.paths)], (), grave, fix),
        "functions": ([*calling], both.functions, "warning" if report else "note", fix),
        "conversations": (talking, talks, "warning", "split by conversation"),
    }
    yield Number(place, f"questions_shared_with: data.{data}", len(parts["questions"][0]))
    if any(map(call_path, items)):
        yield Number(place, f"call_paths_shared_with: data.{data}", len(parts["calls"][0]))
    for kind, (ids, names, severity, fix) in parts.items():
        if not ids:
            continue
        named = tuple(sorted(names) if names else ids)[:SHOWN]
        known = exact if kind == "questions" else 0
        yield SharedItems(kind, data, place, report, len(ids), len(rows), known, named)
        does, more = WORDS[kind]
        what = f"data.{data} is trained on and {does} of {place}"
        told = f"{share_of(len(ids), len(rows))} training rows{more.format(exact)}"
        yield Finding(severity, what, f"{told}: {', '.join(named)}", fix)


MANY = 0.2
"""A larger share of rows left out for one reason is a warning."""
BLANK = 0.01
"""A larger share of answers that say nothing is a warning."""
REMEDIES = {
    TOO_LONG: "raise max_prompt_tokens if they matter",
    LONGER: "raise max_tokens if they matter",
    SHORTER: "lower min_tokens if they matter",
}


def rows(subject: Subject) -> Seen:
    """Every data set and the items of every evaluation."""
    for name, data in subject.session.sets.items():
        place = f"data.{name}"
        yield Number(place, "rows_in_source", data.total)
        yield Number(place, "train_rows", len(data.train))
        yield Number(place, "dev_rows", len(data.dev))
        if data.test:
            yield Number(place, "test_rows", len(data.test))
        if isinstance(data.order, Mixture):
            for part in data.order.parts:
                yield Number(place, f"epoch_rows: {part.name}", part.share)
        yield from left_out(place, data)
        yield from well_formed(place, data.rows)
        yield from contradicting(subject, name)
    for name, evaluation in subject.session.evaluations.items():
        yield Number(f"evaluate.{name}", "items", len(evaluation.items))
        yield from well_formed(f"evaluate.{name}", evaluation.items)
    yield from without_answers(subject)
    stages = {data: stage for _, stage, data in reversed(reading(subject.session))}
    for name, stage in reversed(stages.items()):
        golds = subject.golds_of_data(name, stage).answers
        bare = [with_line(gold.row) for gold in golds if gold.blank]
        if len(bare) > max(1, BLANK * len(golds)):
            told = f"{share_of(len(bare), len(golds))}, such as {bare[0]}"
            fix = "they teach the model to end at once; give them a text, or leave the rows out"
            yield Finding("warning", f"data.{name}: answers are empty or blank", told, fix)
    yield from unread(subject)


def unread(subject: Subject) -> Seen:
    """Rows without the stored candidates that a stage trains on; the last rows of a fixed order
    that a stage never visits."""
    session = subject.session
    for name, stage in session.experiment.stage.items():
        if isinstance(stage, SamplingStage) and stage.stored:
            rows_ = find_part(session.sets, stage.data)
            bare = [row.id for row in rows_ if not row.extra.get("candidates")]
            what = f"stage.{name}: rows of data.{stage.data} hold no candidates"
            fix = "give each row a list of {text, reward}, or sample the candidates"
            yield from on_rows("error", what, bare, len(rows_), fix)
        if not counts_rows(stage):
            continue
        order = find_order(session.sets, stage.data)
        with within(f"stage.{name}"):
            visited = steps_of(stage, order.count) * rows_per_step(stage)
        if rows_per_step(stage) > order.count:
            what = f"stage.{name}: a step takes {rows_per_step(stage)} of {order.count} rows"
            yield Finding("warning", what, "some come several times", "lower prompts or batch")
        if isinstance(order, Fixed) and visited < order.count:
            what = f"stage.{name}: the last rows of data.{stage.data} are never visited"
            told = f"{visited} of {order.count} rows, in the order that the data set asks for"
            yield Finding("warning", what, told, "train for whole epochs, or take fewer rows")


def left_out(place: str, data: DataSet) -> Seen:
    """Rows dropped, by reason, and remarks on rows that are kept."""
    for reason, ids in data.dropped.items():
        yield Number(place, f"dropped: {reason}", len(ids))
        evidence = f"{share_of(len(ids), data.total)}: {some(ids)}"
        wanted, unread = reason.startswith(WHERE), reason.startswith(UNREADABLE)
        many = unread or (len(ids) > MANY * data.total and not wanted)
        fix = REMEDIES.get(reason, "nothing, if they are meant to be left out")
        what = f"{place}: rows left out: {reason}"
        fix = "correct them" if unread else fix
        yield Finding("warning" if many else "note", what, evidence, fix)
    for words, ids in data.remarks.items():
        yield Number(place, f"kept: {words}", len(ids))
        severity = "warning" if words in (UNDECLARED, NULLS) else "note"
        fix = "nothing, if that is meant"
        if words in (UNDECLARED, NO_TOOLS):
            fix = 'describe the functions, or set undeclared_calls = "drop"'
        told = f"{len(ids)} conversations: {some(ids)}"
        yield Finding(severity, f"{place}: {words}", told, fix)


def well_formed(place: str, rows: Sequence[Row]) -> Seen:
    """Ids that occur once, tools that are valid JSON schema."""
    doubles = [id_ for id_, count in Counter(row.id for row in rows).items() if count > 1]
    if doubles:
        fix = "give every row an id of its own: records and random numbers go by it"
        yield Finding("error", f"{place}: several rows have the same id", some(doubles), fix)
    for row in rows:
        try:
            parse_tools(Record(row.origin or row.id, 0, {}), list(row.tools))
        except DataError as error:
            wrong = f"{error.field} {error.problem}"
            what = f"{place}: tools of row {row.id} are not valid: {wrong}"
            fix = error.fix or "correct the tool's schema"
            yield Finding("error", what, row.origin or row.id, fix)


def contradicting(subject: Subject, name: str) -> Seen:
    """Rows with the same question and another answer: good for imitation, not for a reward."""
    data = subject.session.sets[name]
    rows_ = data.rows
    by_id, played = {row.id: row for row in rows_}, subject.session.task.dialogue
    # Dialogues that begin alike differ in what their world hides.
    pairs = [pair for pair in conflicts(rows_) if played(by_id[pair[0]]) is None]
    if not pairs:
        return
    yield Number(f"data.{name}", "other_answers", len(pairs))
    severity, fix = "note", "nothing, if several answers are right"
    if any(use.data.partition(".")[0] == name for _, use in reward_uses(subject.session)):
        severity, fix = "warning", "what earns the reward in one row earns none in the other: "
        fix += "correct the answers, or keep one"
    ids = [f"{id_} ({first})" for id_, first in pairs]
    what = f"data.{name}: rows ask the same and have other answers"
    yield from on_rows(severity, what, ids, len(rows_), fix)


def without_answers(subject: Subject) -> Seen:
    """Rows without a gold answer: SFT, and distillation in part, cannot train on them, no stage can
    be validated on them, and nothing proves the others."""
    for place, stage, data in reading(subject.session):
        golds = subject.golds_of_data(data, stage)
        whole = len(golds.answers) + len(golds.missing) + len(golds.broken)
        learned = isinstance(stage, SftStage) or data == stage.validation
        learned |= isinstance(stage, DistillStage) and stage.lmbda < 1
        held = (row.extra.get("candidates") for row in find_part(subject.session.sets, data))
        if isinstance(stage, DpoStage) and all(held):
            continue  # It learns from candidates alone, and is validated on them.
        what = f"{place}: rows of data.{data} have no gold answer"
        if learned:  # whatever the task knows to be right
            task, missing = subject.session.task, [*golds.missing]
            if hasattr(task, "right_answer"):
                rows_ = find_part(subject.session.sets, data)
                bare = (row for row in rows_ if target_messages(task, row, trained=True) is None)
                missing = [row.id for row in bare]
            fix = "give each row an answer, or leave it "
            yield from on_rows("error", what, missing, whole, f"{fix}out")
        else:
            fix = "that the reward can be reached on these rows is not proven"
            yield from on_rows("note", what, golds.missing, whole, fix)


def lengths(subject: Subject) -> Seen:
    """Data sets; stages that sample, and evaluations, against their `max_tokens` and the model."""
    session = subject.session
    for name in session.sets:
        statistics = length_statistics(conversation_lengths(subject, name))
        named = {"mean": statistics.mean, "sd": statistics.sd, "smallest": statistics.smallest}
        named |= {str(percentile): value for percentile, value in statistics.percentiles.items()}
        for one, value in {**named, "largest": statistics.largest}.items():
            yield Number(f"data.{name}", f"conversation_tokens_{one}", value)
    for place, stage, data in reading(session):
        if isinstance(stage, DpoStage) and data == stage.data:
            continue  # Its candidates are measured with its pairs.
        golds = subject.golds_of_data(data, stage)
        limit = stage.sampling.max_tokens if samples(stage) else None
        yield from measured(subject, place, golds, limit)
    for name, evaluation in session.evaluations.items():
        golds = subject.golds_of_items(evaluation)
        encoder = subject.session.learner.encoder(evaluation.spec)
        sizes = () if golds.answers else map(encoder.size, evaluation.contexts)
        limit = evaluation.spec.sampling.max_tokens
        yield from measured(subject, f"evaluate.{name}", golds, limit, sizes)


def conversation_lengths(subject: Subject, name: str) -> list[int]:
    """Tokens of each whole row that can be rendered, as the first stage that reads it renders it;
    held-out parts and answers included."""
    session = subject.session
    used = (stage for _, stage, data in reading(session) if data.partition(".")[0] == name)
    rendering = next(used, RenderingSettings())
    encoder = session.learner.encoder(rendering)
    data = session.sets[name]
    sizes: list[int] = []
    for part in (name, f"{name}.dev", f"{name}.test"):
        golds = subject.golds_of_data(part, rendering)
        sizes += [gold.context_size + len(gold.tokens) for gold in golds.answers]
        bare = [row for row in data.part(part) if row.id in set(golds.missing)]
        sizes += [encoder.size(encoder.prompt(row, question(session.task, row))) for row in bare]
    return sizes


def measured(
    subject: Subject, place: str, golds: Golds, limit: int | None, others: Iterable[int] = ()
) -> Seen:
    """Statistics of prompts, also of `others` that have no answer, and of answers; answers longer
    than `max_tokens`, and rows that the model cannot hold."""
    for what, counts in (
        ("prompt", [*(gold.prompt_size for gold in golds.answers), *others]),
        ("answer", [len(gold.tokens) for gold in golds.answers]),
    ):
        statistics = length_statistics(counts)
        yield Number(place, f"{what}_tokens_mean", statistics.mean)
        yield Number(place, f"{what}_tokens_median", statistics.percentiles[50])
        yield Number(place, f"{what}_tokens_95", statistics.percentiles[95])
        yield Number(place, f"{what}_tokens_largest", statistics.largest)
    whole = len(golds.answers)
    if limit is not None:
        cut = [gold.row.id for gold in golds.answers if len(gold.tokens) > limit]
        what = f"{place}: gold answers are longer than sampling.max_tokens = {limit}"
        fix = "the full reward is out of reach there; raise max_tokens or drop these rows"
        yield from on_rows("warning", what, cut, whole, fix)
    if (window := subject.session.learner.positions) is None:
        return
    over = [
        gold.row.id
        for gold in golds.answers
        if gold.prompt_size + (len(gold.tokens) if limit is None else limit) > window
    ]
    what = f"{place}: rows do not fit into the model's {window} positions"
    fix = "set data.NAME.max_prompt_tokens, or lower sampling.max_tokens"
    yield from on_rows("error", what, over, whole, fix)
