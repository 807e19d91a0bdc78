"""JSON lines in and out: one object a line, UTF-8, errors that name the line.

Reading streams; nothing here knows what the objects mean.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.data.files import atomic_path
from assay.data.record import JSON_NAMES, DataError, Record


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
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _object(raw: bytes, path: Path, line: int) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8-sig" if line == 1 else "utf-8")
        value = load_json(text)
        if "\\u" in text:
            # A lone surrogate passes the JSON parser and breaks tokenizers and writers later.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"byte {error.start + 1} is not UTF-8"
        raise DataError(problem, file=path, line=line, fix="save the file as UTF-8") from error
    except UnicodeEncodeError as error:
        problem = "a \\u escape is half of a surrogate pair"
        raise DataError(problem, file=path, line=line, fix="write the whole pair") from error
    except ValueError as error:
        raise DataError(
            f"malformed JSON: {error}", file=path, line=line, fix="each line holds one JSON object"
        ) from error
    if not isinstance(value, dict):
        problem = f"is {JSON_NAMES[type(value)]}, not an object"
        raise DataError(problem, file=path, line=line, fix="each line holds one JSON object")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
