r"""Rows of plain columns: prompt and answer, Alpaca's, preference pairs, documents and tools.

Also renames the columns of records, so that a file with other names can be read. `id`,
`conversation` and fields that a format does not know are kept, as in every format.

Preference pairs are a prompt and its two answers, read as a group of two stored candidates. They
are told apart by their columns:

  TRL       `prompt` or `messages`, `chosen`, `rejected`; without a prompt it is what the two,
            conversations or texts, begin with alike (TRL 1.16, `extract_prompt`)
  ms-swift  `messages` that end with the chosen answer, `rejected_response` or, whole,
            `rejected_messages`

A text is one message, as it stands: a dialogue of "Human:" and "Assistant:" is not split. The two
answers carry the rewards 1 and 0, or `chosen_score` and `rejected_score`, as ScoreFlow's pairs do.
An answer is one message; one that calls or reasons is kept as such beside its text. Other formats
refuse preference data by its columns, because read as conversations it would teach the rejected
answers too.

Documents and descriptions of tools are what something is made from: they have no answer. A text
file (`.txt`, `.md`) holds a document between blank lines; other files hold objects with `text`. A
description of a tool is an object itself, or several of them are one row as `tools`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.data.conversation import (
    check_order,
    dump_message,
    parse_message,
    untrained,
)
from assay.data.files import canonical_json
from assay.data.formats.kept import (
    BESIDE,
    build_row,
    chat_row,
    said_in,
    system_beside,
    tools_beside,
)
from assay.data.json_files import not_utf8
from assay.data.loaded import DataError, Found, Record, RecordColumns, check_file
from assay.data.renderings.hermes import assistant_text
from assay.data.row import Message, Row
from assay.data.tools import function_of, parse_tools
from assay.errors import nearest

PROMPT_ANSWER = (*BESIDE, "prompt", "completion", "answer", "tools")
ALPACA = (*BESIDE, "history", "instruction", "input", "output", "tools")


def prompt_answer_row(record: Record) -> Row:
    """A row whose gold is `answer`; its last message is `completion`, else the answer as text.

    `prompt` is text or a list of messages. Raises DataError.
    """
    prompt = untrained(said_in(record, "prompt", "user"))
    answer = record.need("answer", str, int, float, bool, list, dict)
    completion = record.maybe("completion", str)
    if completion is None:
        completion = answer if isinstance(answer, str) else canonical_json(answer)
    row = _row(record, [*prompt, Message("assistant", completion)], PROMPT_ANSWER)
    return replace(row, gold=answer)


def _row(record: Record, messages: list[Message], own: tuple[str, ...]) -> Row:
    """The row of these messages, with the system text of a column before them."""
    text = system_beside(record, None)
    whole = (*([Message("system", text)] if text else []), *messages)
    return build_row(record, check_order(record, whole, "prompt"), tools_beside(record), *own)


def alpaca_row(record: Record) -> Row:
    """A row of an instruction, an input that may be absent, and the output to learn.

    The input stands below the instruction, as LLaMA-Factory and ms-swift put it. `history` holds
    earlier pairs of question and answer. Raises DataError.
    """
    parts = record.need("instruction", str), record.maybe("input", str)
    messages: list[Message] = []
    for index, pair in enumerate(record.maybe("history", list) or ()):
        path = f"history[{index}]"
        if len(record.typed(path, pair, list)) != 2:
            raise record.error(path, f"has {len(pair)} members", "write [question, answer]")
        messages.append(Message("user", record.typed(f"{path}[0]", pair[0], str)))
        messages.append(Message("assistant", record.typed(f"{path}[1]", pair[1], str)))
    messages.append(Message("user", "\n".join(filter(None, parts))))
    answer = Message("assistant", record.need("output", str))
    return _row(record, [*messages, answer], ALPACA)


def renamed(records: Iterable[Found], columns: Mapping[str, str]) -> Iterator[Found]:
    """The records with each column of the file, a value of `columns`, under the key's name.

    Raises DataError for a column that no record had yet, and where a name is taken by another
    column of the file.
    """
    missing = set(columns.values())
    for record in records:
        if isinstance(record, DataError):
            yield record
            continue
        missing -= {*record.value, *record.unread}
        for ours, theirs in columns.items():
            if theirs in missing:
                fix = nearest(theirs, record.value)
                raise record.error(f"columns.{ours}", f"the file has no column {theirs!r}", fix)
        theirs = {theirs: ours for ours, theirs in columns.items()}
        unread = {theirs.get(name, name): error for name, error in record.unread.items()}
        value = _renamed(record, columns)
        value = RecordColumns(value, unread) if unread else value
        yield replace(record, value=value, written=record.value)


def _renamed(record: Record, columns: Mapping[str, str]) -> dict[str, Any]:
    moved = {theirs for ours, theirs in columns.items() if theirs in record.value}
    value = {name: cell for name, cell in record.value.items() if name not in moved}
    for ours, theirs in columns.items():
        if ours in value:
            fix = f'give that one another name as well: columns = {{ ..., other = "{ours}" }}'
            raise record.error(f"columns.{ours}", f"the file has a column {ours!r} of its own", fix)
        if theirs in record.value:
            value[ours] = record.value[theirs]
    return value


DPO = "pairs of a chosen and a rejected answer, for DPO"
KTO = "answers labelled good or bad, for KTO, which no stage trains"
STEPS = "steps of answers with a label each, for a process reward model, which no stage trains"

KINDS: tuple[tuple[str, tuple[str, ...], type], ...] = (
    (DPO, ("chosen", "rejected"), object),
    (KTO, ("completion", "label"), bool),
    (KTO, ("messages", "label"), bool),
    (KTO, ("conversations", "label"), bool),
    (KTO, ("output", "kto_tag"), bool),
    (STEPS, ("completions", "labels"), list),
)
"""What rows are, the columns that show it (TRL's, ms-swift's, LLaMA-Factory's), and the
type of the last one."""
REJECTED = ("rejected_response", "rejected_messages")
"""The columns that ms-swift puts beside a conversation whose answer is the chosen one."""

PREFERENCE = "preference"
"""The format that reads pairs of a chosen and a rejected answer."""
FIX = (
    "for sft give the good answer alone, as the last assistant message; for rce give all answers "
    'to a prompt as candidates = [{"text": ..., "reward": ...}]'
)


FIXES = {DPO: f'write format = "{PREFERENCE}" for a dpo stage; {FIX}'}


def refuse_preferences(record: Record) -> Record:
    """The record itself. Raises DataError for one that holds preferences."""
    there = {name for name, value in record.value.items() if value is not None}
    for what, columns, kind in KINDS:
        if there.issuperset(columns) and isinstance(record.value[columns[-1]], kind):
            raise record.error(", ".join(columns), what, FIXES.get(what, FIX))
    for column in REJECTED:
        if column in there:
            raise record.error(column, DPO, FIXES[DPO])
    return record


CANDIDATES = "candidates"
MESSAGE = "message"
"""The key under which a candidate that is more than text holds its message."""
SIDES = {"chosen": 1.0, "rejected": 0.0}
"""The columns of the answers, and their rewards where no score is given."""
SCORES = {side: f"{side}_score" for side in SIDES}
REVERSED = "chosen_score is not above rejected_score; pairs follow the scores"
NO_PROMPT = "missing, and chosen and rejected begin with no conversation that both have"


def preference_row(record: Record) -> Row:
    """A row without an answer of its own whose `extra.candidates` are the two. Raises DataError."""
    record = _swift(record)
    sides = {side: said_in(record, side, "assistant") for side in SIDES}
    row = _asked(record, sides)
    candidates = []
    for side, answers in sides.items():
        without_system = row.messages[1:] if row.messages[0].role == "system" else row.messages
        if answers[:-1] not in ((), row.messages, without_system):
            fix = "write one answer to the prompt, as text or one message of the assistant"
            raise record.error(side, "does not begin with the prompt", fix)
        if not answers or answers[-1].role != "assistant":
            raise record.error(side, "does not end with an answer of the assistant")
        score = record.maybe(SCORES[side], int, float)
        reward = SIDES[side] if score is None else float(score)
        candidates.append(_candidate(answers[-1], reward))
    if row.messages[-1].role == "assistant":
        raise record.error("prompt", "ends with the assistant", "end it with a user message")
    if candidates[0]["reward"] <= candidates[1]["reward"]:
        record.remark(REVERSED)
    own = {*SIDES, *SCORES.values()}
    extra = {key: value for key, value in row.extra.items() if key not in own}
    return replace(row, extra={**extra, CANDIDATES: candidates})


def _candidate(answer: Message, reward: float) -> dict[str, Any]:
    candidate: dict[str, Any] = {"text": assistant_text(answer), "reward": reward}
    more = answer.tool_calls or answer.reasoning
    return {**candidate, MESSAGE: dump_message(answer)} if more else candidate


def candidate_message(candidate: Mapping[str, Any]) -> Message:
    """The answer of the assistant that a stored candidate is. Raises DataError."""
    if MESSAGE not in candidate:
        return Message("assistant", candidate["text"])
    return parse_message(Record(CANDIDATES, 0, {}), candidate[MESSAGE], MESSAGE)


def _swift(record: Record) -> Record:
    """The record with TRL's columns in the place of ms-swift's."""
    whole, text = record.maybe("rejected_messages", list), record.maybe("rejected_response", str)
    if whole is None and text is None:
        return record
    messages = record.need("messages", list)
    other = {k: v for k, v in record.value.items() if k not in ("messages", *REJECTED)}
    if whole is not None:
        return record.changed({**other, "chosen": messages, "rejected": whole})
    pair = {"messages": messages[:-1], "chosen": messages[-1:], "rejected": text}
    return record.changed({**other, **pair})


def _asked(record: Record, sides: dict[str, tuple[Message, ...]]) -> Row:
    """The row of the prompt as it is written, else of what both answers begin with."""
    own = ("prompt", "messages", "tools", *SIDES, *SCORES.values())
    for field in ("prompt", "messages"):
        if record.value.get(field) is not None:
            prompt = said_in(record, field, "user")
            return chat_row(record, check_order(record, prompt, field), *own)
    chosen, rejected = sides.values()
    prompt = chosen[:-1]
    if not prompt and all(isinstance(record.value[side], str) for side in sides):
        start = _start(chosen[0].content, rejected[0].content)
        prompt = (Message("user", chosen[0].content[:start]),) if start > 0 else ()
        for side, (answer,) in sides.items():
            sides[side] = (Message("assistant", answer.content[start:]),)
    elif chosen[:-1] != rejected[:-1]:
        prompt = ()
    if not prompt:
        raise record.error("prompt", NO_PROMPT, "add a column prompt")
    return chat_row(record, check_order(record, prompt, "prompt"), *own)


def _start(chosen: str, rejected: str) -> int:
    """Where the answers begin in two texts with one prompt, as TRL's `extract_prompt` says: a space
    before them is theirs, and the last character of a text that the other begins with."""
    pairs = enumerate(zip(chosen, rejected, strict=False))
    start = next((at for at, (one, other) in pairs if one != other), None)
    if start is None:
        return min(len(chosen), len(rejected)) - 1
    return start - 1 if chosen[:start].endswith(" ") else start


DOCUMENTS = "documents"
PLAIN = (".txt", ".md")
"""Endings of files of text."""


def document_row(record: Record) -> Row:
    """A document as a user's message. Raises DataError."""
    return build_row(record, (Message("user", record.need("text", str)),), (), "text")


def read_paragraphs(path: Path) -> Iterator[Record]:
    """The paragraphs of a text file as objects, each with the line that it begins on. Raises
    DataError."""
    check_file(path)
    raw = path.read_bytes()
    try:
        lines = raw.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise not_utf8(error, path, 1 + raw.count(b"\n", 0, error.start)) from error
    begun, held = 1, list[str]()
    for number, line in enumerate([*lines, ""], 1):
        if line.strip():
            begun = begun if held else number
            held.append(line.rstrip())
        elif held:
            yield Record(str(path), begun, {"text": "\n".join(held)})
            held = []


def tool_row(record: Record) -> Row:
    """One or several descriptions; the user's message says their names and what they are for.
    Raises DataError."""
    several = "tools" in record.value
    alone = record.others("id")
    tools = parse_tools(record, record.value["tools"] if several else [alone])
    if not tools:
        raise record.error("tools", "describes no tool")
    described = [function_of(tool) for tool in tools]
    listing = "\n".join(f"{each['name']}: {each.get('description', '')}" for each in described)
    own = ("tools",) if several else tuple(alone)
    return build_row(record, (Message("user", listing),), tools, *own)
