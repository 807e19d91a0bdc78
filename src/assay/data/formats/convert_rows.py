"""Converts a data file between formats: one file, or both sides of a split.

Recognises the source format from its first records where none is named; its reader then checks
every record. All output files appear together or not at all. Rows are read one by one, and kept in
a temporary file as OpenAI messages where they are written more than once. Nothing is tokenised.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from assay.data.files import scratch_folder, sync
from assay.data.formats.chat_rows import messages_row
from assay.data.formats.formats import (
    FORMATS,
    WRITERS,
    Expand,
    expanded,
    iter_items,
    read_records,
    shaped,
    write_rows,
)
from assay.data.formats.kept import KEPT
from assay.data.formats.plain_rows import refuse_preferences
from assay.data.formats.plain_text import PlainText
from assay.data.json_files import read_jsonl
from assay.data.loaded import UNREADABLE, DataError, Item, LeftOut, Remark, named
from assay.data.message_parts import moved
from assay.data.renderings.template import RenderingError
from assay.data.row import ImagePart, Row
from assay.data.splits import conversation_of, dev_conversations
from assay.errors import InputError, nearest

LOOKED_AT = 20
"""Records read to recognise a format: one without a call does not show how calls are written."""


def recognise(path: str | Path) -> str:
    """The format of a file. Raises DataError where it cannot be read or holds preference data,
    InputError where its first records look like none.
    """
    first: dict[str, Any] = {}
    bad: DataError | None = None
    for record in islice(read_records(path), LOOKED_AT):
        if isinstance(record, DataError):
            bad = bad or record
            continue
        first = first or dict(refuse_preferences(record).value)
        found = _format_of(record.value)
        if found is not None:
            return found
    if "messages" in first or "traj" in first:
        return "messages"
    if bad and not first:
        raise bad
    fix = "name it with --from: " + ", ".join(FORMATS)
    keys = ", ".join(list(first)[:8]) or "nothing"
    raise InputError(f"is in no format that is known by its fields ({keys})", file=path, fix=fix)


def _format_of(value: Any) -> str | None:
    """The format that one record shows; None where it does not show any."""
    if isinstance(value.get("0"), dict):
        return "hardgen"
    # In TRL's columns, what another format kept under this name is text.
    if isinstance(value.get("reward_model"), dict) and "prompt" in value:
        info = value.get("extra_info")
        loop = isinstance(info, dict) and {"instruction", "input", "output"} <= set(info)
        return "looptool" if loop else "verl"
    if {"prompt", "answer"} <= set(value) and not {"completion", KEPT} & set(value):
        return "math_cot" if "solution" in value else "prompt_answer"
    for format, columns in BY_COLUMNS:
        if columns <= set(value):
            return format
    if "conversations" in value or "<|im_start|>" in str(value.get("text", "")):
        return "hermes"
    return _format_of_messages(value.get("messages"))


BY_COLUMNS: tuple[tuple[str, set[str]], ...] = (
    ("trl", {"prompt"}),
    ("alpaca", {"instruction", "output"}),
    ("math", {"problem", "solution"}),
    ("math", {"problem", "answer"}),
    ("olympiadbench", {"question", "final_answer"}),
    ("limr", {"context", "context_messages", "answer"}),
    ("gsm8k", {"question", "answer"}),
    ("xlam", {"query", "answers", "tools"}),
)
"""Formats with the columns by which they are known, the first that fits."""


def _format_of_messages(messages: Any) -> str | None:
    if not isinstance(messages, list):
        return None
    said = [message for message in messages if isinstance(message, dict)]
    if {message.get("role") for message in said} & {"tool_call", "tool_response"}:
        return "swift"
    if any(message.get("tool_calls") for message in said):
        return "messages"
    texts = [message["content"] for message in said if isinstance(message.get("content"), str)]
    tagged = any(tag in text for text in texts for tag in ("<tool_call>", "<tool_response>"))
    return "hermes" if tagged else None


ENDINGS = {
    "verl": (".parquet", ".jsonl"),
    "messages": (".jsonl",),
    "swift": (".jsonl",),
    "trl": (".jsonl",),
}
"""Formats that conversations are converted to, and what their files end in, the usual first."""


NO_ANSWER = (
    "a conversation that ends with no answer, so that nothing can be rewarded; with --expand its "
    "earlier answers are rows"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to make of a file."""

    to: tuple[str, ...]
    format: str | None = None
    """Of the file that is read; None: recognised."""
    expand: Expand | None = None
    keep_undeclared: bool = True
    text: PlainText | None = None
    """Writes conversations as the text of a rendering; None: in the formats' own columns."""
    dev: float | int | None = None
    """What goes to the test side: a share of the conversations, or a number of rows; None: no
    split."""


@dataclass(frozen=True, slots=True)
class Converted:
    """What was read, written, left out and lost."""

    format: str
    rows: Mapping[str, int]
    """File -> rows in it."""
    conversations: Mapping[str, int]
    """File -> conversations in it."""
    dropped: Mapping[str, int]
    """Reason -> how many."""
    remarks: Mapping[str, int]
    losses: Mapping[str, Mapping[str, int]]
    """File -> what reading it again will not give -> rows."""


@dataclass
class _Tally:
    dropped: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)
    unread: list[str] = field(default_factory=list)

    def rows(self, items: Iterable[Item]) -> Iterator[Row]:
        """The rows among the items; the others are counted."""
        for item in items:
            if isinstance(item, Row):
                yield item
            elif isinstance(item, LeftOut):
                self.dropped[item.reason] += 1
                if item.reason == UNREADABLE:
                    self.unread.append(item.id)
            elif isinstance(item, Remark):
                self.remarks[item.words] += 1

    def moved(self, rows: Iterable[Row], folder: Path) -> Iterator[Row]:
        """The rows with their images as a file in the folder can name them."""
        for row in rows:
            messages = tuple(moved(message, folder) for message in row.messages)
            before, after = (
                sum(isinstance(p, ImagePart) and bool(p.path) for m in some for p in m.parts)
                for some in (row.messages, messages)
            )
            self.remarks[EMBEDDED] += before - after
            yield replace(row, messages=messages) if any(m.parts for m in messages) else row


REWRITTEN = "conversations whose earlier answers the rendering rewrites: a row for each answer"
EMBEDDED = "images that lie outside the new folder, whose bytes the file holds now"


Told = Callable[[str, int, int], None]
"""Is told what is done, how many rows of it, and of how many; 0 where that is unknown."""


def convert(
    source: str | Path, target: str | Path, wanted: Wanted, told: Told | None = None
) -> Converted:
    """Read `source` and write `target`: a file, or a folder where there is a split or are several
    formats. In a folder the sides are called `train` and `test` in every format.

    Raises InputError and what the readers raise; then nothing is
    written.
    """
    source, target = Path(source), Path(target)
    places = places_of(target, wanted)
    for path, _, _ in places:
        if path.exists():
            raise InputError("exists", file=path, fix="remove it, or choose another name")
    format = wanted.format or recognise(source)
    tally = _Tally()
    items = shaped(iter_items(source, format), wanted.expand, wanted.keep_undeclared)
    items = _answered(items) if "verl" in wanted.to else items
    rows = tally.rows(_carried(items, wanted.text, wanted.to) if wanted.text else items)
    folder = target.parent if places[0][0] == target else target
    rows = tally.moved(rows, folder)
    made_folder = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with scratch_folder(folder, "converting") as scratch:
            told = told or (lambda what, done, total: None)
            read = _telling(rows, f"reading {source.name}", 0, told)
            seen, losses = _write(read, places, wanted, scratch, tally, told)
            for path, _, _ in places:
                part = scratch / path.name
                sync(part)
                part.replace(path)
        sync(folder)
    finally:
        if made_folder and not any(folder.iterdir()):
            folder.rmdir()
    return Converted(
        format,
        {str(path): seen[side].total() for path, _, side in places},
        {str(path): len(seen[side]) for path, _, side in places},
        {named(why, tally.unread): count for why, count in tally.dropped.items()},
        {words: count for words, count in tally.remarks.items() if count},
        losses,
    )


def _telling(rows: Iterable[Row], what: str, total: int, told: Told) -> Iterator[Row]:
    """The rows; `told` hears of every 200th."""
    done = 0
    for done, row in enumerate(rows, 1):
        yield row
        if done % 200 == 0:
            told(what, done, total)
    told(what, done, done)


def _answered(items: Iterable[Item]) -> Iterator[Item]:
    """The items without rows that have nothing to reward."""
    for item in items:
        if isinstance(item, Row) and item.gold is None and item.messages[-1].role != "assistant":
            yield LeftOut(item.id, NO_ANSWER, item.origin)
        else:
            yield item


def _carried(items: Iterable[Item], text: PlainText, to: Sequence[str]) -> Iterator[Item]:
    """The items without rows that `text` cannot write in every format. For ms-swift, which trains
    one sequence of a row, a conversation that is trained as several becomes a row for each.
    """
    for item in items:
        if not isinstance(item, Row):
            yield item
            continue
        rows: list[Row | LeftOut] = [item]
        try:
            if "swift" in to and text.sequences(item) > 1:
                yield Remark(item.id, REWRITTEN)
                rows = [*expanded(item, "each_turn")]
        except RenderingError as error:
            rows = [LeftOut(item.id, error.problem, item.origin)]
        for row in rows:
            try:
                if isinstance(row, Row):
                    for name in to:
                        WRITERS[name](row, text)
                yield row
            except RenderingError as error:
                yield LeftOut(row.id, error.problem, row.origin)


Place = tuple[Path, str, str]
"""File, format and side ("" where there is no split)."""


def places_of(target: Path, wanted: Wanted) -> list[Place]:
    """Every file to write. Raises InputError."""
    for name in wanted.to:
        if name not in ENDINGS:
            raise InputError(f"cannot convert to {name!r}", fix=nearest(name, ENDINGS))
    if wanted.dev is None and len(wanted.to) == 1:
        endings = ENDINGS[wanted.to[0]]
        if target.suffix not in endings:
            fix = f"end it in {' or '.join(endings)}"
            raise InputError(f"is no name for {wanted.to[0]} rows", file=target, fix=fix)
        return [(target, wanted.to[0], "")]
    if target.suffix:
        fix = "with --split, or with several formats, name a folder"
        raise InputError("looks like a file", file=target, fix=fix)
    sides = ("train",) if wanted.dev is None else ("train", "test")
    places = [
        (target / f"{side}{ENDINGS[name][0]}", name, "" if wanted.dev is None else side)
        for name in dict.fromkeys(wanted.to)
        for side in sides
    ]
    double = [path for path, count in Counter(path for path, _, _ in places).items() if count > 1]
    if double:
        fix = "convert twice: the sides of a split depend on the conversations alone"
        raise InputError("would be written in two formats", file=double[0], fix=fix)
    return places


def _write(
    rows: Iterator[Row],
    places: Sequence[Place],
    wanted: Wanted,
    scratch: Path,
    tally: _Tally,
    told: Told,
) -> tuple[dict[str, Counter[str]], dict[str, dict[str, int]]]:
    """Write every place below `scratch`. Returns the rows of each
    conversation by side, and losses by file."""
    first = next(rows, None)
    if first is None:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in tally.dropped.items())
        raise InputError("no row is left", fix=reasons)
    rows = chain([first], rows)
    if len(places) == 1:
        path, format, side = places[0]
        seen = Counter[str]()
        lost = write_rows(scratch / path.name, _counted(rows, seen), format, side, wanted.text)
        return {side: seen}, {str(path): lost}
    spool, every = scratch / "rows-between.jsonl", Counter[str]()
    write_rows(spool, _counted(rows, every), "messages")
    dev = wanted.dev
    test = dev_conversations(every, dev) if dev is not None else frozenset()
    sides, losses = {}, {}
    for path, format, side in places:
        seen = Counter[str]()
        # Paths of images count from where the file is going to lie.
        kept_as = str(places[0][0].with_name(spool.name))
        between = (messages_row(replace(r, file=kept_as)) for r in read_jsonl(spool))
        kept = (row for row in between if (conversation_of(row) in test) == (side == "test"))
        kept = _telling(kept, f"writing {path.name}", every.total(), told)
        kept = _counted(kept, seen)
        losses[str(path)] = write_rows(scratch / path.name, kept, format, side, wanted.text)
        sides[side] = seen
    spool.unlink()
    return sides, losses


def _counted(rows: Iterable[Row], conversations: Counter[str]) -> Iterator[Row]:
    """The rows; each is counted under its conversation."""
    for row in rows:
        conversations[conversation_of(row)] += 1
        yield row
