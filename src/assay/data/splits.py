"""Selects and orders rows: subsets, train against dev, the length limits and mixtures.

Subsets and sides are chosen by hashes of ids with the seed, so they do not depend on the order of
rows, and hardly on rows added or removed. Rows that are too long or too short are dropped, counted
and named, never cut. No file is read here.

The order in which a stage visits rows (shuffled, fixed, or a mixture of several sets) is a pure
function of seed and position in an endless stream, so that a resumed run goes on at the same row.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate, islice
from typing import Literal, TypeVar

import numpy as np

from assay.data.files import sha256_text
from assay.data.row import Row
from assay.errors import InputError

How = Literal["first", "random"]


def take(rows: Sequence[Row], count: int, how: How, seed: int = 0) -> tuple[Row, ...]:
    """`count` rows in their order: the first of the file, or a random subset without replacement.

    Raises InputError if there are fewer than `count`.
    """
    if count > len(rows):
        problem = f"asks for {count} of {len(rows)} rows"
        raise InputError(problem, field="take.rows", fix=f"at most {len(rows)}")
    if how == "first":
        return tuple(rows[:count])
    chosen = set(drawn([row.id for row in rows], count, seed))
    return tuple(row for row in rows if row.id in chosen)


def split_by_conversation(
    rows: Sequence[Row], dev: float | int, seed: int = 0, side: str = "dev"
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """The rows of the training side and of the dev side, which has a share of the conversations, or
    so many that it has `dev` rows.

    See `dev_conversations`; `side` is what errors call it. Raises InputError if one side would be
    empty.
    """
    chosen = dev_conversations(Counter(map(conversation_of, rows)), dev, seed, side)
    train, held_out = (
        tuple(row for row in rows if (conversation_of(row) in chosen) == held_out)
        for held_out in (False, True)
    )
    return train, held_out


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
        problem = f"{dev} of {sum(rows_of.values())} rows in {len(rows_of)} conversations"
    else:
        count = round(dev * len(names))
        problem = f"a share of {dev:g} of {len(names)} conversations is {count}"
    if not 0 < count < len(names):
        raise InputError(problem, field=f"split.{side}", fix="both sides need at least one")
    return frozenset(names[:count])


def conversation_of(row: Row) -> str:
    """The conversation that a row is part of; one that names none is a conversation by itself."""
    return row.conversation or row.id


def drawn(names: Sequence[str] | set[str], count: int, seed: int = 0) -> list[str]:
    """The `count` names whose hashes with the seed are the smallest."""
    return sorted(names, key=lambda name: sha256_text(f"{seed}\n{name}"))[:count]


PERCENTILES = (5, 25, 50, 75, 95, 99)


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


def length_statistics(lengths: Sequence[int]) -> Lengths:
    """Mean, standard deviation and percentiles of token counts."""
    values = np.asarray(lengths if len(lengths) else [0], dtype=np.float64)
    return Lengths(
        count=len(lengths),
        mean=float(values.mean()),
        sd=float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        smallest=int(values.min()),
        largest=int(values.max()),
        percentiles={p: float(np.percentile(values, p)) for p in PERCENTILES},
    )


def within_tokens(
    rows: Sequence[Row], lengths: Sequence[int], least: int | None = None, most: int | None = None
) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The rows of `least` to `most` tokens, and the ids of the others; `lengths` holds each row's
    tokens."""
    fits = [(least or 0) <= tokens <= (tokens if most is None else most) for tokens in lengths]
    kept = tuple(row for row, fit in zip(rows, fits, strict=True) if fit)
    return kept, tuple(row.id for row, fit in zip(rows, fits, strict=True) if not fit)


Item = TypeVar("Item")
Visit = tuple[int, int]
"""Earlier visits to a row, and its place among the rows."""


@lru_cache(maxsize=32)
def epoch_order(seed: int, epoch: int, count: int) -> tuple[int, ...]:
    """The order of `count` rows in one epoch."""
    generator = np.random.Generator(np.random.Philox(key=[seed, epoch]))
    return tuple(int(i) for i in generator.permutation(count))


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Every row once an epoch, each epoch shuffled anew."""

    count: int
    """Visits of one epoch."""

    def visit(self, seed: int, position: int) -> Visit:
        """The row at a position of the endless stream."""
        epoch, place = divmod(position, self.count)
        return epoch, epoch_order(seed, epoch, self.count)[place]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every row once an epoch, in the same order each time."""

    places: tuple[int, ...]

    @property
    def count(self) -> int:
        """See `Shuffled`."""
        return len(self.places)

    def visit(self, seed: int, position: int) -> Visit:
        """See `Shuffled`."""
        epoch, place = divmod(position, len(self.places))
        return epoch, self.places[place]


MOST_REPEATS = 100
"""A row that an epoch would visit more often is a slip of the hand."""


def exact_shares(weights: Mapping[str, float], count: int) -> dict[str, int]:
    """`count` divided by weight, rounded by the largest remainder; ties go by name."""
    wanted = {name: weight * count / sum(weights.values()) for name, weight in weights.items()}
    # A weight of 0.3 times 10 is a little less than 3.
    shares = {name: int(value + 1e-9) for name, value in wanted.items()}
    by_remainder = sorted(wanted, key=lambda name: (shares[name] - wanted[name], name))
    for name in by_remainder[: count - sum(shares.values())]:
        shares[name] += 1
    return shares


def epoch_shares(
    weights: Mapping[str, float], sizes: Mapping[str, int], count: int | None
) -> dict[str, int]:
    """Visits of an epoch to each set; the weights add up to 1.

    Without a `count` an epoch is the longest in which no row is visited twice. With one, the rows
    of a set that is smaller than its share are visited again within the epoch. Raises InputError
    where a set has no row or would get no visit, and where a row would be visited more than
    MOST_REPEATS times.
    """
    for name, size in sizes.items():
        if not size:
            raise InputError(f"{name!r} has no rows", field="mix", fix="take it out")
    if count is None:
        count = min(int((size + 1) / weights[name]) + 1 for name, size in sizes.items())
        while any(n > sizes[name] for name, n in exact_shares(weights, count).items()):
            count -= 1
    shares = exact_shares(weights, count)
    for name, share in shares.items():
        if not share:
            problem = f"{name!r} gets no row of an epoch of {count}"
            raise InputError(problem, field="mix", fix="raise its weight, or set epoch_rows")
        if share > MOST_REPEATS * sizes[name]:
            problem = f"an epoch of {count} rows visits the {sizes[name]} of {name!r} {share} times"
            raise InputError(problem, field="epoch_rows", fix="lower it, or the set's weight")
    return shares


@dataclass(frozen=True, slots=True)
class MixturePart:
    """One set of a mixture; the rows of all sets lie end to end."""

    name: str
    share: int
    """Visits of one epoch of the mixture."""
    start: int
    """The place of its first row."""
    order: "RowOrder"
    """The order in which its own rows come, over all epochs."""


@dataclass(frozen=True)
class Mixture:
    """Exactly the same number of rows from each set in every epoch, which go round in each set.

    Shuffled, or sorted by `ranks`: the rank of each row.
    """

    parts: tuple[MixturePart, ...]
    ranks: tuple[int, ...] | None = None
    _sorted: dict[tuple[int, int], list[Visit]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def count(self) -> int:
        """See `Shuffled`."""
        return sum(part.share for part in self.parts)

    @cached_property
    def _slots(self) -> tuple[tuple[MixturePart, int], ...]:
        """Each visit of an epoch, unshuffled: its set, and which of the set's visits it is."""
        return tuple((part, k) for part in self.parts for k in range(part.share))

    def visit(self, seed: int, position: int) -> Visit:
        """See `Shuffled`."""
        epoch, place = divmod(position, self.count)
        if self.ranks is None:
            return self._slot(seed, epoch, epoch_order(seed, epoch, self.count)[place])
        if (seed, epoch) not in self._sorted:
            assert self.ranks is not None
            ranks = self.ranks
            slots = [self._slot(seed, epoch, slot) for slot in range(self.count)]
            self._sorted.clear()
            self._sorted[seed, epoch] = sorted(slots, key=lambda visit: (ranks[visit[1]], visit))
        return self._sorted[seed, epoch][place]

    def source(self, seed: int, position: int) -> str:
        """The name of the set whose row is at a position of the stream."""
        place = self.visit(seed, position)[1]
        return next(part.name for part in reversed(self.parts) if part.start <= place)

    def sources(self, seed: int, cursor: int, count: int) -> Counter[str]:
        """The number of rows of each set among `count` from position `cursor`."""
        return Counter(self.source(seed, at) for at in range(cursor, cursor + count))

    def _slot(self, seed: int, epoch: int, slot: int) -> Visit:
        part, k = self._slots[slot]
        visit, place = part.order.visit(
            int(sha256_text(f"{seed}\n{part.name}")[:15], 16), epoch * part.share + k
        )
        return visit, part.start + place


RowOrder = Shuffled | Fixed | Mixture
"""The endless stream of a stage's rows."""


def visits(
    items: Sequence[Item], seed: int, cursor: int, count: int, order: RowOrder | None = None
) -> list[tuple[int, Item]]:
    """`count` items from position `cursor` of the endless stream, each with its earlier visits.

    Without an `order`, the items are shuffled anew each epoch.
    """
    order = order or Shuffled(len(items))
    places = (order.visit(seed, position) for position in range(cursor, cursor + count))
    return [(visit, items[place]) for visit, place in places]
