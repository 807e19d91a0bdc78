"""Reads what a teacher wrote as rows of a data format, or says why it is none.

The text is hostile: it is parsed and never run, and a row has of it what the format reads and the
fields that the table keeps. A row's id, conversation and tools come from its seed.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.data.episode import row_values
from assay.data.formats.formats import Layout, all_rows, items_of
from assay.data.json_files import load_next
from assay.data.leakage import question
from assay.data.loaded import Record
from assay.data.row import Row
from assay.data.row_checks import undeclared_calls
from assay.data.splits import conversation_of
from assay.errors import InputError
from assay.experiment.synthesise_table import SynthesiseSpec
from assay.tasks.user_code import function_in, in_a_line

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
MOST_TRIES = 1000
"""Places of a text at which JSON is looked for."""
FENCE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
OPENING = re.compile(r"[{\[]")
TAG = re.compile(r"<([a-z_]{1,40})>")


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that is not in the set, or an answer without rows, with the reason."""

    id: str
    seed: str
    sample: int
    reason: str
    """One of `REASONS`."""
    why: str
    text: str = ""
    """What the teacher wrote."""
    row: Row | None = None


REASONS = (*("unanswered", "unreadable", "form", "calls", "leaked", "gold", "empty", "same"),)
"""Why a row is refused: the teacher failed; no row of the format; not to be trained on; calls that
their tools do not describe; shared with a test; the gold answer or an empty one fails; a question
that another row or a seed asks."""


Reader = Callable[[Row, str], Sequence[Mapping[str, Any]]]
"""The objects in an answer to a seed. Raises ValueError."""


def reader_of(spec: SynthesiseSpec, root: Path) -> Reader:
    """What reads a table's answers. Raises InputError."""
    if spec.read == "json":
        return lambda seed, text: json_objects(text)
    if spec.read == "tags":
        return lambda seed, text: tagged_objects(text)
    function, _ = function_in(spec.read, root)

    def read(seed: Row, text: str) -> Sequence[Mapping[str, Any]]:
        try:
            given = function(seed, text)
            found = [given] if isinstance(given, Mapping) else list(given)
            return json.loads(json.dumps(found, allow_nan=False))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # one bad answer is data, not the end of the work
            raise ValueError(in_a_line(error)) from error

    return read


def json_objects(text: str) -> Sequence[Mapping[str, Any]]:
    """The objects that a text holds, behind its last thought: in a fence of code where there is
    one, alone or in arrays. Raises ValueError."""
    said = text.rpartition("</think>")[2]
    fences = [each for held in FENCE.findall(said) for each in _objects_in(held)]
    if found := fences or [*_objects_in(said)]:
        return found
    raise ValueError("holds no JSON object")


def _objects_in(text: str) -> Iterator[Mapping[str, Any]]:
    at = 0
    for _ in range(MOST_TRIES):
        begun = OPENING.search(text, at)
        if begun is None:
            return
        try:
            value, at = load_next(text, begun.start())
        except ValueError:
            at = begun.start() + 1
            continue
        members = value if isinstance(value, list) else [value]
        yield from (each for each in members if each and isinstance(each, Mapping))


def tagged_objects(text: str) -> Sequence[Mapping[str, Any]]:
    """The objects of a text such as `<question>...</question><answer>...</answer>`: a name that
    comes again begins the next one. Raises ValueError."""
    found: list[dict[str, Any]] = []
    at, unclosed = 0, set[str]()
    while opened := TAG.search(text, at):
        name, at = opened[1], opened.end()
        end = -1 if name in unclosed else text.find(f"</{name}>", at)
        if end < 0:
            unclosed.add(name)
            continue
        if not found or name in found[-1]:
            found.append({})
        found[-1][name] = text[at:end].strip()
        at = end + len(name) + 3
    if not found:
        raise ValueError("holds no <tag>text</tag>")
    return found


def rows_in(
    spec: SynthesiseSpec, read: Reader, seed: Row, sample: int, text: str, cut: bool
) -> list[Row | Refused]:
    """The rows of an answer, which was `cut` at its most tokens or not, and what is none."""
    name = f"{seed.id}/{sample}"
    try:
        objects = read(seed, text)
    except ValueError as error:
        why = f"{error}, and was cut at max_tokens" if cut else str(error)
        return [Refused(name, seed.id, sample, "unreadable", why, text)]
    found: list[Row | Refused] = []
    for place, value in enumerate(objects):
        own = name if len(objects) == 1 else f"{name}.{place}"
        try:
            row = row_of(spec, seed, own, value)
            reason, why = ill_formed(row)
        except InputError as error:
            row, reason = None, "unreadable"
            why = ": ".join(filter(None, (error.field, error.problem)))
        bad = Refused(own, seed.id, sample, reason, why, text, row)
        found.append(bad if reason or row is None else row)
    return found


def row_of(spec: SynthesiseSpec, seed: Row, name: str, value: Mapping[str, Any]) -> Row:
    """The row that an object is in the table's format. Raises InputError."""
    fields = {key: each for key, each in value.items() if key not in ("id", "conversation")}
    if seed.tools:
        fields.setdefault("tools", [dict(tool) for tool in seed.tools])
    record = Record(name, 1, fields)
    rows = [*all_rows(items_of([record], spec.format, Layout(), name, 0.0))]
    if len(rows) != 1:
        raise InputError(f"is {len(rows)} rows")
    kept = {key: rows[0].extra[key] for key in spec.keep if key in rows[0].extra}
    own = {"id": name, "conversation": conversation_of(seed), "extra": kept}
    return replace(rows[0], **own, columns={}, template_options={}, origin="")


def ill_formed(row: Row) -> tuple[str, str]:
    """Why a row that can be read is not to be trained on: reason and words; two empty texts."""
    if not question(row).strip():
        return "form", "asks nothing"
    if any(message.parts for message in row.messages):
        return "form", "holds images"
    for text in texts_in(row_values(row)):
        if found := CONTROL.search(text):
            why = f"holds the control character U+{ord(found[0]):04X}: in JSON a backslash is two"
            return "form", why
    undeclared = undeclared_calls(row)
    return ("calls", undeclared) if undeclared else ("", "")


def texts_in(value: Any) -> Iterator[str]:
    """All texts of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from (str(key), *texts_in(each))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts_in(each)
