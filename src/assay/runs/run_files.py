"""Reads the small JSON files of a run, and writes files with their sha256 in `checksums.jsonl`.

A checksum is on the disk before its file takes its name, so no file lacks one; after a kill there
may be a line without a file. Whoever reads a file of a run compares it with its checksum and with
the name that it holds itself, if it does. Checkpoints hold checksums of their own (`data.files`).
Which checkpoint a rule has chosen, and how, stands in `selection.json` (`judge.selection`).
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from assay.data.files import (
    OF,
    append_line,
    atomic_path,
    atomic_write_text,
    changed,
    holds_another,
    kept,
    named_line,
    place_in_lab,
    sha256_file,
    sync,
    whole_text,
)
from assay.errors import InputError
from assay.experiment.checkpoint_reference import RULES, Rule

T = TypeVar("T")
FIX = "restore it, or move it away"
NAMES = {dict: "object", list: "array"}


class DamagedFile(InputError):
    """A file of a lab has unexpected content."""


def read_json(file: Path, kind: type[T]) -> T:
    """The JSON object (dict) or array (list) of a file, which a run has written so if it is of one.
    Raises DamagedFile."""
    try:
        content = file.read_bytes()
        text = content.decode("utf-8")
        value = json.loads(text)
        if "\\u" in text:
            # Half of a surrogate pair passes the parser, and breaks the index and the pages later.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError, OSError) as problem:
        raise DamagedFile(_unreadable(problem), file=file, fix=FIX) from problem
    if type(value) is not kind:
        raise DamagedFile(f"cannot be read: it is no JSON {NAMES[kind]}", file=file, fix=FIX)
    check_listed(file, hashlib.sha256(content).hexdigest())
    return value


def read_typed(file: Path, kind: type[T]) -> T:
    """The dataclass that a file holds as a JSON object. Raises DamagedFile."""
    return as_entry(kind, read_json(file, dict), file)


def write_json(file: Path, value: Any, run: Path | None = None) -> None:
    """Write a dataclass or plain JSON, whole or not at all; with `run` its checksum is recorded in
    the run in that folder."""
    plain = value if isinstance(value, dict | list) else asdict(value)
    # An error's text may hold half of a surrogate pair.
    text = whole_text(json.dumps(plain, indent=2, ensure_ascii=False)) + "\n"
    if run is not None:
        write_listed(run, file, text)
    else:
        atomic_write_text(file, text)


def parse_line(text: bytes | str, file: Path, number: int) -> dict[str, Any]:
    """The JSON object that stands on line `number` of a file. Raises DamagedFile."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise DamagedFile(_unreadable(problem), file=file, line=number, fix=FIX) from problem
    if not isinstance(value, dict):
        raise DamagedFile("is no JSON object", file=file, line=number, fix=FIX)
    return value


def as_entry(kind: type[T], values: dict[str, Any], file: Path, number: int | None = None) -> T:
    """The values of a dataclass, those inside it included. Raises DamagedFile where a field is
    missing, unknown or of another type."""
    try:
        return _made(kind, values)
    except TypeError as problem:
        what = " ".join(str(problem).split()).partition("__init__() ")[2] or str(problem)
        what = f"cannot be read: {what}"
        raise DamagedFile(what, file=file, line=number, fix=FIX) from problem


@cache
def _fields(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _made(kind: Any, value: Any, name: str = "it") -> Any:
    """A JSON value as the type that a dataclass declares."""
    if isinstance(kind, type) and is_dataclass(kind):
        if not isinstance(value, dict):
            raise TypeError(f"{name!r} is no table")
        known = _fields(kind)
        return kind(**{key: _made(known.get(key, Any), each, key) for key, each in value.items()})
    origin, of = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None and type(None) in of:
            return None
        return _made(next(each for each in of if each is not type(None)), value, name)
    if origin is Literal:
        fits = value in of if isinstance(value, str) else False
    elif origin in (tuple, Sequence):
        if fits := isinstance(value, list | tuple):
            made = [_made(of[0], each, name) for each in value]
            return tuple(made) if origin is tuple else made
    elif origin in (dict, Mapping):
        if fits := isinstance(value, dict):
            return {key: _made(of[1], each, name) for key, each in value.items()}
    elif kind is float:
        fits = type(value) in (int, float)
    else:
        fits = kind is Any or type(value) is kind
    if not fits:
        raise TypeError(f"{name!r} is not of its type")
    return value


def whole_lines(file: Path) -> list[dict[str, Any]]:
    """The JSON objects of a journal, a line each; what a kill left of a last line is none, and goes
    with the next `append_line`. Raises DamagedFile."""
    lines = file.read_bytes().split(b"\n")[:-1]
    values = [parse_line(line, file, number) for number, line in enumerate(lines, 1)]
    for number, line in enumerate(values, 1):
        if other := holds_another(file, str(line.pop(OF, ""))):
            raise DamagedFile(other, file=file, line=number, fix=FIX)
    return values


def entries(file: Path, kind: type[T]) -> list[T]:
    """The dataclasses of a journal, a line each; none where there is no file.

    A last line without its end was torn by a kill and does not count. Raises DamagedFile.
    """
    if not file.exists():
        return []
    parsed = list(enumerate(whole_lines(file), 1))
    return [as_entry(kind, values, file, number) for number, values in parsed]


def _unreadable(problem: Exception) -> str:
    why = problem.strerror if isinstance(problem, OSError) else str(problem)
    return f"cannot be read: {' '.join(str(why).split())}"


LIST = "checksums.jsonl"


@dataclass(frozen=True, slots=True)
class Entry:
    """One write of a file; the same file may have several."""

    file: str
    """Its path inside the run."""
    sha256: str


@contextmanager
def listed_path(run: Path, file: Path) -> Iterator[Path]:
    """`data.files.atomic_path` for a file of the run in folder `run`, with its checksum
    recorded."""
    with atomic_path(file) as temporary:
        yield temporary
        entry = Entry(file.relative_to(run).as_posix(), sha256_file(temporary))
        append_line(run / LIST, named_line(run / LIST, asdict(entry)))
        sync(run / LIST)


def write_listed(run: Path, file: Path, text: str) -> None:
    """Write a text in UTF-8 atomically, and record its checksum."""
    with listed_path(run, file) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def listed_files(run: Path) -> Mapping[str, Sequence[str]]:
    """Every sha256 that each file of a run was written with, oldest first. Raises DamagedFile."""
    return _listed(run / LIST)


@kept(256)
def _listed(file: Path) -> Mapping[str, Sequence[str]]:
    names: dict[str, list[str]] = {}
    for entry in entries(file, Entry):
        names.setdefault(entry.file, []).append(entry.sha256)
    return names


def check_listed(file: Path, sha256: str) -> None:
    """Raise DamagedFile where a file lies in a run that has written another content under its name.

    A file of which the run recorded no checksum, or of no run, is not judged. `sha256` is to be
    taken before: a file is listed before it has its name.
    """
    place = place_in_lab(file)
    if place is None:
        return
    run, name = place
    listed = listed_files(run)
    written = listed.get(name.split("/", 2)[2])
    if written is not None and sha256 not in written:
        other = next((each for each in listed if sha256 in listed[each]), "")
        problem = f"holds {other}" if other else changed(sha256, written)
        raise DamagedFile(problem, file=file, fix=FIX)


SELECTION = "selection.json"


@dataclass(frozen=True, slots=True)
class DevLook:
    """A later checkpoint against the stage's start on the dev items."""

    checkpoint: str
    score: float
    difference: float
    low: float
    """Of the difference's interval, corrected for the number of looks like `adjusted_p`."""
    high: float
    p_value: float
    adjusted_p: float
    verdict: str
    items: int
    items_needed: int | None
    """Items at which a difference of this size would be seen with 80 % power, corrected alike."""


@dataclass(frozen=True, slots=True)
class RewardRise:
    """The steps over which a stage's reward rose, and the line through them."""

    after: int
    until: int
    slope: float
    low: float
    """Of the slope's interval, corrected for nothing."""
    high: float
    start: float
    """The line at its first and its last step."""
    end: float
    steps: int


@dataclass(frozen=True, slots=True)
class Selection:
    """The checkpoint of one stage that a rule has chosen. Checkpoints are named as in records."""

    checkpoint: str
    """A checkpoint of the stage, or its start."""
    start: str
    """The stage's start."""
    evaluation: str
    """The selecting evaluation; "" for a rule that needs none."""
    score: float | None
    """Score of `checkpoint` on dev items; None where it was not measured."""
    looks: int
    """Checkpoints that were looked at beside the start."""
    rule: Rule = "gate"
    evidence: tuple[DevLook, ...] = ()
    """What the dev items said of each; empty in older files."""
    rise: RewardRise | None = None
    """What the rewards said; None for the other rules, and where no rise was shown."""

    @property
    def promoted(self) -> bool:
        """Whether a later checkpoint took the place of the start."""
        return self.checkpoint != self.start

    @property
    def corrected(self) -> bool:
        """Whether the choice holds after correction for the number of looks."""
        return self.rule == "gate"


@dataclass(frozen=True, slots=True)
class LevelChoice:
    """The rows from which a stage learns: those with one value of a field."""

    level: Any
    by: str
    passes: float
    """The share of right answers from which a value counts as passed."""
    checkpoint: str
    """The stage's start, which was measured."""
    evaluation: str
    rates: Sequence[tuple[Any, float]]
    """Each value with the share of its items that were right, the easiest first."""


def write_level(run: Path, stage: str, choice: LevelChoice) -> None:
    """Store the level of a stage in the run folder."""
    write_json(run / SELECTION, _choices(run) | {f"{stage}.level": asdict(choice)}, run)


def read_level(run: Path, stage: str) -> LevelChoice | None:
    """The level of a stage; None before it was chosen, and for a stage without levels."""
    chosen = _choices(run).get(f"{stage}.level")
    return as_entry(LevelChoice, chosen, run / SELECTION) if chosen else None


def write_selections(run: Path, stage: str, selections: Iterable[Selection]) -> None:
    """Store what was chosen of `stage` in the run folder, all of it at once."""
    made = {
        _choice_of(stage, each.rule): {**asdict(each), "corrected": each.corrected}
        for each in selections
    }
    if made:
        chosen = _choices(run)
        write_json(run / SELECTION, chosen | made, run)


def read_selection(run: Path, stage: str, rule: Rule = "gate") -> Selection | None:
    """What `rule` has chosen of `stage`; None before it did."""
    chosen = _choices(run).get(_choice_of(stage, rule))
    return _selection(chosen, run / SELECTION) if chosen else None


def read_selections(run: Path) -> dict[str, Selection]:
    """The gate's choices by stage."""
    entries = _choices(run).items()
    return {key: _selection(each, run / SELECTION) for key, each in entries if "." not in key}


def _choice_of(stage: str, rule: Rule) -> str:
    """The name of a choice in the file: the gate's is that of the stage, as it always was."""
    return stage if rule == "gate" else f"{stage}.{RULES[rule]}"


def _selection(values: dict[str, Any], file: Path) -> Selection:
    """A choice as it was written; `corrected` follows from its rule."""
    plain = {key: value for key, value in values.items() if key != "corrected"}
    return as_entry(Selection, plain, file)


def _choices(run: Path) -> dict:
    file = run / SELECTION
    return read_json(file, dict) if file.exists() else {}
