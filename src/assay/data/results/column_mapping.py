"""Reads the results of any tool by the names of its columns: JSONL, JSON, CSV and parquet.

The user says where the item and its score stand. A name with dots leads into tables and lists
(`doc.id`, `traces.0.rewards.correct.score`); a column that has the dots in its own name comes
first. The rows of a JSON document are the objects that hold both, in whatever list or table they
lie. What a tool's file says beside the scores, such as its settings, is not read.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.data.hashing import content_id
from assay.data.json_files import begins_array, load_json
from assay.data.loaded import DataError, Record
from assay.data.results.foreign_result import (
    Answer,
    Clusters,
    Places,
    Result,
    number,
    numbered,
    read_objects,
    read_rows,
    read_text,
)
from assay.data.results.plain_table import csv_rows
from assay.errors import Finding, InputError, finding, nearest

KEY = "@key"
"""As the item: the name under which a row stands in a table, or its number in a list or file."""
LONGEST_ID = 256
"""Longer texts, such as prompts, are named by their fingerprint."""
WORDS = {"true": 1.0, "false": 0.0}
"""How CSV files write what is no number."""
ASKED = ("prompt", "question", "problem", "query", "instruction", "input", "messages")
WANTED = ("answer", "target", "ground_truth", "gold", "solution", "reference")
"""Columns that ask something in the files of other tools, and that hold the right answer."""
ABSENT = object()


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a row has what a comparison needs."""

    item: str
    score: str
    """A column, or COLUMN=TEXT: 1 where the column holds the text, else 0; several joined by
    commas must all hold theirs."""
    repeat: str | None = None
    """None: an item that comes again is its next repeat."""
    where: tuple[str, ...] = ()
    """COLUMN=TEXT: rows without it are no answers."""


def read_mapped(path: Path, columns: Columns, cluster: str | None = None) -> list[Result]:
    """The one run of a file by the columns named; `cluster` is the column of sources.

    A row that lacks the score, or has null there, is an answer without one. Raises DataError, also
    where no row has the item, the score or what `where` asks, and InputError for a condition that
    is none.
    """
    conditions = [_condition(text, "--where") for text in columns.where]
    rows = list(_rows(path, columns))
    if not rows:
        raise DataError("holds no rows", file=path)
    for name, text in conditions:
        kept = [row for row in rows if _text(_at(row.value, name)) == text]
        if not kept:
            known = _texts(rows, name)
            fix = nearest(text, known) if known else _nearest(rows, name)
            raise DataError(f"no row has {name}={text}", file=path, field="--where", fix=fix)
        rows = kept
    scores = list(_scores(path, rows, columns.score))
    items, remarks = _items(rows, columns, path.stem)
    places, sources, answers = Places(), Clusters(cluster), []
    for row, (item, repeat), score in zip(
        rows, _repeats(rows, items, columns), scores, strict=True
    ):
        places.take(row, columns.item, item, repeat, fix="--repeat names the number of the pass")
        found = _at(row.value, sources.key)
        sources.take(row, item, {} if found is ABSENT else {sources.key: _plain(found)})
        answers.append(Answer(item, repeat, score))
    metric, clusters = columns.score, sources.by_item
    found = Result(path.stem, str(path), "columns", metric, tuple(answers), clusters=clusters)
    return [replace(found, remarks=remarks)]


def _items(
    rows: Sequence[Record], columns: Columns, run: str
) -> tuple[list[str], tuple[Finding, ...]]:
    """The item of each row: its id, or its question where the ids run over all answers of a
    question or across questions, and every question is answered equally often."""
    ids = [_item(row, columns.item) for row in rows]
    # Beside the id, in whatever table that stands.
    place = columns.item[: columns.item.rfind(".") + 1]
    asked, wanted = zip(*(_question(row, place) for row in rows), strict=True)
    if not all(asked) or columns.repeat is not None or columns.item.removeprefix(place) in ASKED:
        return ids, ()
    questions = [content_id([*map(str, (*a, *w))]) for a, w in zip(asked, wanted, strict=True)]
    names, pairs = {*ids}, {*zip(ids, questions, strict=True)}
    counts, values = Counter(questions), {"ids": len({*ids}), "questions": len({*questions})}
    if len(pairs) == len(names) == len(counts):
        return ids, ()
    even = len({*counts.values()}) == 1 and 1 < len(counts) <= len(names)
    if even and all(wanted):
        return questions, (finding("ids_are_repeats", "warning", name=run, **values),)
    return ids, (finding("questions_repeat", "warning", name=run, **values),)


def _question(row: Record, place: str) -> tuple[list[Any], list[Any]]:
    """What a row asks and its right answer, at a place or else in a table there."""
    table = _at(row.value, place[:-1]) if place else row.value
    members = table.items() if isinstance(table, Mapping) else ()
    inner = [f"{place}{key}." for key, value in members if isinstance(value, dict)]
    for each in (place, *inner):
        asked, wanted = (
            [v for n in names if (v := _at(row.value, each + n)) not in (ABSENT, None)]
            for names in (ASKED, WANTED)
        )
        if asked:
            return asked, wanted
    return [], []


def _condition(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InputError(f"{text!r} is not COLUMN=TEXT", field=option, fix="such as type=match")
    return name, value


def _scores(path: Path, rows: Sequence[Record], score: str) -> Iterator[float | None]:
    """The score of each row. Raises DataError where no row has one, or one that is no number."""
    parts = score.split(",")
    if not all("=" in part for part in parts):
        if not _texts(rows, score):
            raise DataError("missing", file=path, field=score, fix=_nearest(rows, score))
        yield from (number(row, score, _number(_at(row.value, score))) for row in rows)
        return
    conditions = [_condition(part, "--score") for part in parts]
    for name, text in conditions:
        known = _texts(rows, name)
        if not known:
            raise DataError("missing", file=path, field=name, fix=_nearest(rows, name))
        if text not in known and (fix := nearest(text, known)).startswith("did you mean"):
            raise DataError(f"no row has {name}={text}", file=path, field="--score", fix=fix)
    for row in rows:
        held = [(_at(row.value, name), text) for name, text in conditions]
        known = all(value is not ABSENT and value is not None for value, _ in held)
        yield float(all(_text(value) == text for value, text in held)) if known else None


def _number(value: Any) -> Any:
    """A cell as a number where it is one; an absent score is none."""
    if value is ABSENT or value == "":
        return None
    if not isinstance(value, str):
        return value
    if value.lower() in WORDS:
        return WORDS[value.lower()]
    try:
        return float(value)
    except ValueError:
        return value


def _item(row: Record, name: str) -> str:
    value = _at(row.value, name)
    if value is ABSENT or value is None or value == "":
        fix = f"{nearest(name, row.value)}; --where COLUMN=TEXT leaves rows out"
        raise row.error(name, "missing", fix)
    if isinstance(value, dict | list):
        return content_id(value)
    text = str(_plain(value))
    return content_id(text) if len(text) > LONGEST_ID else text


def _plain(value: Any) -> Any:
    """pandas makes floats of a column of integers where one is missing."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _repeats(
    rows: Sequence[Record], items: Sequence[str], columns: Columns
) -> Iterable[tuple[str, int]]:
    """Each item with its repeat. Raises DataError for a repeat that is no whole number."""
    if columns.repeat is None:
        return numbered(items)
    found = []
    for row, item in zip(rows, items, strict=True):
        value = _plain(_number(_at(row.value, columns.repeat)))
        if type(value) is not int:
            fix = f"a whole number; {nearest(columns.repeat, row.value)}"
            raise row.error(columns.repeat, "is no number of a pass", fix)
        found.append((item, value))
    return found


def _at(value: Any, name: str) -> Any:
    """What stands under a name with dots; ABSENT where nothing does."""
    if isinstance(value, Mapping):
        if name in value:
            return value[name]
        ends = [at for at, letter in enumerate(name) if letter == "."]
        heads = (name[:at] for at in reversed(ends) if name[:at] in value)
        head = next(heads, None)
        return ABSENT if head is None else _at(value[head], name[len(head) + 1 :])
    first, _, rest = name.partition(".")
    if not isinstance(value, list) or not first.isdecimal() or int(first) >= len(value):
        return ABSENT
    return _at(value[int(first)], rest) if rest else value[int(first)]


def _texts(rows: Iterable[Record], name: str) -> set[str]:
    """What stands under a name in the rows, as conditions are written."""
    values = (_at(row.value, name) for row in rows)
    return {_text(value) for value in values if value is not ABSENT}


def _nearest(rows: Iterable[Record], name: str) -> str:
    """The fix for a name that no row has: fields of the rows, and of tables in them."""
    names: dict[str, None] = {}
    for row in rows:
        for key, value in row.value.items():
            inner = value if isinstance(value, dict) else ()
            names |= dict.fromkeys([key, *(f"{key}.{each}" for each in inner)])
    return nearest(name, names)


def _text(value: Any) -> str:
    """A value as a condition is written."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is ABSENT or value is None else str(_plain(value))


def _rows(path: Path, columns: Columns) -> Iterator[Record]:
    """The rows of a file, with their key where the item is that."""
    if path.suffix == ".parquet":
        rows: Iterable[Record] = read_rows(path)
    elif path.suffix == ".csv":
        rows = csv_rows(path)
    elif (document := _document(path)) is not None:
        found = _within(document, columns)
        rows = (Record(str(path), n, {**row, KEY: key}) for n, (key, row) in enumerate(found, 1))
        yield from rows
        return
    else:
        rows = read_objects(path)
    for place, row in enumerate(rows):
        yield Record(row.file, row.line, {**row.value, KEY: place})


def _document(path: Path) -> dict[str, Any] | None:
    """The one object of a JSON file; None for an array, and for objects one a line."""
    if path.suffix == ".jsonl" or begins_array(path):
        return None
    text = read_text(path)
    try:
        value = load_json(text, constants=True)
    except ValueError as error:
        if str(error).startswith("Extra data"):
            return None
        raise DataError(f"malformed JSON: {error}", file=path) from error
    return value if isinstance(value, dict) else None


def _within(value: Any, columns: Columns) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """The objects of the lists and tables of which a member has the item and the score."""
    if not isinstance(value, dict | list):
        return
    members = list(value.items() if isinstance(value, dict) else enumerate(value))
    tables = [(key, member) for key, member in members if isinstance(member, dict)]
    if any(_is_row(member, columns) for _, member in tables):
        yield from tables
        return
    for _, member in members:
        yield from _within(member, columns)


def _is_row(value: Mapping[str, Any], columns: Columns) -> bool:
    score = columns.score.split(",")[0].partition("=")[0]
    named = columns.item == KEY or _at(value, columns.item) is not ABSENT
    return named and _at(value, score) is not ABSENT
