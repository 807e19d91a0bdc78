"""JSON lines in and out: one object a line, UTF-8, errors that name the line.

Reading streams; nothing here knows what the objects mean.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.data.files import atomic_path
from assay.data.raw_record import JSON_NAMES, DataError, Record


def read_jsonl(path: str | Path) -> Iterator[Record]:
    """The objects of a JSON lines file, one by one; blank lines are passed over.

    Raises DataError for a missing file, bytes that are not UTF-8, malformed JSON, NaN and
    Infinity (which JSON does not have), lone surrogates and anything that is not an object.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("no such file", file=path)
    with path.open("rb") as stream:
        for line, raw in enumerate(stream, 1):
            if raw.strip():
                yield Record(str(path), line, _object(raw, path, line))


def write_jsonl(path: str | Path, objects: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object a line, atomically. Raises ValueError for NaN and Infinity."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as out:
        for value in objects:
            out.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")


def load_json(text: str) -> Any:
    """`json.loads` without NaN and Infinity. Raises ValueError, for nesting without end too."""
    try:
        return json.loads(text, parse_constant=refuse_constant)
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


def _object(raw: bytes, path: Path, line: int) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8-sig" if line == 1 else "utf-8")
        value = load_json(text)
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
