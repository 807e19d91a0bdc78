"""Drops and counts duplicate rows, refuses ids used twice, remarks on rows that are kept, keeps
those that meet conditions, and sorts rows by a field.

Rows are duplicates where everything but id, conversation and place of origin is equal. Two
different rows with one id are an error, because records and random numbers go by ids. Rows with the
same question and different answers are kept; `conflicts` names them.

A field is `id`, `conversation`, `gold`, or one inside `gold` or `extra` by its dotted path, such as
`extra.difficulty`. Text that is a number is compared as one, because a CSV file has only text.
"""

import hashlib
import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from assay.data.conversation import stored_messages
from assay.data.files import canonical_json, sha256_text
from assay.data.loaded import ABSENT, DataError, Item, LeftOut, at_path, error_at
from assay.data.row import Row
from assay.data.tools import function_names
from assay.errors import nearest

SAME = "says the same as an earlier row"


def without_duplicates(items: Iterable[Item]) -> Iterator[Item]:
    """The items with every row that says the same as an earlier one left out.

    Raises DataError for two rows that share an id and nothing else; it names both lines.
    """
    ids: dict[str, tuple[str, bytes]] = {}
    digests: set[bytes] = set()
    for item in items:
        if not isinstance(item, Row):
            yield item
            continue
        digest = content_digest(item)
        origin, before = ids.setdefault(item.id, (item.origin, digest))
        if before != digest:
            raise same_id(item, f"{origin}, which says something else")
        yield LeftOut(item.id, SAME, item.origin) if digest in digests else item
        digests.add(digest)


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
    fix = "drop one of the two, or give them ids of their own"
    return error_at(row.origin, f"{row.id!r} is also the id of {earlier}", fix, "id")


def conflicts(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Ids of rows, each with that of the first row that asks the same and has another answer.

    The answer is the gold where there is one, else the final assistant message.
    """
    first: dict[str, tuple[str, str]] = {}
    pairs = []
    for row in rows:
        # A row of several turns asks what is in `entry` beside its messages.
        more = [list(row.tools), row.extra.get("entry"), dict(row.template_options)]
        question = sha256_text(canonical_json([stored_messages(row.prompt), *more]))
        completion = [asdict(message) for message in row.messages[len(row.prompt) :]]
        answer = canonical_json(completion if row.gold is None else row.gold)
        id_, wanted = first.setdefault(question, (row.id, answer))
        if wanted != answer:
            pairs.append((row.id, id_))
    return pairs


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


ROOTS = ("id", "conversation", "gold", "extra")
"""What the path of a field begins with."""

WHERE = "where: not "
"""Begins the reason of rows that a condition leaves out."""

Value = str | int | float | bool


def field_problem(path: str) -> str:
    """What is wrong with a field's path in itself; "" where nothing is."""
    root, _, rest = path.partition(".")
    known = root in ROOTS and (root == "gold" or (root == "extra") == bool(rest))
    return "" if known else f"{path!r} is no field of a row"


def field_value(row: Row, path: str) -> Any:
    """The value of a field; None where the row does not have it."""
    root, _, rest = path.partition(".")
    value = getattr(row, root)
    leaf = at_path(value, rest) if rest else value
    return None if leaf is ABSENT else leaf


def check_field(rows: Sequence[Row], path: str, place: str) -> None:
    """Raise DataError with the nearest fields where no row has this one; `place` is the key."""
    if not rows or any(field_value(row, path) is not None for row in rows):
        return
    known = {f"extra.{name}" for row in rows for name in row.extra} | {*ROOTS[:3]}
    raise DataError(f"no row has a field {path!r}", field=place, fix=nearest(path, known))


@dataclass(frozen=True, slots=True)
class FieldCondition:
    """What a field has to be; every comparison that is given has to hold."""

    field: str
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    equals: Value | None = None
    one_of: tuple[Value, ...] | None = None
    none_of: tuple[Value, ...] | None = None
    contains: Value | None = None
    """Text within a text, or a member of a list."""
    exists: bool | None = None

    def __str__(self) -> str:
        return f"{self.field} " + ", ".join(
            f"{name} {_said(value)}" for name, value in self.given()
        )

    def given(self) -> list[tuple[str, Any]]:
        """The comparisons that are given, by name."""
        names = (name for name in self.__slots__ if name != "field")
        return [(name, value) for name in names if (value := getattr(self, name)) is not None]


def _said(value: Any) -> str:
    if isinstance(value, tuple):
        return " | ".join(map(_said, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def fits(condition: FieldCondition, row: Row) -> bool:
    """Whether a row meets a condition. One without the field meets only `exists = false`.

    Raises DataError where a value that is no number would have to be compared with one.
    """
    value = field_value(row, condition.field)
    if value is None:
        return condition.exists is False
    return condition.exists is not False and all(
        _holds(name, wanted, value, row, condition.field) for name, wanted in condition.given()
    )


def _holds(name: str, wanted: Any, value: Any, row: Row, path: str) -> bool:
    if name in BOUNDS:
        return BOUNDS[name](number(value, row, path), wanted)
    if name == "contains":
        if isinstance(value, str):
            return str(wanted) in value
        return isinstance(value, list | tuple) and any(_same(one, wanted) for one in value)
    if name == "exists":
        return True
    same = any(_same(value, one) for one in (wanted if isinstance(wanted, tuple) else (wanted,)))
    return same != (name == "none_of")


BOUNDS: Mapping[str, Callable[[float, float], bool]] = {
    "at_least": operator.ge, "at_most": operator.le, "above": operator.gt, "below": operator.lt
}  # fmt: skip


def number(value: Any, row: Row, path: str) -> float:
    """A value of a row as a number. Raises DataError for one that is none, and for NaN."""
    parsed = _as_number(value)
    if parsed is None:
        fix = "compare text with equals, one_of or contains"
        raise error_at(row.origin, f"{value!r} is no number", fix, path)
    return parsed


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        parsed = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(parsed) else parsed


def _same(value: Any, wanted: Value) -> bool:
    if isinstance(wanted, bool) or isinstance(value, bool):
        return value is wanted
    if isinstance(wanted, int | float):
        return _as_number(value) == wanted
    return value == wanted


def sorted_places(rows: Sequence[Row], path: str, descending: bool) -> tuple[int, ...]:
    """The places of the rows by a field, equal ones as they are given.

    All values are numbers, or all are text. Raises DataError for a row without the field and for
    one whose value is of another kind.
    """
    check_field(rows, path, "order.by")
    values = [field_value(row, path) for row in rows]
    for row, value in zip(rows, values, strict=True):
        if value is None:
            fix = f'leave such rows out: where = [{{ field = "{path}", exists = true }}]'
            raise DataError(f"row {row.id} has no {path}", field="order.by", fix=fix)
    text = all(isinstance(value, str) for value in values)
    if not text or all(_as_number(value) is not None for value in values):
        values = [number(value, row, path) for row, value in zip(rows, values, strict=True)]
    return tuple(sorted(range(len(rows)), key=values.__getitem__, reverse=descending))


def where(
    rows: Iterable[Row], conditions: Sequence[FieldCondition]
) -> tuple[tuple[Row, ...], dict[str, tuple[str, ...]]]:
    """The rows that meet all conditions, and the ids of the others by what they missed first.

    Raises what `check_field` and `fits` raise.
    """
    kept, dropped = tuple(rows), {}
    for condition in conditions:
        if condition.exists is None:
            check_field(kept, condition.field, "where")
        left = tuple(row for row in kept if fits(condition, row))
        if len(left) < len(kept):
            staying = {row.id for row in left}
            ids = tuple(row.id for row in kept if row.id not in staying)
            dropped[f"{WHERE}{condition}"] = ids
        kept = left
    return kept, dropped


DEV_FIX = "a share such as 0.1, or a number of rows such as 60"


def dev_problem(dev: float | int) -> str:
    """Why `dev` says neither a share nor a number of rows; "" where it does."""
    if dev <= 0:
        return f"must be more than 0, not {dev}"
    if dev == 1:
        return f"{dev} may mean one row or all of them"
    if isinstance(dev, float) and not dev < 1:
        return f"{dev} is no share, and a number of rows is an integer"
    return ""
