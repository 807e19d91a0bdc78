"""Reads and writes JSON lines, and reads JSON arrays of objects; errors name the line.

UTF-8 only. JSON lines are streamed, an array is held in memory as a whole; a file whose name ends
in .gz or .zst is unpacked as it is read. What the objects mean is not known here.
"""

import io
import json
import math
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

from assay.data.files import atomic_path
from assay.data.loaded import JSON_NAMES, DataError, Found, Record, RecordColumns, check_file, sound

Constants = Literal["refused", "floats", "unread"]
"""What NaN and Infinity are: no JSON, floats, or none that their column can be read by."""


def read_jsonl(path: str | Path) -> Iterator[Record]:
    """The objects of a JSON lines file, one by one; blank lines are passed over.

    Raises DataError for a missing file and the first bad line (`jsonl_lines`).
    """
    return sound(jsonl_lines(Path(path)))


def jsonl_lines(path: Path, constants: Constants = "refused") -> Iterator[Found]:
    """The object of each line, or what is wrong with it: bytes that are not UTF-8, malformed JSON,
    NaN and Infinity (which JSON does not have) where these `constants` are refused, numbers beyond
    every float, lone surrogates and anything that is not an object. Raises DataError for a missing
    file, and what `raw_lines` raises.
    """
    check_file(path)
    for line, raw in raw_lines(path):
        if not raw.strip():
            continue
        try:
            yield Record(str(path), line, _object(raw, path, line, constants))
        except DataError as error:
            yield error


PACKED = (".gz", ".zst")
FREE_BYTES, MOST_TIMES = 1 << 28, 200
"""What one line of a packed file, and all of them, may unpack to: that much, all of them also as
many times the file's size."""


def opened(path: Path) -> BinaryIO:
    """The bytes of a file, unpacked where its name ends in one of PACKED."""
    if path.suffix.lower() not in PACKED:
        return path.open("rb")
    import pyarrow as pa

    kind = "gzip" if path.suffix.lower() == ".gz" else "zstd"
    return io.BufferedReader(pa.input_stream(str(path), compression=kind))  # type: ignore[arg-type]


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers.

    Raises DataError for a packed file that is cut or damaged, or stands for far more bytes.
    """
    packed = path.suffix.lower() in PACKED
    longest, left = FREE_BYTES, max(FREE_BYTES, MOST_TIMES * path.stat().st_size)
    line = 0
    try:
        with opened(path) as stream:
            read = partial(stream.readline, longest if packed else -1)
            for line, raw in enumerate(iter(read, b""), 1):
                left -= len(raw)
                if packed and (left < 0 or len(raw) == longest):
                    problem = f"unpacks to more than {longest >> 20} MB, far more than it takes up"
                    fix = "unpack it by hand and look at it"
                    raise DataError(problem, file=path, line=line, fix=fix)
                yield line, raw
    except OSError as error:
        if not packed:
            raise
        raise _damaged(error, path, line + 1) from error


def line_count(path: Path) -> int:
    """How many lines a file has; 0 where there is none."""
    if not path.is_file():
        return 0
    with path.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(partial(stream.read, 1 << 20), b""))


def _damaged(error: OSError, path: Path, line: int) -> DataError:
    return DataError(f"is cut or damaged: {error}", file=path, line=line, fix="pack it again")


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


def _object(raw: bytes, path: Path, line: int, constants: Constants) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8-sig" if line == 1 else "utf-8")
        value = load_json(text, constants != "refused")
    except UnicodeDecodeError as error:
        raise not_utf8(error, path, line) from error
    except ValueError as error:
        raise DataError(
            f"malformed JSON: {error}", file=path, line=line, fix="each line holds one JSON object"
        ) from error
    return _constants_unread(checked_object(value, text, path, line), text, path, line, constants)


_CONSTANT = re.compile("NaN|Infinity")


def _constants_unread(
    value: dict[str, Any], text: str, path: Path, line: int, constants: Constants
) -> dict[str, Any]:
    """An object, its columns of NaN and Infinity unread where these `constants` are."""
    if constants != "unread" or not _CONSTANT.search(text):
        return value
    unread = {}
    for name, column in value.items():
        try:
            json.dumps(column, allow_nan=False)
        except ValueError:
            problem, fix = (
                "holds NaN or Infinity, which JSON does not have",
                "write null or a number",
            )
            unread[name] = DataError(problem, file=path, line=line, field=name, fix=fix)
    return RecordColumns({n: v for n, v in value.items() if n not in unread}, unread)


def refuse_constant(name: str) -> Any:
    """Raise ValueError: what a JSON decoder calls for NaN and Infinity."""
    raise ValueError(f"{name} is not JSON")


def finite(text: str) -> float:
    """A number of a text. Raises ValueError for one that no float holds."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:20]} is beyond the largest that a float holds")
    return value


def nests_deeper(value: Any, most: int) -> bool:
    """Whether members of a value lie deeper than that; without recursion, as it may be hostile."""
    level = [value]
    for _ in range(most):
        nested = [
            v.values() if isinstance(v, dict) else v for v in level if type(v) in (dict, list)
        ]
        level = [child for children in nested for child in children]
    return bool(level)


HEAD_BYTES = 4096
"""Within which a file shows what it is."""
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_constant=refuse_constant, parse_float=finite)
_WITH_CONSTANTS = json.JSONDecoder(parse_float=finite)


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
    try:
        with opened(path) as stream:
            return stream.read(HEAD_BYTES).removeprefix(BOM_UTF8).lstrip().startswith(b"[")
    except OSError as error:
        raise _damaged(error, path, 1) from error


def read_array(path: Path, constants: Constants = "refused") -> Iterator[Found]:
    """The objects of the array, or what is wrong with a member; a record's line is the one that its
    object begins on.

    Raises DataError for bytes that are not UTF-8, malformed JSON and text behind the array, and
    what `raw_lines` raises.
    """
    raw = b"".join(raw for _, raw in raw_lines(path))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(error, path, 1 + raw.count(b"\n", 0, error.start)) from error
    at = _past_space(text, _past_space(text, 0) + 1)
    line, counted = 1, 0
    more = text[at : at + 1] != "]"
    while more:
        line, counted = line + text.count("\n", counted, at), at
        value, end = _value(path, text, at, constants != "refused")
        try:
            value = checked_object(value, text[at:end], path, line)
            value = _constants_unread(value, text[at:end], path, line, constants)
            yield Record(str(path), line, value)
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
    space = _SPACE.match(text, at)
    return space.end() if space else at


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
