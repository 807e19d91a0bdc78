"""How long rows are, and which are too long or too short: dropped, counted, named, never cut."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from assay.data.row import Row

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
