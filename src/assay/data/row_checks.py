"""Drops and counts duplicate rows, refuses ids used twice, and remarks on rows that are kept.

Rows are duplicates where everything but id, conversation and place of origin is equal. Two
different rows with one id are an error, because records and random numbers go by ids. Rows with the
same question and different answers are kept; `conflicts` names them.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from assay.data.conversation import stored_messages
from assay.data.hashing import canonical_json
from assay.data.loaded import DataError, Item, LeftOut
from assay.data.row import Row
from assay.data.tools import function_names

SAME = "says the same as an earlier row"


def without_duplicates(items: Iterable[Item]) -> Iterator[Item]:
    """The items with every row that says the same as an earlier one left out.

    Raises DataError for two rows that share an id and nothing else; it names both lines.
    """
    ids: dict[str, tuple[str, bytes]] = {}
    said: set[bytes] = set()
    for item in items:
        if not isinstance(item, Row):
            yield item
            continue
        digest = content_digest(item)
        origin, before = ids.setdefault(item.id, (item.origin, digest))
        if before != digest:
            raise same_id(item, f"{origin}, which says something else")
        yield LeftOut(item.id, SAME, item.origin) if digest in said else item
        said.add(digest)


def refuse_doubles(items: Iterable[Item]) -> Iterator[Item]:
    """The items, all of them. Raises DataError for two rows with one id; it names both lines."""
    ids: dict[str, str] = {}
    for item in items:
        if isinstance(item, Row) and ids.setdefault(item.id, item.origin) != item.origin:
            raise same_id(item, ids[item.id])
        yield item


def content_digest(row: Row) -> bytes:
    """16 bytes that are the same for rows that say the same."""
    content = [stored_messages(row.messages), list(row.tools), row.gold, dict(row.extra)]
    content += [dict(row.template_options)] if row.template_options else []
    # Columns of parquet may hold what JSON has no word for, such as dates.
    text = json.dumps(content, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode("ascii"), digest_size=16).digest()


def same_id(row: Row, earlier: str) -> DataError:
    """The error about a row with the id of an `earlier` one, which is named by its place."""
    file, _, line = row.origin.rpartition(":")
    problem = f"{row.id!r} is also the id of {earlier}"
    fix = "drop one of the two, or give them ids of their own"
    return DataError(problem, file=file, line=int(line), field="id", fix=fix)


def conflicts(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Ids of rows, each with that of the first row that asks the same and has another answer.

    The answer is the gold where there is one, else the final assistant message.
    """
    first: dict[str, tuple[str, str]] = {}
    found = []
    for row in rows:
        # A row of several turns asks what is in `entry` beside its messages.
        more = [list(row.tools), row.extra.get("entry"), dict(row.template_options)]
        asked = canonical_json([stored_messages(row.prompt), *more])
        said = [asdict(message) for message in row.messages[len(row.prompt) :]]
        answer = canonical_json(said if row.gold is None else row.gold)
        id_, wanted = first.setdefault(asked, (row.id, answer))
        if wanted != answer:
            found.append((row.id, id_))
    return found


TEXT_AND_CALLS = "assistant messages have both text and calls, and some renderings lose the text"
UNDECLARED = "calls of a function that is not among the tools"
NO_TOOLS = "calls where no tools are described"


def remarks(row: Row) -> Iterator[str]:
    """What there is to say about a row, each thing once."""
    if any(message.content and message.tool_calls for message in row.messages):
        yield TEXT_AND_CALLS
    undeclared = undeclared_calls(row)
    if undeclared:
        yield undeclared


def undeclared_calls(row: Row) -> str:
    """What is wrong with the calls of a row that its tools do not describe; "" where nothing is."""
    called = {call.name for message in row.messages for call in message.tool_calls}
    if not called or called <= set(function_names(row.tools)):
        return ""
    return UNDECLARED if row.tools else NO_TOOLS
