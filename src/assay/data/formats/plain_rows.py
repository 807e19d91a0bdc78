"""Rows of plain columns: prompt and answer, and Alpaca's instruction, input and output.

Also renames the columns of records, so that a file with other names can be read. `id`,
`conversation` and fields that a format does not know are kept, as in every format.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from assay.data.conversation import check_order, parse_message, untrained
from assay.data.formats.kept import BESIDE, build_row, system_beside, tools_beside
from assay.data.hashing import canonical_json
from assay.data.loaded import Columns, DataError, Found, Record
from assay.data.row import Message, Row
from assay.errors import nearest

PROMPT_ANSWER = (*BESIDE, "prompt", "completion", "answer", "tools")
ALPACA = (*BESIDE, "history", "instruction", "input", "output", "tools")


def prompt_answer_row(record: Record) -> Row:
    """A row whose gold is `answer`; its last message is `completion`, else the answer as text.

    `prompt` is text or a list of messages. Raises DataError.
    """
    prompt = record.need("prompt", str, list)
    if isinstance(prompt, str):
        asked: tuple[Message, ...] = (Message("user", prompt),)
    else:
        parsed = (parse_message(record, said, f"prompt[{i}]") for i, said in enumerate(prompt))
        asked = untrained(tuple(parsed))
    answer = record.need("answer", str, int, float, bool, list, dict)
    said = record.maybe("completion", str)
    if said is None:
        said = answer if isinstance(answer, str) else canonical_json(answer)
    row = _row(record, [*asked, Message("assistant", said)], PROMPT_ANSWER)
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
    answer = Message("assistant", record.need("output", str))
    return _row(record, [*alpaca_prompt(record), answer], ALPACA)


def alpaca_prompt(record: Record) -> list[Message]:
    """The earlier turns, and the instruction with its input below. Raises DataError."""
    asked = record.need("instruction", str), record.maybe("input", str)
    messages: list[Message] = []
    for index, pair in enumerate(record.maybe("history", list) or ()):
        path = f"history[{index}]"
        if len(record.typed(path, pair, list)) != 2:
            raise record.error(path, f"has {len(pair)} members", "write [question, answer]")
        messages.append(Message("user", record.typed(f"{path}[0]", pair[0], str)))
        messages.append(Message("assistant", record.typed(f"{path}[1]", pair[1], str)))
    return [*messages, Message("user", "\n".join(filter(None, asked)))]


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
        value = Columns(value, unread) if unread else value
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
