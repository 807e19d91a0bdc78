"""Selects rows: subsets, train against dev, and rows within the length limits.

Subsets and sides are chosen by hashes of ids with the seed, so they do not depend on the order of
rows, and hardly on rows added or removed. Rows that are too long or too short are dropped, counted
and named, never cut. No file is read here.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Literal

import numpy as np

from assay.data.hashing import sha256_text
from assay.data.row import Row
from assay.errors import InputError

How = Literal["first", "random"]


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

    Raises InputError if there are fewer than `count`.
    """
    if count > len(rows):
        problem = f"asks for {count} of {len(rows)} rows"
        raise InputError(problem, field="take.rows", fix=f"at most {len(rows)}")
    if how == "first":
        return Taken(tuple(rows[:count]), how, None, len(rows))
    chosen = set(drawn([row.id for row in rows], count, seed))
    return Taken(tuple(row for row in rows if row.id in chosen), how, seed, len(rows))


def split_by_conversation(
    rows: Sequence[Row], dev: float | int, seed: int = 0, side: str = "dev"
) -> Split:
    """Put conversations on the dev side: a share of them, or so many that it has `dev` rows.

    See `dev_conversations`; `side` is what errors call it. Raises InputError if one side would be
    empty.
    """
    chosen = dev_conversations(Counter(map(conversation_of, rows)), dev, seed, side)
    return Split(
        train=tuple(row for row in rows if conversation_of(row) not in chosen),
        dev=tuple(row for row in rows if conversation_of(row) in chosen),
    )


def dev_conversations(
    rows_of: Mapping[str, int], dev: float | int, seed: int = 0, side: str = "dev"
) -> frozenset[str]:
    """The conversations that a split puts on the dev side; `rows_of` counts the rows of each.

    A float is a share of the conversations, rounded to a whole number of them. An integer is a
    number of rows: conversations are drawn until the side has so many, and as they stay whole, the
    last of them may bring more. Raises InputError where one side would be empty.
    """
    names = drawn(set(rows_of), len(rows_of), seed)
    if isinstance(dev, int):
        # Rows on the dev side before each conversation is drawn.
        before = accumulate((rows_of[name] for name in names), initial=0)
        count = sum(rows < dev for rows in islice(before, len(names)))
        asked = f"{dev} of {sum(rows_of.values())} rows in {len(rows_of)} conversations"
    else:
        count = round(dev * len(names))
        asked = f"a share of {dev:g} of {len(names)} conversations is {count}"
    if not 0 < count < len(names):
        raise InputError(asked, field=f"split.{side}", fix="both sides need at least one")
    return frozenset(names[:count])


DEV_FIX = "a share such as 0.1, or a number of rows such as 60"


def dev_problem(dev: float | int) -> str:
    """Why `dev` says neither a share nor a number of rows; "" where it does."""
    if dev <= 0:
        return f"must be more than 0, not {dev}"
    if dev == 1:
        return f"{dev} may mean one row or all of them"
    if isinstance(dev, float) and not dev < 1:
        return f"{dev} is no share, and a number of rows is an integer"
    return ""


def conversation_of(row: Row) -> str:
    """The conversation that a row is part of; one that names none is a conversation by itself."""
    return row.conversation or row.id


def drawn(names: Sequence[str] | set[str], count: int, seed: int = 0) -> list[str]:
    """The `count` names whose hashes with the seed are the smallest."""
    return sorted(names, key=lambda name: sha256_text(f"{seed}\n{name}"))[:count]


PERCENTILES = (5, 25, 50, 75, 95, 99)
BINS = 20


@dataclass(frozen=True, slots=True)
class Lengths:
    """Statistics of token counts; all zero where nothing was counted."""

    count: int
    mean: float
    sd: float
    """With n - 1; 0 for a single row."""
    smallest: int
    largest: int
    percentiles: dict[int, float]
    """By linear interpolation, for PERCENTILES."""
    histogram: tuple[int, ...]
    """Rows in each of BINS bins of equal width."""
    edges: tuple[float, ...]
    """The BINS + 1 edges of the bins."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A row beyond the limit."""

    row_id: str
    tokens: int
    limit: int


def length_statistics(lengths: Sequence[int]) -> Lengths:
    """Mean, standard deviation, percentiles and histogram of token counts."""
    values = np.asarray(lengths if len(lengths) else [0], dtype=np.float64)
    histogram, edges = np.histogram(values, bins=BINS)
    return Lengths(
        count=len(lengths),
        mean=float(values.mean()),
        sd=float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        smallest=int(values.min()),
        largest=int(values.max()),
        percentiles={p: float(np.percentile(values, p)) for p in PERCENTILES},
        histogram=tuple(int(n) for n in histogram) if len(lengths) else (0,) * BINS,
        edges=tuple(float(edge) for edge in edges),
    )


def drop_long(
    rows: Sequence[Row], lengths: Sequence[int], limit: int
) -> tuple[tuple[Row, ...], tuple[Dropped, ...]]:
    """The rows of at most `limit` tokens, and the others; `lengths` holds each row's tokens."""
    return _within(rows, lengths, limit, lambda tokens: tokens <= limit)


def drop_short(
    rows: Sequence[Row], lengths: Sequence[int], limit: int
) -> tuple[tuple[Row, ...], tuple[Dropped, ...]]:
    """The rows of at least `limit` tokens, and the others."""
    return _within(rows, lengths, limit, lambda tokens: tokens >= limit)


def _within(
    rows: Sequence[Row], lengths: Sequence[int], limit: int, fits: Callable[[int], bool]
) -> tuple[tuple[Row, ...], tuple[Dropped, ...]]:
    pairs = list(zip(rows, lengths, strict=True))
    kept = tuple(row for row, tokens in pairs if fits(tokens))
    dropped = tuple(Dropped(row.id, tokens, limit) for row, tokens in pairs if not fits(tokens))
    return kept, dropped
