"""The tables and sentences of a matrix as plain values, for HTML, Markdown and the terminal.

Numbers come from the matrix; only words, units and shades are added here.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from assay.judge.averages import Average
from assay.judge.families import Tally
from assay.judge.findings import filled
from assay.judge.intervals import Interval
from assay.judge.verdict import Comparison, explain
from assay.lab.sweep.matrix.coordinates import Place, Value
from assay.lab.sweep.matrix.model import ArmView, Cell, Margin, Matrix, Overlap
from assay.lab.sweep.value_names import shortest_ends
from assay.pages.charts import interval_bar
from assay.pages.drawn import Bar, score_plot
from assay.pages.words import Words, number, percent, points, visible

Section = dict[str, Any]

SHADES = 8
"""Steps of the heat map above the lowest."""
SIGNS = {"better": "▲", "worse": "▼", "equivalent": "≈", "undecided": "?", "not comparable": "≠"}


def score_text(value: float, matrix: Matrix) -> str:
    """A cell's value: a share in percent, a harmonic mean as it is."""
    return f"{value:.3f}" if matrix.ratios_to else percent(value)


def change_text(value: float, matrix: Matrix) -> str:
    """A difference: in points, or in units of the ratio."""
    return f"{value:+.3f}".replace("-", "−") if matrix.ratios_to else points(value)


def limits(interval: Interval, matrix: Matrix, words: Words) -> str:
    """The limits of a value."""
    low, high = (score_text(v, matrix) for v in (interval.low, interval.high))
    return words("table.interval_text", low=low, high=high)


def change_limits(value: float, interval: Interval, matrix: Matrix, words: Words) -> str:
    """A difference with its limits."""
    low, high = (change_text(v, matrix) for v in (interval.low, interval.high))
    return words("table.short", difference=change_text(value, matrix), low=low, high=high)


def change_ends(interval: Interval, matrix: Matrix, words: Words) -> str:
    """The limits of a difference."""
    low, high = (change_text(v, matrix) for v in (interval.low, interval.high))
    return words("table.interval_text", low=low, high=high)


def value_text(value: Value) -> str:
    """A place on an axis."""
    if value is None:
        return "–"
    return visible(value if isinstance(value, str) else f"{value}")


def leaf_names(matrix: Matrix) -> dict[str, str]:
    """The shortest unambiguous name of each axis: the end of its dotted key."""
    ends = shortest_ends(matrix.layout.keys)
    return {key: visible(".".join(end)) for key, end in ends.items()}


def place_text(place: Place, matrix: Matrix, words: Words) -> str:
    """A cell by its coordinates."""
    keys = [matrix.layout.rows, matrix.layout.columns, *matrix.layout.layers]
    names, pairs = leaf_names(matrix), zip(keys, place, strict=True)
    return words.listing.join(
        f"{names[key]} = {value_text(value)}" for key, value in pairs if key is not None
    )


def cell_view(cell: Cell, matrix: Matrix, words: Words) -> Section:
    """One cell of the heat map."""
    if cell.score is None or cell.interval is None:
        state = words(f"cell_state.{cell.state}")
        kind = cell.state.replace(" ", "-")
        return {"measured": False, "state": state, "kind": kind, "command": visible(cell.command)}
    return {
        "measured": True,
        "anchor": anchor(cell, matrix),
        "score": score_text(cell.score, matrix),
        "interval": limits(cell.interval, matrix, words),
        "size": size_text(cell, words),
        "shade": shade(cell.score, matrix),
        "baseline": cell.is_baseline,
        "change": comparison_view(cell.comparison, matrix, words),
        "mark": mark_of(cell, matrix),
        "dev": dev_text(cell, matrix, words),
        "command": visible(cell.command),
        "missing_seeds": cell.unit.seeds_missing if cell.unit else 0,
    }


def mark_of(cell: Cell, matrix: Matrix) -> str:
    """`winner`, `rival` of it, or "": a rival of the best on dev, where points are missing."""
    advice = matrix.recommendation
    if advice.cell is None:
        return ""
    if cell.place == advice.cell.place:
        return "winner" if advice.winner else "leader"
    return "rival" if any(cell.place == rival.place for rival in advice.rivals) else ""


def dev_text(cell: Cell, matrix: Matrix, words: Words) -> str:
    """What a cell scored on dev items; "" where nothing ranks it."""
    advice = matrix.recommendation
    score = advice.dev_scores.get(cell.place)
    if score is None:
        return ""
    on_dev = replace(matrix, ratios_to=advice.ratios_to)
    return words("matrix.on_dev", score=score_text(score, on_dev))


def anchor(cell: Cell, matrix: Matrix) -> str:
    """The name of the cell's line in the list of all cells."""
    return f"cell-{list(matrix.cells).index(cell.place)}"


def size_text(cell: Cell, words: Words) -> str:
    """Items, and repeats and seeds where there are several."""
    parts = [words("matrix.items", count=number(cell.items))]
    if cell.repeats > 1:
        parts.append(words("table.many_passes", repeats=cell.repeats))
    if cell.seeds > 1:
        parts.append(words("matrix.seeds", count=cell.seeds))
    if cell.unit and cell.unit.seeds_missing:
        parts.append(words("matrix.seeds_missing", count=cell.unit.seeds_missing))
    return words.comma.join(parts)


def shade(score: float, matrix: Matrix) -> int:
    """0 for the lowest score of the matrix to SHADES for the highest."""
    scores = [cell.score for cell in matrix.measured if cell.score is not None]
    low, high = min(scores), max(scores)
    return round(SHADES * (score - low) / (high - low)) if high > low else SHADES // 2


def comparison_view(found: Comparison | None, matrix: Matrix, words: Words) -> Section | None:
    """A difference to the baseline with its verdict."""
    if found is None:
        return None
    return {
        "kind": found.verdict,
        "sign": SIGNS[found.verdict],
        "verdict": words(f"verdict_name.{found.verdict}"),
        "short": change_limits(found.difference, found.interval, matrix, words),
        "difference": change_text(found.difference, matrix),
        "limits": words("matrix.limits", limits=change_ends(found.interval, matrix, words)),
        "p": f"{found.adjusted_p:.2g}",
        "explained": explained(found, matrix, words),
    }


def explained(found: Comparison, matrix: Matrix, words: Words) -> str:
    """A comparison in words; differences of ratios are not points, so they get their own."""
    if not matrix.ratios_to:
        return explain(found, words.verdicts)
    if found.verdict == "not comparable":
        return words.verdicts["not comparable"].format(
            confounds=words.listing.join(found.confounds)
        )
    verdict = words(f"verdict_name.{found.verdict}")
    change = change_limits(found.difference, found.interval, matrix, words)
    said = words(
        "matrix.ratio_verdict", verdict=verdict, change=change, p=f"{found.adjusted_p:.2g}"
    )
    if found.family == 1:
        return said
    figures = {"level": found.interval.level * 100, "family": found.family}
    interval = filled(words.verdicts["family interval"], figures)
    return words.semicolon.join((said, interval))


def average_view(margin: Margin, matrix: Matrix, words: Words) -> Section | None:
    """The average of a row, a column or a layer; None where no cell is measured."""
    if margin.average is None:
        return None
    found, change = margin.average, margin.change
    return {
        "score": score_text(found.mean, matrix),
        "interval": limits(found.interval, matrix, words),
        "cells": words("matrix.cells_of", run=found.cells, total=margin.cells),
        "whole": found.cells == margin.cells,
        "change": change_text(change.mean, matrix) if change else "",
        "change_limits": words("matrix.limits", limits=change_ends(change.interval, matrix, words))
        if change
        else "",
    }


def average_change_text(change: Average | None, matrix: Matrix, words: Words) -> str:
    """A mean difference with its limits; empty where nothing is compared."""
    return change_limits(change.mean, change.interval, matrix, words) if change else ""


def layer_views(matrix: Matrix, words: Words) -> list[Section]:
    """One heat map for each layer."""
    margins = {(m.layer, m.key, m.value): m for m in matrix.margins}
    views = []
    for layer in matrix.layers:
        rows = []
        for row in matrix.rows:
            cells = [matrix.cells[(row, column, *layer)] for column in matrix.columns]
            margin = margins[layer, matrix.layout.rows, row]
            rows.append(
                {
                    "label": value_text(row),
                    "cells": [cell_view(cell, matrix, words) for cell in cells],
                    "average": average_view(margin, matrix, words),
                }
            )
        columns = [margins.get((layer, matrix.layout.columns or "", c)) for c in matrix.columns]
        averages = [average_view(m, matrix, words) if m else None for m in columns]
        views.append(
            {
                "title": layer_title(layer, matrix, words),
                "rows": rows,
                "averages": averages if matrix.layout.columns else [],
                "all": average_view(margins[layer, "", None], matrix, words),
            }
        )
    return views


def layer_title(layer: Place, matrix: Matrix, words: Words) -> str:
    """The coordinates of a layer; empty where there is only one."""
    names, pairs = leaf_names(matrix), zip(matrix.layout.layers, layer, strict=True)
    listing = words.listing
    return listing.join(f"{names[key]} = {value_text(value)}" for key, value in pairs)


def column_labels(matrix: Matrix, words: Words) -> list[str]:
    """The heads of the columns."""
    if matrix.layout.columns is None:
        return [words("table.score")]
    return [value_text(value) for value in matrix.columns]


def scale_of(cells: Sequence[Cell]) -> tuple[float, float]:
    """The range that contains the intervals of all cells: 0 to 1 if they lie within."""
    intervals = [cell.interval for cell in cells if cell.interval is not None]
    return min([0.0, *(i.low for i in intervals)]), max([1.0, *(i.high for i in intervals)])


def graph(cell: Cell, scale: tuple[float, float]) -> Any:
    """The drawing of a cell's value and interval."""
    return interval_bar(cell.score or 0.0, cell.interval, scale) if cell.interval else ""


def drawn_cells(matrix: Matrix, words: Words) -> str:
    """The measured cells with their intervals, drawn in characters."""
    cells = matrix.measured
    bars = [
        Bar(cell.score, cell.interval, percent(cell.score), place_text(cell.place, matrix, words))
        for cell in cells
        if cell.score is not None and cell.interval is not None
    ]
    return score_plot(bars, scale_of(cells))


def tally_lines(found: Tally, matrix: Matrix, words: Words) -> list[str]:
    """Counts out of the cells that were run, by sign and by verdict, and the extremes."""
    lines = [words("matrix.run", run=found.run, missing=found.missing)]
    if not matrix.baseline:
        return lines
    lines.append(
        words(
            "matrix.by_sign",
            improved=found.improved,
            declined=found.declined,
            unchanged=found.unchanged,
            compared=found.compared,
            run=found.run,
        )
    )
    lines.append(
        words(
            "matrix.by_verdict",
            better=found.better,
            worse=found.worse,
            equivalent=found.equivalent,
            undecided=found.undecided,
            refused=found.not_comparable,
        )
    )
    named = {repr(place): cell for place, cell in matrix.cells.items()}
    for key, name in (("gain", found.largest_gain), ("loss", found.largest_loss)):
        cell = named.get(name or "")
        lines.append(
            words(f"matrix.largest_{key}", what=extreme(cell, matrix, words))
            if cell
            else words(f"matrix.no_{key}")
        )
    if 0 < found.groups < found.compared:
        lines.append(words("matrix.groups", compared=found.compared, groups=found.groups))
    return lines


def extreme(cell: Cell, matrix: Matrix, words: Words) -> str:
    """A cell with its difference and verdict, in a line."""
    comma = words.comma
    view = comparison_view(cell.comparison, matrix, words)
    change = comma.join((view["short"], view["verdict"])) if view else ""
    return f"{place_text(cell.place, matrix, words)}{words.colon}{change}"


def overlap_lines(matrix: Matrix, words: Words) -> list[tuple[str, bool]]:
    """The items and rows that values of an axis share; True marks dependent values."""
    names = leaf_names(matrix)
    same = [o for o in matrix.overlaps if o.of == "items" and o.kind == "same"]
    lines = []
    if same:
        keys = words.listing.join(names[o.key] for o in same)
        counts = sorted({count or 0 for o in same for _, count in o.sizes})
        count = " – ".join(number(c) for c in counts)
        lines.append((words("matrix.items_same", keys=keys, count=count), True))
    others = [o for o in matrix.overlaps if o not in same]
    return [*lines, *((overlap_line(o, names[o.key], words), o.kind != "apart") for o in others)]


def overlap_line(found: Overlap, key: str, words: Words) -> str:
    """One axis, named `key`, in words."""
    values = sorted(found.sizes, key=lambda pair: pair[1] or 0)
    sizes = " ⊂ ".join(
        words(f"matrix.{found.of}_size", value=value_text(v), count=number(n)) for v, n in values
    )
    if found.kind != "nested":
        sizes = sizes.replace(" ⊂ ", words.listing)
    return words(f"matrix.{found.of}_{found.kind}", key=key, sizes=sizes)


def nested_values(matrix: Matrix) -> dict[str, bool]:
    """The axes whose values are nested."""
    return {o.key: True for o in matrix.overlaps if o.kind in ("nested", "overlapping")}


def arm_views(matrix: Matrix, words: Words) -> list[Section]:
    """Strengths and weaknesses, arm by arm."""
    if not matrix.baseline:
        return []
    return [arm_view(arm, matrix, words) for arm in matrix.arms]


def arm_view(arm: ArmView, matrix: Matrix, words: Words) -> Section:
    """One arm: where it is shown to be better or worse, and the counts behind it."""
    t = arm.tally
    figures = {"better": t.better, "worse": t.worse, "compared": t.compared, "run": t.run}
    signs = {"improved": t.improved, "declined": t.declined}
    return {
        "title": f"{leaf_names(matrix)[arm.key]} = {value_text(arm.value)}",
        "baseline": t.run > 0 and arm.baselines == t.run,
        "counts": words("matrix.arm_counts", **figures, **signs),
        "change": average_change_text(arm.change, matrix, words),
        "strengths": [extreme(cell, matrix, words) for cell in arm.strengths],
        "weaknesses": [extreme(cell, matrix, words) for cell in arm.weaknesses],
    }


def recommendation_view(matrix: Matrix, words: Words) -> Section:
    """The recommended setting with its evidence, or why there is none."""
    found = matrix.recommendation
    cell, choice = found.cell, found.choice
    select = visible(words.listing.join(found.select))
    # The dev evaluations may be several, and the reporting one single, or the other way round.
    on_dev = replace(matrix, ratios_to=found.ratios_to)
    view: Section = {
        "chosen": found.reason == "chosen",
        "rule": words("matrix.rule"),
        "why": words(
            f"matrix.reason_{found.reason}",
            select=select,
            problem=visible(found.problem),
        ),
        "setting": place_text(cell.place, matrix, words) if cell else "",
        "model": cell.name if cell else "",
        "evidence": [],
        "winner": _winner_text(matrix, words),
    }
    if cell is None or choice is None:
        return view
    lines = [
        words(
            "matrix.evidence_dev",
            score=score_text(found.dev_scores[cell.place], on_dev),
            items=number(sum(len(part.item_ids) for part in found.dev)),
            select=select,
        )
    ]
    if choice.comparison is not None:
        said = explained(choice.comparison, on_dev, words)
        lines.append(words("matrix.evidence_test", said=said, looks=choice.looks))
    lines.append(
        words("matrix.optimism_ratio", looks=choice.looks, ratio=f"{choice.optimism:.3f}")
        if found.ratios_to
        else words("matrix.optimism", looks=choice.looks, points=f"{choice.optimism * 100:.1f}")
    )
    if cell.score is not None and cell.interval is not None:
        score, interval = score_text(cell.score, matrix), limits(cell.interval, matrix, words)
        lines.append(words("matrix.evidence_report", score=score, interval=interval))
    if cell.comparison is not None:
        said = explained(cell.comparison, matrix, words)
        lines.append(words("matrix.evidence_report_test", said=said))
    if found.rivals:
        names = words.semicolon.join(
            place_text(rival.place, matrix, words) for rival in found.rivals
        )
        lines.append(words("matrix.rivals", count=len(found.rivals), names=names))
    return {**view, "evidence": lines}


def _winner_text(matrix: Matrix, words: Words) -> str:
    """Which point of a sweep won, or how many are missing; "" where nothing ranks them."""
    advice = matrix.recommendation
    if advice.points and advice.missing and advice.cell is not None:
        return words("matrix.unfinished", missing=advice.missing)
    if advice.winner is None:
        return ""
    return words(
        "matrix.picked",
        count=len(advice.dev_scores),
        select=visible(words.listing.join(advice.select)),
        model=advice.winner.name,
    )


def commands(matrix: Matrix) -> list[str]:
    """What fills the empty cells, each command once."""
    return [
        visible(text) for text in dict.fromkeys(c.command for c in matrix.cells.values()) if text
    ]


def note_lines(matrix: Matrix, words: Words) -> list[str]:
    """Omissions and warnings, one line for each kind."""
    subjects: dict[str, list[str]] = {}
    for note in matrix.notes:
        subjects.setdefault(note.key, []).append(visible(note.subject))
    return [words(f"matrix.note_{key}", names=words.listing.join(n)) for key, n in subjects.items()]
