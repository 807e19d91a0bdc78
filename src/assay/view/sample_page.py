"""The completions of a run: one in whole, several side by side, and the list of all of them.

A conversation is shown message by message with its calls, and thoughts are folded. Every filter of
the list stands in the address, so that a link keeps it.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from assay.data.files import prompt_sha256
from assay.data.row import Message, Row
from assay.errors import AssayError, InputError
from assay.lab.data.prepare import rows_by_id
from assay.pages.comparison_page import item_rows, question_and_gold, shortened
from assay.pages.content import checkpoint_label
from assay.pages.page import (
    Answer,
    Block,
    Cell,
    Code,
    Column,
    Facts,
    Field,
    Folded,
    Form,
    Heading,
    Line,
    Mark,
    Page,
    Section,
    SideBySide,
    Table,
    Text,
    joined,
)
from assay.pages.words import Words, flat, number
from assay.runs.history import ANSWER, SAMPLE, History, find_record, find_samples
from assay.runs.records import PROMPT, outcome, read_columns, stored_messages, transcript
from assay.runs.run_directory import RunDirectory, read_manifest
from assay.view.completions import CompletionFile, Filter, Stored, read_filter
from assay.view.runs_page import page_links
from assay.view.window import Shown, Window, completions_of, full_name, lab_address, live_address

if TYPE_CHECKING:
    from assay.lab.models.learner import Encoder
    from assay.lab.session.session import Session


@lru_cache(maxsize=64)
def rows_at(run: RunDirectory, place: str, answers: bool) -> Mapping[str, Row]:
    """The rows of a stage, or the items of an evaluation (`place`), by id, from their source."""
    if answers:
        return item_rows(run, place)
    experiment = History(run).experiment
    return rows_by_id(experiment, experiment.stage[place].data.partition(".")[0], run.root)


@lru_cache(maxsize=16)
def reader_at(run: RunDirectory, place: str, answers: bool) -> "tuple[Encoder, Session] | None":
    """How the prompts of a stage or an evaluation were written; None where no learner of the run's
    wrote them, as behind an endpoint, or the experiment file does not name the evaluation."""
    from assay.lab.models.learner import arm_of  # Needs the packages that train.
    from assay.lab.monitor.observer import Silent
    from assay.lab.session.session import Session

    experiment = History(run).experiment
    settings = (experiment.evaluate if answers else experiment.stage).get(place)
    session = Session(experiment, run, 0, Silent())
    source = experiment.model
    if settings is None or source.startswith("openai:") or arm_of(session.task, source) is not None:
        return None
    return session.learner.reader(settings), session


TITLE = 90
"""Characters of a question that is a title."""


def title_of(question: str) -> str:
    """A question as a title."""
    text = flat(question)
    return text[:TITLE].rstrip() + "…" * (len(text) > TITLE)


def question_of(run: RunDirectory, place: CompletionFile, row: str) -> str:
    """What a row or an item of a file asks; "" where it cannot be read."""
    name = place.record.name if place.record else place.stage
    return question_and_gold(row_at(run, name, place.record is not None, row)[0])[0]


THOUGHT = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)
MOST_SIDES = 64
"""Completions that stand side by side."""


def sample_page(window: Window, request: Request, w: Words) -> Shown:
    """What `assay report RUN:ID` shows; of several ids, all that they mean. Raises InputError for
    an id that leads nowhere."""
    lab, lines = request.path_params["lab"], []
    for id_ in request.query_params.getlist("id") or [""]:
        name, colon, rest = id_.partition(":")
        if not colon:
            raise InputError(f"{id_!r} names no sample", field="id", fix="write NAME/ID:SAMPLE")
        run = window.run(lab, name)
        lines += [(run, line) for line in find_samples(run, rest)]
    runs, (run, first) = {run for run, _ in lines}, lines[0]
    row, why = row_at(run, *_place_of(run, first), _id(first, group=True))
    problem = [Text(w("page.no_questions", why=why), "warning")] if why else []
    question, gold = question_and_gold(row)
    id_ = first["sample_id"] if len(lines) == 1 else first["sample_id"].rpartition("#")[0]
    beside = _beside(lab, run, [line for _, line in lines], w) if len(runs) == 1 else ()
    blocks: list[Block] = [Text(joined(Mark(id_, "soft"), *beside, by="  "))]
    if len(lines) == 1:
        read = _as_read(run, first, row, w) if "prompt" in request.query_params else None
        blocks += _whole(lab, run, first, [*problem, *_question(first, row, w)], read, w)
    else:
        answers = [_side(lab, run, line, len(runs) > 1, w) for run, line in lines[:MOST_SIDES]]
        blocks += [*problem, SideBySide("", question, answers, gold, w("page.gold"))]
    only = run if len(runs) == 1 else None
    return Shown(Page(w, title_of(question) or id_, blocks), lab=lab, run=only)


def _beside(
    lab: str, run: RunDirectory, lines: Sequence[Mapping[str, Any]], w: Words
) -> Iterator[Mark]:
    """Links to the completions, or the groups of them, before and behind some in their file."""
    file, group = lines[0]["file"], len(lines) > 1
    if any(line["file"] != file for line in lines):
        return
    names = _names(lines[0])
    columns = read_columns(run.path / file, [names["row"], names["number"]]).values()
    ids = [row if group else f"{row}#{number}" for row, number in zip(*columns, strict=True)]
    ids = list(dict.fromkeys(ids))
    here = ids.index(_id(lines[0], group))
    for kind, place in (("earlier", here - 1), ("later", here + 1)):
        if 0 <= place < len(ids):
            yield Mark(w(f"view.{kind}"), kind, _address(lab, run, lines[0], ids[place]))


def _names(line: Mapping[str, Any]) -> Mapping[str, str]:
    return ANSWER if "score" in line else SAMPLE


def _id(line: Mapping[str, Any], group: bool = False) -> str:
    """A completion, or its row or item, within its file."""
    row, number = (line[_names(line)[name]] for name in ("row", "number"))
    return row if group else f"{row}#{number}"


def _address(lab: str, run: RunDirectory, line: Mapping[str, Any], id_: str, **query: str) -> str:
    """The page of a completion, or of all of a row, in the file of a line. The folder of a record
    names it: its evaluation's name may stand for several."""
    _, folder, file = line["file"].split("/")
    place = file.removesuffix(".parquet") if "score" in line else line["step"]
    return lab_address(lab, "show", id=f"{run}:{folder}/{place}/{id_}", **query)


def _side(lab: str, run: RunDirectory, line: Mapping[str, Any], named: bool, w: Words) -> Answer:
    """A completion beside others; `named` says that they are of several runs."""
    figures = [f"{name}{w.colon}{value}" for name, value in _figures(line, w)]
    if line.get("messages"):
        thought, text = "", transcript(line["messages"])
    else:
        thought = "\n\n".join(match.strip() for match in THOUGHT.findall(line["text"]))
        text = THOUGHT.sub("", line["text"]).strip("\n")
    own = _address(lab, run, line, _id(line))
    title = f"{run.name} · " * named + line["sample_id"]
    result, note = w.semicolon.join(figures[:2]), w.semicolon.join(figures[2:])
    return Answer(title, result, shortened(text), (), note, own, shortened(thought))


def _whole(
    lab: str,
    run: RunDirectory,
    line: Mapping[str, Any],
    question: Sequence[Block],
    read: Sequence[Block] | None,
    w: Words,
) -> list[Block]:
    """Figures, the question, the completion, and the commands about it; with what the model `read`,
    or a link to that, because it takes a tokenizer."""
    answer, new = "score" in line, []
    for name, value in (line.get("facts") or {}).items():
        if name not in line["parts"] and str(value) not in ("", line.get("why")):
            new.append((flat(name), shortened(str(value))))
    figures = [*_figures(line, w), *new, (w("view.file"), line["file"])]
    blocks: list[Block] = [Facts(figures), Text(_around(lab, run, line, w)), *question]
    if read is None:
        address = _address(lab, run, line, _id(line), prompt="tokens") + "#as-read"
        blocks.append(Text(Mark(w("view.as_read"), "", address)))
    else:
        blocks.append(Section("as-read", w("view.as_read"), read))
    blocks.append(Heading(w("view.completion")))
    messages = conversation(stored_messages(line["messages"]), w) if line.get("messages") else None
    blocks += messages or completion_blocks(line["text"], w)
    show = f"assay report {shlex.quote(f'{run}:' + line['sample_id'])}"
    again = "" if answer else replay_command(run, line["file"].split("/")[1], line["step"])
    heading = w("view.replay" if again else "view.command")
    return [*blocks, Heading(heading), Code(f"{again}\n{show}".lstrip(), "sh")]


def replay_command(run: RunDirectory, stage: str, step: int) -> str:
    """The line that judges a step again; "" where a stage learns from no reward."""
    if read_manifest(run).get("stages", {}).get(stage, {}).get("method") == "distill":
        return ""
    return f"assay replay {run} --stage {stage} --step {step}"


def _question(line: Mapping[str, Any], row: Row | None, w: Words) -> list[Block]:
    """What was asked, the whole prompt folded, and the accepted answer."""
    if row is None:  # another trainer's sample keeps what was asked where it names no row
        prompt = (line.get("facts") or {}).get("prompt")
        return [Heading(w("view.question")), Code(str(prompt))] if prompt else []
    question, gold = question_and_gold(row)
    blocks: list[Block] = [Heading(w("view.question")), Code(question)]
    tools = json.dumps([*row.tools], ensure_ascii=False, indent=1) if row.tools else ""
    whole = [*conversation(row.prompt, w), *([Code(tools, "json")] if tools else [])]
    if tools or len(row.prompt) > 1:
        blocks.append(Folded(w("view.prompt"), whole))
    return [*blocks, Folded(w("page.gold"), [Code(gold)])] if gold else blocks


def _as_read(run: RunDirectory, line: Mapping[str, Any], row: Row | None, w: Words) -> list[Block]:
    """What the model read and wrote, as text and in tokens; of several turns, each."""
    turns, blocks = line.get("turns"), list[Block]()
    try:
        reader = reader_at(run, *_place_of(run, line))
        if reader is None or (row is None and not turns):
            return [Text(w("view.as_read_unknown"))]
        encoder, session = reader
        if not turns:
            from assay.lab.models.learner import first_context

            assert row is not None
            context = first_context(encoder, session.task, row, None)
            if not isinstance(context, tuple):
                return [Code(encoder.text(context))]
            turns = [{"reused": 0, "context": context, "actions": len(line["tokens"])}]
            then, now = line.get(PROMPT), prompt_sha256(context)
            state = "unproven" if then is None else "exact" if then == now else "other"
            blocks.append(
                Text(w(f"view.as_read_{state}"), "warning" if state == "other" else "soft")
            )
    except (AssayError, OSError, ImportError) as error:
        return [Text(flat(str(error)), "warning")]
    control, wrote = encoder.thinking.control if encoder.thinking else (), iter(line["tokens"])
    for n, turn in enumerate(turns, 1):
        if len(turns) > 1:
            blocks.append(Heading(w("view.as_read_turn", n=n, reused=number(turn["reused"])), 4))
        blocks.append(Code(encoder.text(tuple(turn["context"]))))
        own = [*islice(wrote, turn["actions"])]
        for name, tokens in (("tokens_read", turn["context"]), ("tokens_own", own)):
            kinds = ["special" if token in control else "token" for token in tokens]
            pieces = [Mark(encoder.text((t,)), k) for t, k in zip(tokens, kinds, strict=True)]
            title = w(f"view.{name}", tokens=number(len(tokens)))
            blocks.append(Folded(title, [Text(pieces, "tokens")]))
    return blocks


def row_at(run: RunDirectory, place: str, answers: bool, id_: str) -> tuple[Row | None, str]:
    """A row of a stage or an item of an evaluation, or why it cannot be read."""
    try:
        return rows_at(run, place, answers).get(id_), ""
    except (AssayError, OSError) as error:
        return None, flat(str(error))


def _place_of(run: RunDirectory, line: Mapping[str, Any]) -> tuple[str, bool]:
    """The evaluation of an answer, the stage of a sample; and whether it is an answer."""
    folder, answer = line["file"].split("/")[1], "score" in line
    return find_record(run, folder).name if answer else folder, answer


def _figures(line: Mapping[str, Any], w: Words) -> list[tuple[str, str]]:
    score = line["score"] if "score" in line else line["reward"]
    became = outcome(score, line.get("error") or "", line.get("outcome") or "")
    figures = [
        (w("table.score"), w("program_outcome.abstained") if score is None else number(score)),
        (w("table.outcome"), w.or_own("outcome", became)),
    ]
    parts = line["parts"].items()
    figures += [(w("view.part_named", name=flat(name)), number(value)) for name, value in parts]
    if line.get("advantage") is not None:
        figures.append((w("view.advantage"), number(line["advantage"])))
    length = line.get("completion_tokens")
    figures.append((w("view.length"), number(length or len(line["tokens"]) or None)))
    figures.append((w("view.ended"), ended_text(line["ended"], w)))
    figures += [(w("view.why"), line["why"])] if line.get("why") else []
    return figures


def ended_text(ended: str, w: Words) -> str:
    """How a completion ended, where that is known."""
    return w.or_own("view", f"ended_{ended}").removeprefix("ended_") or "–"


def _around(lab: str, run: RunDirectory, line: Mapping[str, Any], w: Words) -> Line:
    """Links to the group of a sample, or to all answers to its item."""
    if "score" in line:
        address = lab_address(lab, "show", id=f"{run}:{line['item_id']}")
        return Mark(w("view.all_answers"), "", address)
    group = lab_address(lab, "show", id=f"{run}:{line['sample_id'].rpartition('#')[0]}")
    every = lab_address(lab, "samples", run=run, row=line["row_id"])
    return joined(Mark(w("view.group"), "", group), Mark(w("view.all_of_row"), "", every), by=" · ")


def completion_blocks(text: str, w: Words) -> list[Block]:
    """A text with its thoughts folded."""
    blocks: list[Block] = []
    end = 0
    for match in THOUGHT.finditer(text):
        blocks += [Code(text[end : match.start()])] if text[end : match.start()].strip() else []
        blocks.append(Folded(w("page.thought"), [Code(match[1].strip("\n"))]))
        end = match.end()
    rest = text[end:].lstrip("\n") if end else text
    return [*blocks, Code(rest)] if rest or not blocks else blocks


def conversation(messages: Sequence[Message], w: Words) -> list[Block]:
    """Each message under its role, its thoughts folded, its calls as calls."""
    blocks: list[Block] = []
    for message in messages:
        blocks.append(Heading(w.or_own("view", f"role_{message.role}"), 4))
        if message.reasoning:
            blocks.append(Folded(w("page.thought"), [Code(message.reasoning)]))
        blocks += completion_blocks(message.content, w) if message.content else []
        for call in message.tool_calls:
            arguments = json.dumps(call.arguments, ensure_ascii=False, indent=1)
            blocks.append(Text((w("view.call"), " ", Mark(call.name, "code"))))
            blocks.append(Code(arguments, "json"))
    return blocks


LISTED = 160
"""Characters of a completion in the list."""


def list_page(window: Window, request: Request, w: Words) -> Shown:
    """The fields of the filter, what it keeps in figures, and one page of it. Raises RunNotFound,
    InputError."""
    lab, name = request.path_params["lab"], request.query_params.get("run", "")
    if not name:
        raise InputError("no run is named", field="run", fix="open the list from a run's page")
    answers = request.url.path.rpartition("/")[2].startswith("answers")
    run, where = window.run(lab, name), read_filter(request.query_params)
    live, completions = live_address(window, [full_name(lab, run)]), completions_of(run)
    kind = "answers" if answers else "samples"
    stored, damaged = completions.stored(answers)
    blocks: list[Block] = [Text(flat(str(error)), "error") for error in damaged]
    blocks.append(_form(lab, run, stored, where, answers, w))
    if not stored:
        blocks.append(Text(w(f"view.no_{kind}")))
    else:
        matches = completions.find(where, answers)
        figures = {
            "count": matches.count,
            "unscored": matches.unscored,
            "mean": number(matches.mean),
        }
        blocks.append(Text(w("view.found", **figures)))
        rows = [_row(lab, run, place, line, w) for place, line in matches.lines]
        blocks += [Table(_columns(answers, w), rows)] if rows else []
        here, last = lab_address(lab, kind, run=run) + "&", -(-matches.count // where.size)
        blocks += page_links(lambda n: here + where.address(page=n), where.page, last, w)
    title = w(f"view.{kind}_of", run=run.name)
    return Shown(Page(w, title, blocks), live, lab, run=run)


def _form(
    lab: str,
    run: RunDirectory,
    stored: Sequence[Stored],
    where: Filter,
    answers: bool,
    w: Words,
) -> Form:
    """The fields of the filter."""
    known = _same(line["outcome"] for each in stored for line in each.lines)
    outcomes = [(outcome, w.or_own("outcome", outcome)) for outcome, _ in known]
    fields = [Field("run", "", str(run), "hidden"), Field("text", w("view.text"), where.text)]
    places = [each.place for each in stored]
    own = _of_answers(places, where, w) if answers else _of_samples(places, where, w)
    fields += [*own, _choice("outcome", where.outcome, outcomes, w)]
    fields += [
        *_range("score", where, w),
        *_range("length", where, w),
        Field("row", w("view.item" if answers else "view.row"), where.row),
    ]
    address = lab_address(lab, "answers" if answers else "samples")
    return Form(address, fields, [(w("view.filter"), address)])


def _of_samples(places: Sequence[CompletionFile], where: Filter, w: Words) -> list[Field]:
    stages = _same(place.stage for place in places)
    return [_choice("stage", where.stage, stages, w), *_range("step", where, w)]


def _of_answers(places: Sequence[CompletionFile], where: Filter, w: Words) -> list[Field]:
    keys = {p.record.key: p.record.name for p in places if p.record}
    own = [p.checkpoint for p in places if p.record and where.evaluation in ("", p.record.key)]
    checkpoints = [(name, checkpoint_label(name, w)) for name in dict.fromkeys(own)]
    return [
        _choice("evaluation", where.evaluation, [*keys.items()], w),
        _choice("checkpoint", where.checkpoint, checkpoints, w),
    ]


def _same(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, name) for name in dict.fromkeys(sorted(names))]


def _choice(name: str, value: str, choices: Sequence[tuple[str, str]], w: Words) -> Field:
    """A choice; what the address has stays one, so that a changed filter loses nothing."""
    every = [("", w("view.any")), *choices]
    known = {key for key, _ in every}
    return Field(
        name, w.title(name), value, "choice", every + [(value, value)] * (value not in known)
    )


def _range(name: str, where: Filter, w: Words) -> list[Field]:
    ends = ("from", "to")
    values = [getattr(where, f"{name}_{end}") for end in ends]
    return [
        Field(f"{name}_{end}", w(f"view.{name}_{end}"), "" if v is None else f"{v:g}", "number")
        for end, v in zip(ends, values, strict=True)
    ]


def _columns(answers: bool, w: Words) -> list[Column]:
    first = ("item", "checkpoint") if answers else ("row", "step")
    names = [
        *first,
        "score",
        *([] if answers else ["advantage"]),
        "outcome",
        "length",
        "completion",
    ]
    right = ("score", "advantage", "length", "step")
    return [Column(w.title(name), name in right) for name in names]


def _row(
    lab: str,
    run: RunDirectory,
    place: CompletionFile,
    line: Mapping[str, Any],
    w: Words,
) -> list[Cell | Line]:
    """One completion: where it stands, what it earned, how it begins."""
    name = f"{line['row']}#{line['number']}"
    # A name of an evaluation may stand for several records; its folder does not.
    id_ = f"{place.record.key}/{place.checkpoint}/{name}" if place.record else line["id"]
    own = lab_address(lab, "show", id=f"{run}:{id_}")
    text = flat(line["text"][: 8 * LISTED])
    start = Cell(Mark(text[:LISTED] + "…" * (len(text) > LISTED) or "–", "", own), kind="start")
    score = w("program_outcome.abstained") if line["score"] is None else number(line["score"])
    outcome = Cell(w.or_own("outcome", line["outcome"]), [line["why"] or ""])
    around, advantage = f"{place.stage}/{place.step}/{line['row']}", [number(line["advantage"])]
    where = Cell(str(place.step), [place.stage])
    if place.record is not None:
        around, advantage = line["row"], []
        where = Cell(checkpoint_label(place.checkpoint, w), [place.record.name])
    address = lab_address(lab, "show", id=f"{run}:{around}")
    title = Mark(title_of(question_of(run, place, line["row"])) or name, "", address)
    length = number(line["length"])
    return [Cell(title, [name]), where, score, *advantage, outcome, length, start]
