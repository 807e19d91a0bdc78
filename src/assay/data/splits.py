"""Which rows are used and which side they fall on: subsets, and train against dev.

Both choices are made by hashes of ids with the seed, so they do not depend on the order of the
rows, and hardly on rows that come or go. Nothing here reads files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from assay.data.hashing import sha256_text
from assay.data.row import Row
from assay.errors import InputError

How = Literal["first", "random"]


class SplitError(InputError):
    """A subset or a split that the rows cannot give."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A subset in the order of the source, with how it was chosen."""

    rows: tuple[Row, ...]
    how: How
    seed: int | None
    """None for "first", which has no chance in it."""
    total: int
    """Rows that there were to choose from."""


@dataclass(frozen=True, slots=True)
class Split:
    """Two sides that share no conversation, each in the order of the source."""

    train: tuple[Row, ...]
    dev: tuple[Row, ...]


def take(rows: Sequence[Row], count: int, how: How, seed: int = 0) -> Taken:
    """`count` rows: the first of the file, or a random subset without replacement.

    Raises SplitError if there are fewer than `count`.
    """
    if count > len(rows):
        problem = f"asks for {count} of {len(rows)} rows"
        raise SplitError(problem, field="take.rows", fix=f"at most {len(rows)}")
    if how == "first":
        return Taken(tuple(rows[:count]), how, None, len(rows))
    chosen = set(_draw([row.id for row in rows], count, seed))
    return Taken(tuple(row for row in rows if row.id in chosen), how, seed, len(rows))


def split_by_conversation(rows: Sequence[Row], dev: float, seed: int = 0) -> Split:
    """Put the share `dev` of the conversations, rounded to a whole number, on the dev side.

    Raises SplitError if one side would be empty.
    """
    chosen = dev_conversations({conversation_of(row) for row in rows}, dev, seed)
    return Split(
        train=tuple(row for row in rows if conversation_of(row) not in chosen),
        dev=tuple(row for row in rows if conversation_of(row) in chosen),
    )


def dev_conversations(conversations: set[str], dev: float, seed: int = 0) -> frozenset[str]:
    """The conversations that a split puts on the dev side. Raises SplitError."""
    count = round(dev * len(conversations))
    if not 0 < count < len(conversations):
        problem = f"a share of {dev} of {len(conversations)} conversations is {count}"
        raise SplitError(problem, field="split.dev", fix="both sides need at least one")
    return frozenset(_draw(conversations, count, seed))


def conversation_of(row: Row) -> str:
    """The conversation that a row is part of; one that names none is a conversation by itself."""
    return row.conversation or row.id


def _draw(names: Sequence[str] | set[str], count: int, seed: int) -> list[str]:
    """The `count` names whose hashes with the seed are the smallest."""
    return sorted(names, key=lambda name: sha256_text(f"{seed}\n{name}"))[:count]
