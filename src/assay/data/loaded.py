"""What reading a source gives: rows, what was left out and why, and what was kept with a remark.

Readers yield these one by one, so that a file need not fit into memory; `gather` puts them together
for those who need all rows. Nothing is read or judged here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from assay.data.row import Row


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A conversation that became no row."""

    id: str
    reason: str
    """One of few, so that conversations can be counted by it."""
    origin: str = ""
    """`file:line`."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to know about a row that is kept."""

    id: str
    words: str
    """One of few, as a reason is."""


Item = Row | LeftOut | Remark


@dataclass(frozen=True, slots=True)
class Loaded:
    """Rows of a source, and those that it had but that cannot be used."""

    rows: tuple[Row, ...]
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Reason -> ids of the rows dropped for it."""
    remarks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Remark -> ids of the rows that it is about."""


def gather(items: Iterable[Item]) -> Loaded:
    """All of what a reader yields."""
    rows: list[Row] = []
    dropped: dict[str, list[str]] = {}
    remarks: dict[str, list[str]] = {}
    for item in items:
        if isinstance(item, Row):
            rows.append(item)
        elif isinstance(item, LeftOut):
            dropped.setdefault(item.reason, []).append(item.id)
        else:
            remarks.setdefault(item.words, []).append(item.id)
    return Loaded(tuple(rows), _frozen(dropped), _frozen(remarks))


def spread(loaded: Loaded) -> Iterable[Item]:
    """The items that `gather` would put together as `loaded`."""
    for reason, ids in loaded.dropped.items():
        yield from (LeftOut(id_, reason) for id_ in ids)
    for words, ids in loaded.remarks.items():
        yield from (Remark(id_, words) for id_ in ids)
    yield from loaded.rows


def _frozen(lists: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(ids) for name, ids in lists.items()}
