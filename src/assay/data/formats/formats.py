"""Reads and writes rows by the name of a data format: `read_rows(path, "messages")`.

A reader yields rows, remarks about them, and conversations it left out with the reason. A few rows
of a file that cannot be read are left out and named; more refuse the file. To add a format, write
its function and enter it here, or set `FORMATS["name"] = reader` in the task that owns it. Also
turns a conversation into one row for each assistant turn, or cuts it after its last call. Splits,
lengths and rendering are elsewhere.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from assay.data.conversation import cut_untrained
from assay.data.csv_files import CsvOptions, is_csv, read_csv
from assay.data.formats import call_sets, chat_rows, plain_rows, problem_rows
from assay.data.formats.kept import KEPT, KeptRecord
from assay.data.formats.plain_rows import PREFERENCE, refuse_preferences, renamed
from assay.data.formats.plain_text import PlainText
from assay.data.json_files import begins_array, jsonl_lines, read_array, write_jsonl
from assay.data.loaded import UNREADABLE, DataError, Found, Item, LeftOut, Record, Remark, error_at
from assay.data.message_parts import refuse_images
from assay.data.parquet import read_parquet, without_nulls, write_parquet
from assay.data.row import Message, Row
from assay.data.row_checks import (
    NO_TOOLS,
    UNDECLARED,
    refuse_doubles,
    remarks,
    undeclared_calls,
    without_duplicates,
)
from assay.data.splits import conversation_of
from assay.errors import InputError, nearest

Expand = Literal["each_turn", "last_call"]

NO_TURN = "a conversation in which the assistant says nothing"
NO_CALL = "a conversation in which nothing is called"


def expanded(row: Row, how: Expand | None) -> Iterator[Row | LeftOut]:
    """The rows that a conversation becomes; the row itself where `how` is None.

    `each_turn`: the rows are named `ID:1`, `ID:2` and so on, by the number of the assistant message
    that is the target; messages with `loss` false are no targets. The gold answer, which judges the
    whole conversation, stays with the row that holds all of it. `last_call`: the conversation up to
    the last assistant message that calls, as the published converter of the format cuts it.
    """
    if how is None:
        yield row
    elif how == "last_call":
        yield last_call(row)
    else:
        turns = list(_each_turn(row))
        yield from turns or [LeftOut(row.id, NO_TURN, row.origin)]


def last_call(row: Row) -> Row | LeftOut:
    """The conversation up to the last assistant message with a call."""
    calling = [index for index, message in enumerate(row.messages) if message.tool_calls]
    if not calling:
        return LeftOut(row.id, NO_CALL, row.origin)
    if calling[-1] == len(row.messages) - 1:
        return row
    return replace(row, messages=row.messages[: calling[-1] + 1], gold=None, columns={})


def _each_turn(row: Row) -> Iterator[Row]:
    def turn(messages: tuple[Message, ...]) -> Row:
        whole = len(messages) == len(row.messages)
        kept = (
            {"gold": row.gold, "columns": row.columns} if whole else {"gold": None, "columns": {}}
        )
        named = {"id": f"{row.id}:{number}", "conversation": conversation_of(row)}
        return replace(row, messages=messages, **named, **kept)

    context: list[Message] = []
    number = 0
    for message in row.messages:
        if message.role == "assistant":
            number += 1
            if message.loss:
                yield turn((*context, message))
            message = replace(message, loss=False)
        context.append(message)
    if row.gold is not None and row.messages[-1].role != "assistant":
        # A prompt with a gold answer and no message for it is a turn too.
        number += 1
        yield turn(tuple(context))


Reader = Callable[[Record], Iterable[Item]]
"""What an object of a file becomes: a row, what is left out of it, remarks."""
Writer = Callable[[Row, PlainText | None], KeptRecord]

UNTRAINED = "no message of the conversation is trained on (loss is false on all of them)"


def read_records(path: str | Path, csv: CsvOptions | None = None) -> Iterator[Found]:
    """The objects of a file, and what is wrong in the place of others: CSV where `csv` says how, or
    by its ending; parquet by its ending; a JSON array by its first character; JSON lines otherwise.
    Both are unpacked where the name ends in .gz or .zst, and so is CSV.

    Raises DataError for a file that cannot be read on.
    """
    path = Path(path)
    if csv is not None or is_csv(path):
        return read_csv(path, csv)
    if path.suffix == ".parquet":
        return read_parquet(path)
    return (read_array if begins_array(path) else jsonl_lines)(path, constants="unread")


def record_reader(parse: Callable[[Record], Row]) -> Reader:
    """A reader from a function that makes one row of each object, with what it remarked."""

    def read(record: Record) -> Iterator[Item]:
        row = parse(record)
        yield from (Remark(row.id, words) for words in sorted(record.told))
        kept = cut_untrained(row.messages)
        if not kept:
            yield LeftOut(row.id, UNTRAINED, row.origin)
        else:
            yield row if len(kept) == len(row.messages) else replace(row, messages=kept)

    return read


ROWS: Mapping[str, Callable[[Record], Row]] = {
    "messages": chat_rows.messages_row,
    "hermes": call_sets.hermes_row,
    "swift": chat_rows.swift_row,
    "verl": chat_rows.verl_row,
    "looptool": call_sets.looptool_row,
    "trl": chat_rows.trl_row,
    "xlam": call_sets.xlam_row,
    **problem_rows.PROBLEM_ROWS,
    "prompt_answer": plain_rows.prompt_answer_row,
    "csv": plain_rows.prompt_answer_row,
    "alpaca": plain_rows.alpaca_row,
    PREFERENCE: plain_rows.preference_row,
    plain_rows.DOCUMENTS: plain_rows.document_row,
    "tool_schemas": plain_rows.tool_row,
}
FORMATS: dict[str, Reader] = {
    **{name: record_reader(parse) for name, parse in ROWS.items()},
    "hardgen": call_sets.hardgen_items,
}

WRITERS: dict[str, Writer] = {
    "messages": chat_rows.dump_messages_row,
    "swift": chat_rows.dump_swift,
    "verl": chat_rows.dump_verl,
    "trl": chat_rows.dump_trl,
}

WITH_IMAGES = frozenset({"messages"})
"""Formats that carry images; the others refuse them."""

PARQUET_SCHEMAS = {"verl": chat_rows.VERL_SCHEMA}
"""Formats that may be written as parquet; the others are JSON lines."""

PLACED = {"verl": chat_rows.placed}
"""Formats whose records hold the side of a split and their number on it."""


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How the objects of a file are found and named."""

    csv: CsvOptions | None = None
    """How a CSV file is written; None: as its ending says."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Column that the format knows -> the file's name for it."""
    nulls: Literal["keep", "drop"] = "keep"
    """Whether keys whose value is null are there, at every depth."""


def iter_items(path: str | Path, format: str, layout: FileLayout | None = None) -> Iterator[Item]:
    """All that a file gives, one by one, in its order.

    A duplicate of an earlier row is left out (`row_checks`), and so are rows that cannot be read.

    Raises InputError, and DataError where more than MOST_BAD of the rows cannot be read,
    for two rows that share an id alone (it names both lines) and for a file without records.
    """
    return without_duplicates(items_of(None, format, layout or FileLayout(), path, MOST_BAD))


def iter_rows(path: str | Path, format: str, layout: FileLayout | None = None) -> Iterator[Row]:
    """The rows of a file one by one, none left out.

    Raises what `iter_items` and `all_rows` raise, and DataError for the first bad record.
    """
    return all_rows(items_of(None, format, layout or FileLayout(), path, 0.0))


def all_rows(items: Iterable[Item]) -> Iterator[Row]:
    """The rows among the items, each of which has to be one.

    Raises DataError for two rows with one id, and for a conversation that became no row.
    """
    for item in refuse_doubles(items):
        if isinstance(item, LeftOut):
            raise error_at(item.origin, item.reason, "take it out of the file")
        if isinstance(item, Row):
            yield item


MOST_BAD = 0.01
"""Rows of a file that may be left out because they cannot be read, as a share of all."""


def items_of(
    records: Iterable[Found] | None,
    format: str,
    layout: FileLayout,
    file: str | Path,
    most_bad: float,
) -> Iterator[Item]:
    """What the records of a `file`, its own where None are given, are in this format, duplicates
    included. Rows that cannot be read are left out; at the end they are refused where there are
    more than `most_bad` of all, and at once where that is 0.

    Raises InputError, and DataError for bad rows and for a file without records.
    """
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}", fix=nearest(format, FORMATS))
    if records is None and format == plain_rows.DOCUMENTS and Path(file).suffix in plain_rows.PLAIN:
        records = plain_rows.read_paragraphs(Path(file))
    if records is None:
        records = read_records(file, layout.csv or (CsvOptions() if format == "csv" else None))
    total, bad, first = 0, 0, None
    for record in renamed(records, layout.columns) if layout.columns else records:
        total += 1
        try:
            items = _items(record, format, layout)
        except DataError as error:
            if not most_bad:
                raise mapped(error, record) from None
            bad, first = bad + 1, first or mapped(error, record)
            place = f"line {error.line}" + (f": {error.field}" if error.field else "")
            items = [LeftOut(f"{place}: {error.problem}", UNREADABLE, f"{error.file}:{error.line}")]
        yield from items
    if not total:
        raise DataError("holds no rows", file=file)
    if first is not None and bad > most_bad * total:
        many = f"{bad} of {total} rows cannot be read, and at most {most_bad:.0%} are left out"
        fixes = [first.fix, many if bad > 1 else None]
        where = {"file": first.file, "line": first.line, "field": first.field}
        raise DataError(first.problem, fix="; ".join(filter(None, fixes)), **where)


def _items(record: Found, format: str, layout: FileLayout) -> list[Item]:
    """What one record gives, rows with the columns that their format has read. Raises DataError."""
    if isinstance(record, DataError):
        raise record
    if layout.nulls == "drop":
        record = record.changed(without_nulls(record.value))
    written = record.value if record.written is None else record.written
    items = list(FORMATS[format](record if format == PREFERENCE else refuse_preferences(record)))
    for index, item in enumerate(items):
        if isinstance(item, Row):
            names = written.keys() - item.extra.keys() - MESSAGES
            columns = {name: written[name] for name in written if name in names}
            if isinstance(text := record.value.get(PROMPT), str):
                columns[PROMPT] = text
            items[index] = replace(item, columns=columns) if columns else item
    about = next((item.id for item in items if isinstance(item, Row)), "")
    left = [f"column {e.field!r} {e.problem}: it is left out" for e in record.unread.values()]
    return [*(Remark(about, words) for words in left if about), *items]


LIKELY: Mapping[str, tuple[str, ...]] = {
    "prompt": ("question", "problem", "query", "instruction", "input", "text"),
    "answer": ("label", "target", "gold", "solution", "ground_truth", "response", "output"),
}
"""What other data sets call a column."""


def mapped(error: DataError, record: Found) -> DataError:
    """The error, with the mapping to write where a missing column is there by another name."""
    names = record.value if isinstance(record, Record) and error.problem == "missing" else ()
    theirs = next((each for each in LIKELY.get(error.field or "", ()) if each in names), None)
    if theirs is None:
        return error
    fix = f'write columns = {{ {error.field} = "{theirs}" }}; {error.fix}'
    return DataError("missing", file=error.file, line=error.line, field=error.field, fix=fix)


PROMPT = "prompt"
"""The column that rows have where the file's prompt is text and no messages."""
MESSAGES = {PROMPT, "completion", "messages", "conversations", "chosen", "rejected", KEPT}
"""Columns that a row has as messages, or that hold a whole row."""


def read_rows(path: str | Path, format: str) -> list[Row]:
    """All rows of a file in its order. Raises what `iter_rows` raises."""
    return list(iter_rows(path, format))


def shaped(items: Iterable[Item], expand: Expand | None, keep_undeclared: bool) -> Iterator[Item]:
    """The items with their rows made into turns, and with remarks about the conversations.

    A row that calls what its tools do not describe is kept with a remark, or left out.
    """
    for item in items:
        if not isinstance(item, Row):
            yield item
            continue
        for words in remarks(item):
            if keep_undeclared or words not in (UNDECLARED, NO_TOOLS):
                yield Remark(item.id, words)
        for row in expanded(item, expand):
            undeclared = isinstance(row, Row) and not keep_undeclared and undeclared_calls(row)
            yield LeftOut(row.id, undeclared, row.origin) if undeclared else row


def write_rows(
    path: str | Path,
    rows: Iterable[Row],
    format: str,
    split: str = "",
    text: PlainText | None = None,
) -> dict[str, int]:
    """Write rows, as parquet if `path` ends so. Returns what was lost, in words, with counts.

    An empty result means that reading the file gives equal rows but for `origin`, and that the
    format's own tool takes all of them. `split` is the side the rows are on, for formats that say
    it; `text` writes conversations for tools that render them otherwise. Raises InputError
    for a format without a writer, or one that is not written as parquet, and what writers raise.
    """
    if format not in WRITERS:
        raise InputError(f"cannot write format {format!r}", fix=nearest(format, WRITERS))
    losses: dict[str, int] = {}

    def records() -> Iterator[dict]:
        for index, row in enumerate(rows):
            if format not in WITH_IMAGES:
                refuse_images(row.messages, f"format {format!r}", "write format 'messages'")
            written = WRITERS[format](row, text)
            for loss in written.losses:
                losses[loss] = losses.get(loss, 0) + 1
            place = PLACED.get(format)
            yield place(written.value, split, index) if place and split else written.value

    if Path(path).suffix != ".parquet":
        write_jsonl(path, records())
    elif format in PARQUET_SCHEMAS:
        write_parquet(path, records(), PARQUET_SCHEMAS[format])
    else:
        raise InputError(f"format {format!r} is not written as parquet", fix="end it in .jsonl")
    return losses
