"""A file that is one JSON array of objects, UTF-8: its objects, and errors that name their line.

The file is held in memory as a whole. JSON lines are `jsonl`'s.
"""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from assay.data.jsonl import checked_object, not_utf8, refuse_constant
from assay.data.raw_record import DataError, Record

HEAD_BYTES = 4096
"""Within which a file shows what it is."""
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_constant=refuse_constant)


def begins_array(path: Path) -> bool:
    """Whether the file's first character that is not white space opens an array."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(HEAD_BYTES).removeprefix(BOM_UTF8).lstrip().startswith(b"[")


def read_array(path: Path) -> Iterator[Record]:
    """The objects of the array; a record's line is the one that its object begins on.

    Raises DataError for what `read_jsonl` raises it for, and for text behind the array.
    """
    text = _text(path)
    at = _past_space(text, _past_space(text, 0) + 1)
    line, counted = 1, 0
    more = text[at : at + 1] != "]"
    while more:
        line, counted = line + text.count("\n", counted, at), at
        value, end = _value(path, text, at)
        yield Record(str(path), line, checked_object(value, text[at:end], path, line))
        at = _past_space(text, end)
        more = text[at : at + 1] == ","
        if more:
            at = _past_space(text, at + 1)
    if text[at : at + 1] != "]":
        _refuse(path, text, at, "expected a comma or the array's end")
    if _past_space(text, at + 1) < len(text):
        _refuse(path, text, at + 1, "text behind the array")


def _text(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(error, path, 1 + raw.count(b"\n", 0, error.start)) from error


def _past_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(path: Path, text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        _refuse(path, text, error.pos, error.msg)
    except RecursionError:
        _refuse(path, text, at, "nested too deeply")
    except ValueError as error:
        _refuse(path, text, at, str(error))


def _refuse(path: Path, text: str, at: int, problem: str) -> NoReturn:
    line = 1 + text.count("\n", 0, at)
    fix = "the file begins with [, so it is read as one array of objects"
    raise DataError(f"malformed JSON: {problem}", file=path, line=line, fix=fix)
