"""Converts a data file between formats: one file, or both sides of a split.

All output files appear together or not at all. Rows are read one by one, and held in memory where
they are split. Nothing is tokenised.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from assay.data.files import scratch_folder, sync
from assay.data.formats.formats import (
    WRITERS,
    Expand,
    expanded,
    iter_items,
    shaped,
    write_rows,
)
from assay.data.formats.plain_text import PlainText
from assay.data.loaded import UNREADABLE, Item, LeftOut, Remark, named
from assay.data.message_parts import refuse_images
from assay.data.renderings.template import RenderingError
from assay.data.row import Row
from assay.data.splits import conversation_of, dev_conversations
from assay.errors import InputError, nearest

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
class Conversion:
    """What to make of a file."""

    to: str
    format: str = "messages"
    """Of the file that is read."""
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


REWRITTEN = "conversations whose earlier answers the rendering rewrites: a row for each answer"


Told = Callable[[str, int, int], None]
"""Is told what is done, how many rows of it, and of how many; 0 where that is unknown."""


def convert(
    source: str | Path, target: str | Path, wanted: Conversion, told: Told | None = None
) -> Converted:
    """Read `source` and write `target`: a file, or a folder where there is a split, whose sides are
    called `train` and `test`.

    Raises InputError and what the readers raise; then nothing is written.
    """
    source, target = Path(source), Path(target)
    places = places_of(target, wanted)
    for path in places.values():
        if path.exists():
            raise InputError("exists", file=path, fix="remove it, or choose another name")
    tally = _Tally()
    items = shaped(iter_items(source, wanted.format), wanted.expand, wanted.keep_undeclared)
    items = _answered(items) if wanted.to == "verl" else items
    rows = tally.rows(_carried(items, wanted.text, wanted.to) if wanted.text else items)
    rows = _telling(rows, f"reading {source.name}", told or (lambda what, done, total: None))
    folder = target.parent if wanted.dev is None else target
    made_folder = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    seen, losses = {}, {}
    try:
        with scratch_folder(folder, "converting") as scratch:
            for side, kept in _sides(rows, wanted.dev):
                path, seen[side] = scratch / places[side].name, Counter[str]()
                kept = _counted(kept, seen[side])
                losses[side] = write_rows(path, kept, wanted.to, side, wanted.text)
            if not any(seen.values()):
                reasons = ", ".join(f"{why}: {count}" for why, count in tally.dropped.items())
                raise InputError("no row is left", fix=reasons)
            for path in places.values():
                part = scratch / path.name
                sync(part)
                part.replace(path)
        sync(folder)
    finally:
        if made_folder and not any(folder.iterdir()):
            folder.rmdir()
    return Converted(
        wanted.format,
        {str(path): seen[side].total() for side, path in places.items()},
        {str(path): len(seen[side]) for side, path in places.items()},
        {named(why, tally.unread): count for why, count in tally.dropped.items()},
        dict(tally.remarks),
        {str(path): losses[side] for side, path in places.items()},
    )


def _sides(rows: Iterable[Row], dev: float | int | None) -> Iterator[tuple[str, Iterable[Row]]]:
    """The rows by side, "" where there is no split. Raises InputError."""
    if dev is None:
        yield "", rows
        return
    held = list(rows)
    test = dev_conversations(Counter(map(conversation_of, held)), dev) if held else frozenset()
    for side in ("train", "test"):
        yield side, (r for r in held if (conversation_of(r) in test) == (side == "test"))


def _telling(rows: Iterable[Row], what: str, told: Told) -> Iterator[Row]:
    """The rows, none with an image; `told` hears of every 200th. Raises DataError."""
    done = 0
    for done, row in enumerate(rows, 1):
        fix = "an experiment's data set splits and expands such rows itself"
        refuse_images(row.messages, "assay convert", fix)
        yield row
        if done % 200 == 0:
            told(what, done, 0)
    told(what, done, done)


def _answered(items: Iterable[Item]) -> Iterator[Item]:
    """The items without rows that have nothing to reward."""
    for item in items:
        if isinstance(item, Row) and item.gold is None and item.messages[-1].role != "assistant":
            yield LeftOut(item.id, NO_ANSWER, item.origin)
        else:
            yield item


def _carried(items: Iterable[Item], text: PlainText, to: str) -> Iterator[Item]:
    """The items without rows that `text` cannot write. For ms-swift, which trains
    one sequence of a row, a conversation that is trained as several becomes a row for each.
    """
    for item in items:
        if not isinstance(item, Row):
            yield item
            continue
        rows: list[Row | LeftOut] = [item]
        try:
            if to == "swift" and text.sequences(item) > 1:
                yield Remark(item.id, REWRITTEN)
                rows = [*expanded(item, "each_turn")]
        except RenderingError as error:
            rows = [LeftOut(item.id, error.problem, item.origin)]
        for row in rows:
            try:
                if isinstance(row, Row):
                    WRITERS[to](row, text)
                yield row
            except RenderingError as error:
                yield LeftOut(row.id, error.problem, row.origin)


def places_of(target: Path, wanted: Conversion) -> dict[str, Path]:
    """The file to write for each side, "" where there is no split. Raises InputError."""
    if wanted.to not in ENDINGS:
        raise InputError(f"cannot convert to {wanted.to!r}", fix=nearest(wanted.to, ENDINGS))
    endings = ENDINGS[wanted.to]
    if wanted.dev is None:
        if target.suffix not in endings:
            fix = f"end it in {' or '.join(endings)}"
            raise InputError(f"is no name for {wanted.to} rows", file=target, fix=fix)
        return {"": target}
    if target.suffix:
        raise InputError("looks like a file", file=target, fix="with --split, name a folder")
    return {side: target / f"{side}{endings[0]}" for side in ("train", "test")}


def _counted(rows: Iterable[Row], conversations: Counter[str]) -> Iterator[Row]:
    """The rows; each is counted under its conversation."""
    for row in rows:
        conversations[conversation_of(row)] += 1
        yield row
