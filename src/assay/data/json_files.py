"""Reads and writes JSON lines, and reads JSON arrays of objects; errors name the line.

UTF-8 only. JSON lines are streamed, an array is held in memory as a whole. What the objects mean is
not known here.
"""

import json
import math
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from assay.data.files import atomic_path
from assay.data.loaded import JSON_NAMES, DataError, Found, Record, check_file, sound


def read_jsonl(path: str | Path) -> Iterator[Record]:
    """The objects of a JSON lines file, one by one; blank lines are passed over.

    Raises DataError for a missing file and the first bad line (`jsonl_lines`).
    """
    return sound(jsonl_lines(Path(path)))


def jsonl_lines(path: Path, constants: bool = False) -> Iterator[Found]:
    """The object of each line, or what is wrong with it: bytes that are not UTF-8, malformed JSON,
    NaN and Infinity (which JSON does not have) unless `constants` are taken as floats, numbers
    beyond every float, lone surrogates and anything that is not an object. Raises DataError for a
    missing file.
    """
    check_file(path)
    with path.open("rb") as stream:
        for line, raw in enumerate(stream, 1):
            if not raw.strip():
                continue
            try:
                yield Record(str(path), line, _object(raw, path, line, constants))
            except DataError as error:
                yield error


def write_jsonl(path: str | Path, objects: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object a line, atomically. Raises ValueError for NaN and Infinity."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as out:
        for value in objects:
            out.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")


def load_json(text: str, constants: bool = False) -> Any:
    """`json.loads` without NaN and Infinity, unless `constants` are taken as floats.

    Raises ValueError, also for nesting without end and for a number that no float holds, which
    `json.loads` takes for Infinity.
    """
    try:
        return (_WITH_CONSTANTS if constants else _DECODER).decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValueError as error:
        if "set_int_max_str_digits" not in str(error):
            raise
        most = sys.get_int_max_str_digits()
        raise ValueError(f"an integer of more than {most} digits") from error


def checked_object(value: Any, text: str, path: Path, line: int) -> dict[str, Any]:
    """A parsed value that must be an object, and the text it was parsed from.

    Raises DataError, for a lone surrogate too: it passes the JSON parser and breaks tokenizers and
    writers later.
    """
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            problem = "a \\u escape is half of a surrogate pair"
            raise DataError(problem, file=path, line=line, fix="write the whole pair") from error
    if not isinstance(value, dict):
        problem = f"is {JSON_NAMES[type(value)]}, not an object"
        raise DataError(problem, file=path, line=line, fix="each row is one JSON object")
    return value


def not_utf8(error: UnicodeDecodeError, path: Path, line: int) -> DataError:
    """The error to raise about bytes that are not UTF-8."""
    problem = f"byte {error.start + 1} is not UTF-8"
    return DataError(problem, file=path, line=line, fix="save the file as UTF-8")


def _object(raw: bytes, path: Path, line: int, constants: bool) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8-sig" if line == 1 else "utf-8")
        value = load_json(text, constants)
    except UnicodeDecodeError as error:
        raise not_utf8(error, path, line) from error
    except ValueError as error:
        raise DataError(
            f"malformed JSON: {error}", file=path, line=line, fix="each line holds one JSON object"
        ) from error
    return checked_object(value, text, path, line)


def refuse_constant(name: str) -> Any:
    """Raise ValueError: what a JSON decoder calls for NaN and Infinity."""
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:20]} is beyond the largest that a float holds")
    return value


HEAD_BYTES = 4096
"""Within which a file shows what it is."""
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_constant=refuse_constant, parse_float=_finite)
_WITH_CONSTANTS = json.JSONDecoder(parse_float=_finite)


def load_next(text: str, at: int, constants: bool = False) -> tuple[Any, int]:
    """The JSON value that begins at a place of a text, and where it ends. Raises ValueError."""
    try:
        return (_WITH_CONSTANTS if constants else _DECODER).raw_decode(text, at)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def load_values(text: str) -> list[Any]:
    """The JSON values of a text that holds nothing else, as one a line. Raises ValueError."""
    values, at = [], _past_space(text, 0)
    while at < len(text):
        value, end = load_next(text, at)
        values.append(value)
        at = _past_space(text, end)
    return values


def begins_array(path: Path) -> bool:
    """Whether the file's first character that is not white space opens an array."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(HEAD_BYTES).removeprefix(BOM_UTF8).lstrip().startswith(b"[")


def read_array(path: Path, constants: bool = False) -> Iterator[Found]:
    """The objects of the array, or what is wrong with a member; a record's line is the one that its
    object begins on. NaN and Infinity are floats where `constants` are taken.

    Raises DataError for bytes that are not UTF-8, malformed JSON and text behind the array.
    """
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(error, path, 1 + raw.count(b"\n", 0, error.start)) from error
    at = _past_space(text, _past_space(text, 0) + 1)
    line, counted = 1, 0
    more = text[at : at + 1] != "]"
    while more:
        line, counted = line + text.count("\n", counted, at), at
        value, end = _value(path, text, at, constants)
        try:
            yield Record(str(path), line, checked_object(value, text[at:end], path, line))
        except DataError as error:
            yield error
        at = _past_space(text, end)
        more = text[at : at + 1] == ","
        if more:
            at = _past_space(text, at + 1)
    if text[at : at + 1] != "]":
        _refuse(path, text, at, "expected a comma or the array's end")
    if _past_space(text, at + 1) < len(text):
        _refuse(path, text, at + 1, "text behind the array")


def _past_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(path: Path, text: str, at: int, constants: bool) -> tuple[Any, int]:
    try:
        return load_next(text, at, constants)
    except json.JSONDecodeError as error:
        _refuse(path, text, error.pos, error.msg)
    except ValueError as error:
        _refuse(path, text, at, str(error))


def _refuse(path: Path, text: str, at: int, problem: str) -> NoReturn:
    line = 1 + text.count("\n", 0, at)
    fix = "the file begins with [, so it is read as one array of objects"
    raise DataError(f"malformed JSON: {problem}", file=path, line=line, fix=fix)
