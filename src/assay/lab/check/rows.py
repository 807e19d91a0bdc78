"""Checks the rows of data sets: counts, omitted rows, ids, tools, missing answers, token lengths.

Reads the prepared data and changes none of it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from assay.data.conversation import NULLS
from assay.data.leakage import Overlap, Played, call_path, overlap
from assay.data.loaded import UNREADABLE, DataError, Record
from assay.data.renderings.qwen import split_thought
from assay.data.row import Row
from assay.data.row_checks import NO_TOOLS, UNDECLARED, WHERE, conflicts
from assay.data.splits import Fixed, Mixture, length_statistics
from assay.data.tools import parse_tools
from assay.errors import Finding, InputError, within
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
    Histogram,
    Number,
    Seen,
    Shared,
    SharedKind,
    Subject,
    reading,
    reward_uses,
    samples,
    share_of,
    some,
    target_messages,
    with_line,
)
from assay.lab.setup.evaluation import bare_items, plays, shared_texts
from assay.lab.setup.learner import question
from assay.lab.setup.prepare import (
    LONGER,
    SHORTER,
    TOO_LONG,
    DataSet,
    find_order,
    find_part,
)
from assay.tasks.judge_reward import JudgeReward

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


MANY = 0.2
"""A larger share of rows left out for one reason is a warning."""
BLANK = 0.01
"""A larger share of answers that say nothing is a warning."""
REMEDIES = {
    TOO_LONG: "raise max_prompt_tokens if they matter",
    LONGER: "raise max_tokens if they matter",
    SHORTER: "lower min_tokens if they matter",
}
DROP_UNDECLARED = 'describe the functions, or set undeclared_calls = "drop"'


def rows(subject: Subject) -> Seen:
    """Every data set and the items of every evaluation."""
    for name, data in subject.session.sets.items():
        place = f"data.{name}"
        yield Number(place, "rows_in_source", data.total)
        yield Number(place, "train_rows", len(data.train))
        yield Number(place, "dev_rows", len(data.dev))
        if data.test:
            yield Number(place, "test_rows", len(data.test))
        yield from mixed_rows(place, data)
        yield from left_out(place, data)
        yield from taken(place, data)
        yield from remarked(place, data)
        yield from well_formed(place, data.rows)
        yield from contradicting(subject, name)
    for name, evaluation in subject.session.evaluations.items():
        yield Number(f"evaluate.{name}", "items", len(evaluation.items))
        yield from well_formed(f"evaluate.{name}", evaluation.items)
    yield from without_answers(subject)
    yield from blank_answers(subject)
    yield from without_candidates(subject)
    yield from unvisited(subject)


def mixed_rows(place: str, data: DataSet) -> Seen:
    """The rows of an epoch of a mixture by set, and the sets whose rows it visits again."""
    if not isinstance(data.order, Mixture):
        return
    for part in data.order.parts:
        yield Number(place, f"epoch_rows: {part.name}", part.share)
        if part.share > part.order.count:
            yield Finding(
                "note",
                f"{place}: an epoch visits the rows of data.{part.name} more than once",
                f"{part.share} visits of {part.order.count} rows in {data.order.count}",
                "nothing, if that is meant; else lower epoch_rows or the weight",
            )


def unvisited(subject: Subject) -> Seen:
    """Stages that end before the end of a fixed order, whose last rows they never visit."""
    session = subject.session
    for name, stage in session.experiment.stage.items():
        if not counts_rows(stage):
            continue
        order = find_order(session.sets, stage.data)
        with within(f"stage.{name}"):
            visited = steps_of(stage, order.count) * rows_per_step(stage)
        if isinstance(order, Fixed) and visited < order.count:
            yield Finding(
                "warning",
                f"stage.{name}: the last rows of data.{stage.data} are never visited",
                f"{visited} of {order.count} rows, in the order that the data set asks for",
                "train for whole epochs, or take fewer rows",
            )


def left_out(place: str, data: DataSet) -> Seen:
    """Rows dropped, by reason."""
    for reason, ids in data.dropped.items():
        yield Number(place, f"dropped: {reason}", len(ids))
        evidence = f"{share_of(len(ids), data.total)}: {some(ids)}"
        if reason in (LONGER, SHORTER) and data.shift is not None:
            before, after = data.shift.before, data.shift.after
            evidence += f"; tokens of a conversation: mean {before.mean:,.0f} (sd {before.sd:,.0f})"
            evidence += f" became {after.mean:,.0f} (sd {after.sd:,.0f})"
        wanted, unread = reason.startswith(WHERE), reason.startswith(UNREADABLE)
        yield Finding(
            "warning" if unread or (len(ids) > MANY * data.total and not wanted) else "note",
            f"{place}: rows left out: {reason}",
            evidence,
            "correct them"
            if unread
            else REMEDIES.get(reason, "nothing, if they are meant to be left out"),
        )


def taken(place: str, data: DataSet) -> Seen:
    """The selection that the training part is, and where it comes from."""
    if data.chosen is None:
        return
    selection = data.chosen.selection
    recorded = selection.recorded
    yield Number(place, "selected_rows", len(data.train))
    yield Finding(
        "note",
        f"{place}: {len(data.train)} of {data.chosen.total} training rows are of a selection",
        f"{data.chosen.file} ({selection.origin}; made {selection.made} of data."
        f"{selection.data['name']}, {selection.data['source']}; sha256 of "
        f"{recorded['files']} files of answers {recorded['file_sha256'][:12]})",
        "nothing, if they are the rows that are meant",
    )


def remarked(place: str, data: DataSet) -> Seen:
    """Remarks on rows that are kept, each remark once."""
    for words, ids in data.remarks.items():
        yield Number(place, f"kept: {words}", len(ids))
        undeclared = words in (UNDECLARED, NO_TOOLS)
        yield Finding(
            "warning" if words in (UNDECLARED, NULLS) else "note",
            f"{place}: {words}",
            f"{len(ids)} conversations: {some(ids)}",
            DROP_UNDECLARED if undeclared else "nothing, if that is meant",
        )


def well_formed(place: str, found: Sequence[Row]) -> Seen:
    """Ids that occur once, tools that are valid JSON schema."""
    doubles = [id_ for id_, count in Counter(row.id for row in found).items() if count > 1]
    if doubles:
        yield Finding(
            "error",
            f"{place}: several rows have the same id",
            some(doubles),
            "give every row an id of its own: records and random numbers go by it",
        )
    for row in found:
        try:
            parse_tools(Record(row.origin or row.id, 0, {}), list(row.tools))
        except DataError as error:
            yield Finding(
                "error",
                f"{place}: tools of row {row.id} are not valid: {error.field} {error.problem}",
                row.origin or row.id,
                error.fix or "correct the tool's schema",
            )


def contradicting(subject: Subject, name: str) -> Seen:
    """Rows with the same question and another answer: good for imitation, not for a reward."""
    data = subject.session.sets[name]
    rows_ = data.rows
    by_id, played = {row.id: row for row in rows_}, subject.session.task.dialogue
    # Dialogues that begin alike differ in what their world hides.
    found = [pair for pair in conflicts(rows_) if played(by_id[pair[0]]) is None]
    if not found:
        return
    rewarded = any(use.data.partition(".")[0] == name for use in reward_uses(subject.session))
    yield Number(f"data.{name}", "other_answers", len(found))
    yield Finding(
        "warning" if rewarded else "note",
        f"data.{name}: rows ask the same and have other answers",
        f"{share_of(len(found), len(rows_))}: {some([f'{id_} ({first})' for id_, first in found])}",
        "what earns the reward in one row earns none in the other: correct the answers, or keep one"
        if rewarded
        else "nothing, if several answers are right",
    )


def without_answers(subject: Subject) -> Seen:
    """Rows without a gold answer: SFT, and distillation in part, cannot train on them, no stage can
    be validated on them, and nothing proves the others."""
    for place, stage, data in reading(subject.session):
        golds = subject.golds_of_data(data, stage)
        whole = len(golds.answers) + len(golds.missing) + len(golds.broken)
        learned = isinstance(stage, SftStage) or data == stage.validation
        learned |= isinstance(stage, DistillStage) and stage.lmbda < 1
        missing = without_targets(subject, data) if learned else golds.missing
        if not missing:
            continue
        held = (row.extra.get("candidates") for row in find_part(subject.session.sets, data))
        if isinstance(stage, DpoStage) and all(held):
            continue  # It learns from candidates alone, and is validated on them.
        yield Finding(
            "error" if learned else "note",
            f"{place}: rows of data.{data} have no gold answer",
            f"{share_of(len(missing), whole)}: {some(missing)}",
            "give each row an answer, or leave it out"
            if learned
            else "that the reward can be reached on these rows is not proven",
        )
    by_size = sorted(subject.session.evaluations.values(), key=lambda e: -len(e.items))
    benchmarks = {e.spec.benchmark: e for e in reversed(by_size) if e.spec.benchmark}
    for benchmark, evaluation in benchmarks.items():
        golds = subject.golds_of_items(evaluation)
        # What a judge grades, such as a selection, has no answer that is right beforehand.
        if not golds.missing or isinstance(evaluation.score, JudgeReward):
            continue
        if len(golds.missing) == len(evaluation.items):
            # Such as questions about what the conversation brings to light.
            yield Finding(
                "note",
                f"{benchmark}: no conversation is known to be right beforehand",
                f"{len(evaluation.items)} items whose answers its checker knows in other forms",
                "nothing; that the full score can be reached is not proven here",
            )
        else:
            yield Finding(
                "note",
                f"{benchmark}: items have no gold answer that its checker accepts",
                f"{share_of(len(golds.missing), len(evaluation.items))}: {some(golds.missing)}",
                "they count as wrong whatever a model says; a perfect score is out of reach",
            )


def blank_answers(subject: Subject) -> Seen:
    """Data sets many of whose answers say nothing and call nothing."""
    session = subject.session
    for name in dict.fromkeys(data for _, _, data in reading(session)):
        answers = [
            (row, target_messages(session.task, row)) for row in find_part(session.sets, name)
        ]
        whole = [(row, messages[-1]) for row, messages in answers if messages]
        bare = [
            with_line(row)
            for row, answer in whole
            if not answer.tool_calls  # and no visible character beside its reasoning
            and not any(c.isprintable() and c != " " for c in split_thought(answer)[1])
        ]
        if len(bare) > max(1, BLANK * len(whole)):
            yield Finding(
                "warning",
                f"data.{name}: answers are empty or blank",
                f"{share_of(len(bare), len(whole))}, such as {bare[0]}",
                "they teach the model to end at once; give them a text, or leave the rows out",
            )


def without_targets(subject: Subject, data: str) -> list[str]:
    """Rows that hold no answer to learn from, whatever the task knows to be right."""
    task, missing = subject.session.task, []
    for row in find_part(subject.session.sets, data):
        try:
            task.target(row)
        except InputError:
            missing.append(row.id)
    return missing


def without_candidates(subject: Subject) -> Seen:
    """Rows that hold no candidates where a stage trains on stored ones."""
    for name, stage in subject.session.experiment.stage.items():
        if not isinstance(stage, SamplingStage) or not stage.stored:
            continue
        rows_ = find_part(subject.session.sets, stage.data)
        bare = [row.id for row in rows_ if not row.extra.get("candidates")]
        if bare:
            yield Finding(
                "error",
                f"stage.{name}: rows of data.{stage.data} hold no candidates",
                f"{share_of(len(bare), len(rows_))}: {some(bare)}",
                "give each row a list of {text, reward}, or sample the candidates",
            )


def lengths(subject: Subject) -> Seen:
    """Data sets; stages that sample, and evaluations, against their `max_tokens` and the model."""
    session = subject.session
    for name in session.sets:
        yield from conversations(subject, name)
    for place, stage, data in reading(session):
        if isinstance(stage, DpoStage) and data == stage.data:
            continue  # Its candidates are measured with its pairs.
        golds = subject.golds_of_data(data, stage)
        limit = stage.sampling.max_tokens if samples(stage) else None
        yield from measured(place, golds)
        yield from compared(subject, place, golds, limit)
    for name, evaluation in session.evaluations.items():
        golds = subject.golds_of_items(evaluation)
        encoder = subject.session.learner.encoder(evaluation.spec)
        sizes = () if golds.answers else map(encoder.size, evaluation.contexts)
        yield from measured(f"evaluate.{name}", golds, sizes)
        limit = evaluation.spec.sampling.max_tokens
        yield from compared(subject, f"evaluate.{name}", golds, limit)


def conversations(subject: Subject, name: str) -> Seen:
    """Statistics of the whole rows of a data set, dev part included, answers included."""
    found = length_statistics(conversation_lengths(subject, name))
    place, what = f"data.{name}", "conversation_tokens"
    yield Number(place, f"{what}_mean", found.mean)
    yield Number(place, f"{what}_sd", found.sd)
    yield Number(place, f"{what}_smallest", found.smallest)
    for percentile, value in found.percentiles.items():
        yield Number(place, f"{what}_{percentile}", value)
    yield Number(place, f"{what}_largest", found.largest)
    if found.count:
        yield Histogram(place, what, found.histogram, found.edges)


def conversation_lengths(subject: Subject, name: str) -> list[int]:
    """Tokens of each row that can be rendered, as the first stage that reads it renders it."""
    session = subject.session
    reads = reading(session)
    used = [stage for _, stage, data in reads if data.partition(".")[0] == name]
    rendering = used[0] if used else RenderingSettings()
    encoder = session.learner.encoder(rendering)
    data = session.sets[name]
    found: list[int] = []
    for part in (name, f"{name}.dev", f"{name}.test"):
        golds = subject.golds_of_data(part, rendering)
        found += [gold.context_size + len(gold.actions) for gold in golds.answers]
        bare = [row for row in data.part(part) if row.id in set(golds.missing)]
        found += [encoder.size(encoder.prompt(row, question(session.task, row))) for row in bare]
    return found


def measured(place: str, golds: Golds, others: Iterable[int] = ()) -> Seen:
    """Statistics of prompts, also of `others` that have no answer, and of answers."""
    for what, counts in (
        ("prompt", [*(gold.prompt_size for gold in golds.answers), *others]),
        ("answer", [len(gold.actions) for gold in golds.answers]),
    ):
        found = length_statistics(counts)
        yield Number(place, f"{what}_tokens_mean", found.mean)
        yield Number(place, f"{what}_tokens_median", found.percentiles[50])
        yield Number(place, f"{what}_tokens_95", found.percentiles[95])
        yield Number(place, f"{what}_tokens_largest", found.largest)


def compared(subject: Subject, place: str, golds: Golds, limit: int | None) -> Seen:
    """Answers longer than `max_tokens`, and rows that the model cannot hold."""
    whole = len(golds.answers)
    if limit is not None:
        cut = [gold.row.id for gold in golds.answers if len(gold.actions) > limit]
        if cut:
            yield Finding(
                "warning",
                f"{place}: gold answers are longer than sampling.max_tokens",
                f"{share_of(len(cut), whole)} over {limit} tokens: {some(cut)}",
                "the full reward is out of reach there; raise max_tokens or drop these rows",
            )
    window = subject.session.learner.positions
    if window is None:
        return
    over = [
        gold.row.id
        for gold in golds.answers
        if gold.prompt_size + (len(gold.actions) if limit is None else limit) > window
    ]
    if over:
        yield Finding(
            "error",
            f"{place}: rows do not fit into the model's {window} positions",
            f"{share_of(len(over), whole)}: {some(over)}",
            "set data.NAME.max_prompt_tokens, or lower sampling.max_tokens",
        )
