"""The page of a matrix: `matrices/NAME/matrix.html` and `.md` under the lab's root.

Every score links to the record that it was computed from. Nothing is computed here.
"""

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from assay.judge.families import Tally
from assay.judge.verdict import Comparison
from assay.lab.sweep.matrix.model import Cell, Margin, Matrix
from assay.pages.matrix.control_tables import control_blocks, training_blocks
from assay.pages.matrix.figures import (
    SAME,
    change_limits,
    change_text,
    column_labels,
    explained,
    leaf_names,
    limits,
    place_text,
    score_text,
    value_text,
    values_text,
    verdict_of,
)
from assay.pages.page import (
    Block,
    Bullets,
    Facts,
    Line,
    Mark,
    Only,
    Page,
    Row,
    Section,
    Table,
    Text,
)
from assay.pages.page import Cell as Shown
from assay.pages.words import Words, in_language, named_tests, number, words
from assay.pages.write_page import write_page

FOLDER = "matrices"
SIGNS = {"better": "▲", "worse": "▼", "equivalent": "≈", "undecided": "?", "not comparable": "≠"}
SIGNS |= {SAME: "="}
IN_TERMINAL = ("table", "counts", "blocks", "training", "recommendation")
"""The sections that a terminal shows; the rest is how it was made."""


def write_matrix(matrix: Matrix, root: Path, lang: str = "en") -> Path:
    """Write both pages; returns the HTML page. Raises InputError."""
    w, folder = words(lang), root / FOLDER / matrix.name
    return write_page(matrix_page(matrix, folder, w), in_language(folder / "matrix.html", lang))


def matrix_page(matrix: Matrix, folder: Path, w: Words) -> Page:
    """The whole page; links are relative to its `folder`."""
    blocks: list[Block] = [
        *([Text(matrix.about, "lead")] if matrix.about else []),
        Facts(_chips(matrix, w), chips=True),
        *(Text(line, "warning") for line in note_lines(matrix, w)),
        *sections(matrix, folder, w),
    ]
    footer = w("matrix.footer", name=matrix.name, version=version("assay-lab"))
    return Page(w, matrix.name, blocks, footer, w("matrix.title", name=matrix.name))


def matrix_shown(matrix: Matrix, root: Path, lang: str = "en") -> list[Block]:
    """The matrix in a terminal: tables, counts, controls, training and the recommendation.
    Raises InputError."""
    found = {each.anchor: each for each in sections(matrix, root, words(lang))}
    return [found[name] for name in IN_TERMINAL if name in found]


def sections(matrix: Matrix, folder: Path, w: Words) -> list[Section]:
    """The sections that have something to say; links are relative to `folder`."""
    parts: list[tuple[str, str, Sequence[Block]]] = [
        ("recommendation", "matrix.recommendation", recommendation_blocks(matrix, w)),
        ("table", "matrix.table", _tables(matrix, folder, w)),
        ("counts", "matrix.counts", _counts(matrix, w)),
        ("blocks", "matrix.blocks", control_blocks(matrix, w)),
        ("training", "training.heading", training_blocks(matrix, w)),
        ("methods", "page.methods", [Text(line) for line in _methods(matrix, w)]),
    ]
    return [Section(anchor, w(title), blocks) for anchor, title, blocks in parts if blocks]


def _chips(matrix: Matrix, w: Words) -> list[tuple[str, Line]]:
    """The matrix in a line."""
    layout = matrix.layout
    pairs: list[tuple[str, Line]] = [
        (w("matrix.rows"), layout.rows),
        (w("matrix.columns"), layout.columns or ""),
        (w("matrix.layers"), w.listing.join(layout.layers)),
        (w("table.evaluation"), w.listing.join(matrix.on)),
        (w("matrix.baseline"), matrix.baseline or w("matrix.no_baseline_named")),
    ]
    return [(label, value) for label, value in pairs if value]


def note_lines(matrix: Matrix, w: Words) -> list[str]:
    """Omissions and warnings, one line for each kind."""
    subjects: dict[str, list[str]] = {}
    for note in matrix.notes:
        subjects.setdefault(note.code, []).append(note.values["name"])
    return [w(f"finding.{key}", names=w.listing.join(n)) for key, n in subjects.items()]


def recommendation_blocks(matrix: Matrix, w: Words) -> list[Block]:
    """The recommended setting with its evidence, or why there is none."""
    advice = matrix.recommendation
    cell, select = advice.cell, w.listing.join(advice.select)
    setting = place_text(cell.place, matrix, w) if cell else ""
    why = Text(w(f"matrix.reason_{advice.reason}", select=select, problem=advice.problem))
    winner = [Text(Mark(line))] if (line := _winner_text(matrix, select, w)) else []
    evidence = [Bullets(_evidence(matrix, select, w)), Text(w("matrix.rule"), "soft")]
    if cell is None:
        return [Text(w("matrix.none"), "big"), why, *winner, *evidence]
    if advice.reason == "chosen":
        model = Text((w("matrix.model"), w.colon, Mark(cell.name)))
        return [Text(setting, "big"), model, why, *winner, *evidence]
    candidate = Text(w("matrix.candidate", setting=setting, model=cell.name))
    return [*winner, Text(w("matrix.none"), "big"), candidate, why, *evidence]


def _winner_text(matrix: Matrix, select: str, w: Words) -> str:
    """Which point of a sweep won, or how many are missing; "" where nothing ranks them."""
    advice = matrix.recommendation
    if advice.points and advice.missing and advice.cell is not None:
        return w("matrix.unfinished", missing=advice.missing)
    if advice.winner is None:
        return ""
    count, model = len(advice.dev_scores), advice.winner.name
    return w("matrix.picked", count=count, select=select, model=model)


def _evidence(matrix: Matrix, select: str, w: Words) -> list[str]:
    advice, ratios = matrix.recommendation, bool(matrix.ratios_to)
    cell, choice = advice.cell, advice.choice
    # The dev evaluations may be several, and the reporting one single, or the other way round.
    on_dev = bool(advice.ratios_to)
    if cell is None or choice is None:
        return []
    score, items = advice.dev_scores[cell.place], sum(len(part.item_ids) for part in advice.dev)
    figures = {"score": score_text(score, on_dev), "items": number(items)}
    lines = [w("matrix.evidence_dev", select=select, **figures)]
    if choice.comparison is not None:
        verdict = explained(choice.comparison, on_dev, w)
        lines.append(w("matrix.evidence_test", said=verdict, looks=choice.looks))
    lines.append(
        w("matrix.optimism_ratio", looks=choice.looks, ratio=f"{choice.optimism:.3f}")
        if on_dev
        else w("matrix.optimism", looks=choice.looks, points=f"{choice.optimism * 100:.1f}")
    )
    if cell.score is not None and cell.interval is not None:
        score, interval = score_text(cell.score, ratios), limits(cell.interval, ratios, w)
        lines.append(w("matrix.evidence_report", score=score, interval=interval))
    if cell.comparison is not None:
        said = explained(cell.comparison, ratios, w)
        lines.append(w("matrix.evidence_report_test", said=said))
    if advice.rivals:
        names = w.semicolon.join(place_text(rival.place, matrix, w) for rival in advice.rivals)
        lines.append(w("matrix.rivals", count=len(advice.rivals), names=names))
    return lines


def _tables(matrix: Matrix, folder: Path, w: Words) -> list[Block]:
    """One table for each layer, with the averages of rows and columns."""
    layout, names = matrix.layout, leaf_names(matrix)
    margins = {(m.layer, m.key, m.value): m for m in matrix.margins}
    head = " \\ ".join(names[k] for k in (layout.rows, layout.columns) if k is not None)
    columns = [head, *column_labels(matrix, w), w("matrix.average")]
    blocks: list[Block] = [Only(("html", "markdown"), [Text(w("matrix.table_about"), "soft")])]
    for layer in matrix.layers:
        rows: list[Row] = []
        for row in matrix.rows:
            cells = [matrix.cells[(row, column, *layer)] for column in matrix.columns]
            average = _average_cell(margins[layer, layout.rows, row], matrix, w)
            shown = [_matrix_cell(cell, matrix, folder, w) for cell in cells]
            rows.append([Shown(value_text(row), kind="head"), *shown, average])
        if layout.columns:
            last = [margins[layer, layout.columns, column] for column in matrix.columns]
            averages = [_average_cell(m, matrix, w) for m in (*last, margins[layer, "", None])]
            rows.append([Shown(w("matrix.average"), kind="head"), *averages])
        title = values_text(dict(zip(layout.layers, layer, strict=True)), matrix, w)
        blocks.append(Table(columns, rows, title, kind="heat"))
    return blocks


def _matrix_cell(cell: Cell, matrix: Matrix, folder: Path, w: Words) -> Shown:
    """A cell with its score and verdict, or its state."""
    if cell.score is None or cell.interval is None:
        return Shown(w(f"cell_state.{cell.state}"), kind="soft")
    ratios = bool(matrix.ratios_to)
    below: list[Line] = [limits(cell.interval, ratios, w), _size(cell, w)]
    dev = matrix.recommendation.dev_scores.get(cell.place)
    if dev is not None:
        on_dev = score_text(dev, bool(matrix.recommendation.ratios_to))
        below.append(w("matrix.on_dev", score=on_dev))
    if cell.comparison is not None:
        verdict = verdict_of(cell, first_control(matrix), cell.comparison)
        below.append(_change_mark(cell.comparison, verdict, ratios, w))
    elif cell.is_baseline:
        below.append(Mark(w("matrix.is_baseline")))
    if mark := matrix.mark(cell):
        below.append(Mark(w(f"matrix.mark_{mark}")))
    link = _address(cell, folder)
    return Shown(Mark(score_text(cell.score, ratios), "score", link), below)


def first_control(matrix: Matrix) -> str:
    """What cells show their difference to; "" without one."""
    return next(iter(matrix.controls), "")


def _change_mark(comparison: Comparison, verdict: str, ratios: bool, w: Words) -> Mark:
    change, kind = change_text(comparison.difference, ratios), comparison.verdict
    return Mark(f"{SIGNS[verdict]} {change} {w(f'verdict_name.{verdict}')}", kind)


def _address(cell: Cell, folder: Path) -> str:
    return Path(os.path.relpath(cell.origins[0].file, folder)).as_posix()


def _size(cell: Cell, w: Words) -> str:
    """Items, and repeats and seeds where there are several."""
    parts = [w("matrix.items", count=number(cell.items))]
    if cell.repeats > 1:
        parts.append(w("table.many_passes", repeats=cell.repeats))
    if cell.seeds > 1:
        parts.append(w("matrix.seeds", count=cell.seeds))
    if cell.seeds_missing:
        parts.append(w("matrix.seeds_missing", count=cell.seeds_missing))
    return w.comma.join(parts)


def _average_cell(margin: Margin, matrix: Matrix, w: Words) -> Shown:
    """The average of a row, a column or a layer."""
    average, change, ratios = margin.average, margin.change, bool(matrix.ratios_to)
    if average is None:
        return Shown("–", kind="soft")
    cells = w("matrix.cells_of", run=average.cells, total=margin.cells)
    below: list[Line] = [limits(average.interval, ratios, w), cells]
    if change is not None:
        below.append(change_limits(change.mean, change.interval, ratios, w))
    return Shown(Mark(score_text(average.mean, ratios)), below)


def _counts(matrix: Matrix, w: Words) -> list[Block]:
    """Counts out of the cells that were run, and the runs that are missing."""
    missing = dict.fromkeys(cell.run for cell in matrix.cells.values() if cell.run)
    fills = [Text(w("matrix.fills", runs=w.listing.join(missing)))] if missing else []
    return [Bullets(_tally_lines(matrix.tally, matrix, w)), *fills]


def _tally_lines(tally: Tally, matrix: Matrix, w: Words) -> list[str]:
    """Counts by sign and by verdict, and the extremes."""
    lines = [w("matrix.run", run=tally.run, missing=tally.missing)]
    if not matrix.baseline:
        return lines
    signs = ("improved", "declined", "unchanged", "compared", "run")
    verdicts = ("better", "worse", "equivalent", "undecided")
    lines.append(w("matrix.by_sign", **{name: getattr(tally, name) for name in signs}))
    counts = {name: getattr(tally, name) for name in verdicts}
    counts |= {"refused": tally.not_comparable, "same": tally.same_weights}
    lines.append(w("matrix.by_verdict", **counts))
    named = {repr(place): cell for place, cell in matrix.cells.items()}
    for key, name in (("gain", tally.largest_gain), ("loss", tally.largest_loss)):
        what = _extreme(named[name], matrix, w) if name else ""
        lines.append(w(f"matrix.largest_{key}", what=what) if name else w(f"matrix.no_{key}"))
    if 0 < tally.groups < tally.compared:
        lines.append(w("matrix.groups", compared=tally.compared, groups=tally.groups))
    return lines


def _extreme(cell: Cell, matrix: Matrix, w: Words) -> str:
    """A cell with its difference and verdict, in a line."""
    comparison, ratios = cell.comparison, bool(matrix.ratios_to)
    assert comparison is not None
    change = change_limits(comparison.difference, comparison.interval, ratios, w)
    verdict = w(f"verdict_name.{verdict_of(cell, first_control(matrix), comparison)}")
    return f"{place_text(cell.place, matrix, w)}{w.colon}{w.comma.join((change, verdict))}"


def _methods(matrix: Matrix, w: Words) -> list[str]:
    """The methods of the figures, in sentences."""
    tests = named_tests([c.comparison.method for c in matrix.measured if c.comparison], w)
    lines = [w("matrix.method_score")]
    if matrix.ratios_to:
        pairs = w.listing.join(f"{name} {value:g}" for name, value in matrix.ratios_to.items())
        lines.append(w("matrix.method_ratio", pairs=pairs))
    if tests:
        lines.append(w("matrix.method_tests", tests=tests, count=matrix.tally.compared))
    return [*lines, w("matrix.method_averages"), w("methods.three"), w("matrix.method_select")]
