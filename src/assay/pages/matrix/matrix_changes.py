"""The tables of a matrix against each control: means, counts, by row, by column, and trends.

Plain values for HTML, Markdown and the terminal. Figures come from the matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.judge.averages import Average
from assay.judge.families import Tally
from assay.lab.sweep.matrix.coordinates import Place
from assay.lab.sweep.matrix.model import Block, Changes, Matrix, Trend
from assay.pages.matrix.matrix_view import (
    average_change_text,
    change_limits,
    leaf_names,
    value_text,
)
from assay.pages.words import Words, visible


@dataclass(frozen=True, slots=True)
class PlainTable:
    """A table of texts."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class BlockView:
    """Tables under a title, such as those of one arm against one control."""

    title: str
    tables: tuple[PlainTable, ...]
    said: tuple[str, ...] = ()
    """Sentences below them."""


def block_views(matrix: Matrix, words: Words) -> list[BlockView]:
    """One view for each block, in the order of the controls."""
    return [_view(block, matrix, words) for block in matrix.blocks]


def _view(block: Block, matrix: Matrix, words: Words) -> BlockView:
    names = leaf_names(matrix)
    where = words.listing.join(f"{names[key]} = {value_text(value)}" for key, value in block.where)
    control = _control_text(block.control, matrix)
    key = "block_title" if where else "block_title_alone"
    title = words(f"matrix.{key}", where=where, control=control)
    tables = [_summary(block, matrix, words)]
    for key, rows in ((matrix.layout.columns, block.columns), (matrix.layout.rows, block.rows)):
        if key is not None and len(rows) > 1:
            tables.append(_by_value(names[key], block, rows, matrix, words))
    return BlockView(title, tuple(tables))


def _control_text(name: str, matrix: Matrix) -> str:
    said = matrix.controls[name]
    return visible(said if name == "baseline" else f"{name} ({said})")


def step_labels(block: Block, matrix: Matrix, words: Words) -> list[str]:
    """The heads of the columns: the checkpoints, or one for all."""
    if not block.axis:
        return [words("matrix.difference")]
    name = leaf_names(matrix)[block.axis]
    return [name if step is None else f"{name} {value_text(step)}" for step in block.steps]


def _summary(block: Block, matrix: Matrix, words: Words) -> PlainTable:
    """The whole block: mean difference, extremes, counts out of all cells, verdicts."""
    totals = [tally.run + tally.missing for tally in block.tallies]
    both = [*zip(block.tallies, totals, strict=True)]
    rows = [
        ("mean_difference", [_mean(mean, matrix, words) for mean in block.overall.means]),
        ("largest_gain_of", [_extreme(t.largest_gain, block, matrix, words) for t, _ in both]),
        ("largest_loss_of", [_extreme(t.largest_loss, block, matrix, words) for t, _ in both]),
        ("cells_improved", [_count(t.improved, t, n, words) for t, n in both]),
        ("cells_declined", [_count(t.declined, t, n, words) for t, n in both]),
        ("cells_by_verdict", [_verdicts(t, words) for t, _ in both]),
    ]
    trend = trend_text(block.overall.trend, matrix, words)
    table = [(words(f"matrix.{key}"), *texts) for key, texts in rows]
    if trend:
        table.append((words("matrix.trend"), *[""] * (len(block.steps) - 1), trend))
    head = (words("matrix.all_cells"), *step_labels(block, matrix, words))
    return PlainTable(head, tuple(table))


def _by_value(
    name: str, block: Block, rows: Sequence[Changes], matrix: Matrix, words: Words
) -> PlainTable:
    """The mean differences at each value of an axis, with their trend where there is one."""
    trending = any(each.trend for each in rows)
    head = (name, *step_labels(block, matrix, words), *([words("matrix.trend")] * trending))
    table = [
        (
            value_text(each.value),
            *(_mean(mean, matrix, words) for mean in each.means),
            *([trend_text(each.trend, matrix, words) or "–"] * trending),
        )
        for each in rows
    ]
    return PlainTable(head, tuple(table))


def _mean(mean: Average | None, matrix: Matrix, words: Words) -> str:
    return average_change_text(mean, matrix, words) or words("matrix.nothing_compared")


def _extreme(name: str | None, block: Block, matrix: Matrix, words: Words) -> str:
    """The cell with the largest difference, with its verdict."""
    cell = next((c for place, c in matrix.cells.items() if repr(place) == name), None)
    found = cell.against.get(block.control) if cell else None
    if cell is None or found is None:
        return "–"
    short = change_limits(found.difference, found.interval, matrix, words)
    verdict = words(f"verdict_name.{found.verdict}")
    return words.comma.join(
        (f"{_in_table(cell.place, matrix, words)}{words.colon}{short}", verdict)
    )


def _in_table(place: Place, matrix: Matrix, words: Words) -> str:
    """A place without its layers, which the table is about."""
    names = leaf_names(matrix)
    pairs = zip((matrix.layout.rows, matrix.layout.columns), place, strict=False)
    return words.listing.join(
        f"{names[key]} = {value_text(value)}" for key, value in pairs if key is not None
    )


def _count(count: int, tally: Tally, total: int, words: Words) -> str:
    if not tally.compared:
        return words("matrix.nothing_compared")
    return words("matrix.count_of", count=count, total=total)


def _verdicts(tally: Tally, words: Words) -> str:
    kinds = ("better", "worse", "equivalent", "undecided", "not_comparable")
    counted = [(kind.replace("_", " "), getattr(tally, kind)) for kind in kinds]
    said = [f"{words(f'verdict_name.{kind}')} {count}" for kind, count in counted if count]
    return words.listing.join(said) or words("matrix.nothing_compared")


def trend_text(trend: Trend | None, matrix: Matrix, words: Words) -> str:
    """Whether the difference grew between two checkpoints; "" where there are not two."""
    if trend is None:
        return ""
    interval = trend.change.interval
    kind = "rises" if interval.low > 0 else "falls" if interval.high < 0 else "unclear"
    change = change_limits(trend.change.mean, interval, matrix, words)
    return words(f"matrix.trend_{kind}", change=change)


def block_caveats(matrix: Matrix, words: Words) -> list[str]:
    """What must be known to read the blocks; empty where there are none."""
    if not matrix.blocks:
        return []
    said = [words("matrix.blocks_about")]
    tallies = [tally for block in matrix.blocks for tally in block.tallies]
    most = max(tallies, key=lambda tally: tally.compared)
    if 0 < most.groups < most.compared:
        figures = {"compared": most.compared, "groups": most.groups}
        said.append(words("matrix.groups", **figures))
    if any(each.trend for block in matrix.blocks for each in _all_changes(block)):
        said.append(words("matrix.trend_about"))
    return said


def _all_changes(block: Block) -> list[Changes]:
    return [block.overall, *block.rows, *block.columns]
