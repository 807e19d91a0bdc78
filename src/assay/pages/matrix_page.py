"""The page of a matrix: `matrices/NAME/matrix.html` and `.md` under the lab's root.

Every score links to the record that it was computed from. Nothing is computed here.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from assay.errors import Finding
from assay.judge.averages import Average
from assay.judge.families import Tally
from assay.judge.selection import Choice
from assay.judge.verdict import Comparison, explain
from assay.lab.sweep.model import (
    METRICS,
    DifferenceTrend,
    Matrix,
    Place,
    StageEpochs,
    SweepCell,
    Value,
)
from assay.lab.sweep.model import CellBlock as ControlBlock
from assay.lab.sweep.read_sweep import short_names
from assay.pages.content import change_text, interval_text, sections
from assay.pages.html import write_page
from assay.pages.page import (
    Block,
    Bullets,
    Facts,
    Heading,
    Line,
    Mark,
    Page,
    Row,
    Section,
    Table,
    Text,
)
from assay.pages.page import Cell as Shown
from assay.pages.words import (
    Words,
    difference_text,
    in_language,
    named_tests,
    number,
    percent,
    score_text,
    words,
)

SAME = "same weights"


def verdict_of(cell: SweepCell, control: str, comparison: Comparison) -> str:
    """The verdict of a cell against a control, or that the two are the same weights."""
    return SAME if control in cell.same_weights else comparison.verdict


def value_text(value: Value) -> str:
    """A value on an axis."""
    return "–" if value is None else f"{value}"


def leaf_names(matrix: Matrix) -> dict[str, str]:
    """The shortest unambiguous name of each axis: the end of its dotted key."""
    return short_names([key for key in matrix.layout.keys if key is not None])


def values_text(values: Mapping[str, Value], matrix: Matrix, w: Words) -> str:
    """Values of some axes."""
    names = leaf_names(matrix)
    return w.listing.join(f"{names[key]} = {value_text(value)}" for key, value in values.items())


def place_text(place: Place, matrix: Matrix, w: Words) -> str:
    """A cell by its coordinates."""
    return values_text(matrix.layout.values(place), matrix, w)


CHANGING = ("loss", "policy_loss", "kl")
"""Metrics that are shown with their change since the epoch before."""
VERDICTS = ("better", "worse", "equivalent", "undecided", "same_weights", "not_comparable")


def control_blocks(matrix: Matrix, w: Words) -> list[Block]:
    """What must be known to read the tables, then those of each arm and control."""
    if not matrix.blocks:
        return []
    about = [w("matrix.blocks_about")]
    tallies = [tally for block in matrix.blocks for tally in block.tallies]
    most = max(tallies, key=lambda tally: tally.compared)
    if 0 < most.groups < most.compared:
        about.append(w("matrix.groups", compared=most.compared, groups=most.groups))
    every = (c for b in matrix.blocks for c in (b.overall, *b.rows, *b.columns))
    if any(changes.trend for changes in every):
        about.append(w("matrix.trend_about"))
    tables = [each for block in matrix.blocks for each in _control_tables(block, matrix, w)]
    return [*(Text(line, "soft") for line in about), *tables]


def _control_tables(block: ControlBlock, matrix: Matrix, w: Words) -> list[Block]:
    names, words = leaf_names(matrix), matrix.controls[block.control]
    where = values_text(dict(block.where), matrix, w)
    control = words if block.control == "baseline" else f"{block.control} ({words})"
    key = "matrix.block_title" if where else "matrix.block_title_alone"
    name = names[block.axis] if block.axis else ""
    steps = [name if step is None else f"{name} {value_text(step)}" for step in block.steps]
    heads = steps if block.axis else [w("matrix.difference")]
    tables = [_summary(block, heads, matrix, w)]
    for axis, rows in ((matrix.layout.columns, block.columns), (matrix.layout.rows, block.rows)):
        if axis is not None and len(rows) > 1:
            trending = any(each.trend for each in rows)
            table = [
                [
                    value_text(each.value),
                    *(_mean(mean, w) for mean in each.means),
                    *([trend_text(each.trend, w) or "–"] * trending),
                ]
                for each in rows
            ]
            tables.append(
                Table([names[axis], *heads, *([w("matrix.trend")] * trending)], table, kind="plain")
            )
    return [Heading(w(key, where=where, control=control)), *tables]


def _summary(block: ControlBlock, heads: Sequence[str], matrix: Matrix, w: Words) -> Table:
    """The whole block: mean difference, extremes, counts out of all cells, verdicts."""
    nothing, tallies = w("matrix.nothing_compared"), block.tallies

    cells = {repr(place): cell for place, cell in matrix.cells.items()}
    layers = matrix.layout.layers

    def extreme(name: str | None) -> str:
        if name is None:
            return "–"
        cell = cells[name]
        comparison = cell.against[block.control]
        axes = {k: v for k, v in matrix.layout.values(cell.place).items() if k not in layers}
        change = change_text(comparison.difference, comparison.interval, w)
        verdict = w(f"verdict_name.{verdict_of(cell, block.control, comparison)}")
        return f"{values_text(axes, matrix, w)}{w.colon}{change}{w.comma}{verdict}"

    def count(of: int, tally: Tally) -> str:
        total = tally.run + tally.missing
        return w("matrix.count_of", count=of, total=total) if tally.compared else nothing

    def verdicts(tally: Tally) -> str:
        counts = [(kind.replace("_", " "), getattr(tally, kind)) for kind in VERDICTS]
        texts = [f"{w(f'verdict_name.{kind}')} {count}" for kind, count in counts if count]
        return w.listing.join(texts) or nothing

    rows = [
        ("mean_difference", [_mean(mean, w) for mean in block.overall.means]),
        ("largest_gain_of", [extreme(t.largest_gain) for t in tallies]),
        ("largest_loss_of", [extreme(t.largest_loss) for t in tallies]),
        ("cells_improved", [count(t.improved, t) for t in tallies]),
        ("cells_declined", [count(t.declined, t) for t in tallies]),
        ("cells_by_verdict", [verdicts(t) for t in tallies]),
    ]
    if trend := trend_text(block.overall.trend, w):
        rows.append(("trend", [*[""] * (len(heads) - 1), trend]))
    table = [[w(f"matrix.{key}"), *texts] for key, texts in rows]
    return Table([w("matrix.all_cells"), *heads], table, kind="plain")


def _mean(mean: Average | None, w: Words) -> str:
    """A mean difference; there is none of ratios."""
    if mean is None:
        return w("matrix.nothing_compared")
    return change_text(mean.mean, mean.interval, w)


def trend_text(trend: DifferenceTrend | None, w: Words) -> str:
    """Whether the difference grew between two checkpoints; "" where there are not two."""
    if trend is None:
        return ""
    interval = trend.change.interval
    kind = "rises" if interval.low > 0 else "falls" if interval.high < 0 else "unclear"
    change = change_text(trend.change.mean, interval, w)
    return w(f"matrix.trend_{kind}", change=change)


def training_blocks(matrix: Matrix, w: Words) -> list[Block]:
    """The epochs of every stage of each run with what they mean."""
    stages = [block for each in matrix.trainings for block in _stage(each, w)]
    return [Text(w("training.about"), "soft"), *stages] if stages else []


def _stage(each: StageEpochs, w: Words) -> list[Block]:
    shown = [name for name in METRICS if any(name in epoch for epoch in each.epochs)]
    before = [dict[str, float](), *each.epochs]
    rows = [
        [f"{number}", *(_value(earlier.get(name), epoch.get(name), name) for name in shown)]
        for number, (earlier, epoch) in enumerate(zip(before, each.epochs, strict=False), 1)
    ]
    columns = [w("training.epoch"), *(w(f"training.{name}") for name in shown)]
    title = w("training.title", run=each.run, stage=each.stage, method=each.method)
    return [Heading(title), Table(columns, rows, kind="plain"), *map(Text, _kl(each, w))]


def _value(before: float | None, value: float | None, name: str) -> str:
    """A metric, with its change where the value before is above 0, which a change is a share of."""
    if value is None:
        return "–"
    changed = name in CHANGING and before is not None and before > 0
    change = f" ({value / before - 1:+.1%})" if changed and before else ""
    return f"{value:.4g}{change}".replace("-", "−")


def _kl(each: StageEpochs, w: Words) -> list[str]:
    """In which direction the policy moved, by its KL."""
    measured = [epoch["kl"] for epoch in each.epochs if "kl" in epoch]
    if len(measured) < 2 or not each.reference or measured[0] == measured[-1]:
        return []
    kind = "fell" if measured[-1] < measured[0] else "rose"
    first, last = (f"{value:.4g}" for value in (measured[0], measured[-1]))
    reference = w(f"training.reference_{each.reference}")
    return [w(f"training.kl_{kind}", first=first, last=last, reference=reference)]


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
    on = w.listing.join(matrix.on)
    baseline = matrix.controls.get(matrix.baseline) or w("matrix.no_baseline_named")
    blocks: list[Block] = [
        *([Text(matrix.about, "lead")] if matrix.about else []),
        Facts(((w("table.evaluation"), on), (w("matrix.baseline"), baseline)), chips=True),
        *(Text(line, "warning") for line in note_lines(matrix.notes, w)),
        *matrix_sections(matrix, folder, w),
    ]
    footer = w("matrix.footer", name=matrix.name, version=version("assay-lab"))
    return Page(w, matrix.name, blocks, footer, w("matrix.title", name=matrix.name))


def matrix_shown(matrix: Matrix, root: Path, lang: str = "en") -> list[Block]:
    """The matrix in a terminal: tables, counts, controls, training and the recommendation.
    Raises InputError."""
    return [*matrix_sections(matrix, root, words(lang), IN_TERMINAL)]


def matrix_sections(
    matrix: Matrix, folder: Path, w: Words, wanted: Sequence[str] = ()
) -> list[Section]:
    """The sections that have something to say, or those `wanted`; links are from `folder`."""
    parts: dict[str, tuple[str, Callable[[], Sequence[Block]]]] = {
        "recommendation": (w("matrix.recommendation"), lambda: recommendation_blocks(matrix, w)),
        "table": (w("matrix.table"), lambda: _tables(matrix, folder, w)),
        "counts": (w("matrix.counts"), lambda: _counts(matrix, w)),
        "blocks": (w("matrix.blocks"), lambda: control_blocks(matrix, w)),
        "training": (w("training.heading"), lambda: training_blocks(matrix, w)),
        "methods": (w("page.methods"), lambda: [Text(line) for line in _methods(matrix, w)]),
    }
    return sections(parts, wanted)


def note_lines(notes: Iterable[Finding], w: Words) -> list[str]:
    """Omissions and warnings, one line for each kind."""
    subjects: dict[str, list[str]] = {}
    for note in notes:
        subjects.setdefault(note.code, []).append(note.values["name"])
    return [w(f"finding.{key}", names=w.listing.join(n)) for key, n in subjects.items()]


def recommendation_blocks(matrix: Matrix, w: Words) -> list[Block]:
    """The recommended setting with its evidence and the point that won so far, or why there is
    none."""
    advice = matrix.recommendation
    cell, choice, select = advice.cell, advice.choice, w.listing.join(advice.select)
    why = Text(w(f"matrix.reason_{advice.reason}", select=select, problem=advice.problem))
    none, rule = Text(w("matrix.none"), "big"), Text(w("matrix.rule"), "soft")
    if cell is None or choice is None:
        return [none, why, Bullets([]), rule]
    counts = {"count": len(advice.dev_scores), "select": select, "model": cell.name}
    missing = advice.missing and w("matrix.unfinished", missing=advice.missing)
    winner = Text(Mark(missing or w("matrix.picked", **counts)))
    evidence = [Bullets(_evidence(matrix, cell, choice, w)), rule]
    setting = place_text(cell.place, matrix, w)
    if advice.reason == "chosen":
        model = Text((w("chip.model"), w.colon, Mark(cell.name)))
        return [Text(setting, "big"), model, why, winner, *evidence]
    candidate = Text(w("matrix.candidate", setting=setting, model=cell.name))
    return [winner, none, candidate, why, *evidence]


def _evidence(matrix: Matrix, cell: SweepCell, choice: Choice, w: Words) -> list[str]:
    advice = matrix.recommendation
    select = w.listing.join(advice.select)
    # The dev evaluations may be several, and the reporting one single, or the other way round.
    on_dev = bool(advice.ratios_to)
    score, items = advice.dev_scores[cell.place], sum(len(part.item_ids) for part in advice.dev)
    figures = {"score": (number if on_dev else percent)(score), "items": number(items)}
    lines = [w("matrix.evidence_dev", select=select, **figures)]
    if choice.comparison is not None:
        verdict = explain(choice.comparison, w.verdicts)
        lines.append(w("matrix.evidence_test", said=verdict, looks=choice.looks))
    lines.append(
        w("matrix.optimism_ratio", looks=choice.looks, ratio=f"{choice.optimism:.3f}")
        if on_dev
        else w("matrix.optimism", looks=choice.looks, points=f"{choice.optimism * 100:.1f}")
    )
    if cell.score is not None and cell.interval is not None:
        score, interval = score_text(cell.score, cell.interval), interval_text(cell.interval, w)
        lines.append(w("matrix.evidence_report", score=score, interval=interval))
    if compared := cell.against.get(matrix.baseline):
        reason = explain(compared, w.verdicts)
        lines.append(w("matrix.evidence_report_test", said=reason))
    if advice.rivals:
        names = w.semicolon.join(place_text(rival.place, matrix, w) for rival in advice.rivals)
        lines.append(w("matrix.rivals", count=len(advice.rivals), names=names))
    return lines


def _tables(matrix: Matrix, folder: Path, w: Words) -> list[Block]:
    """One table for each layer."""
    layout, names = matrix.layout, leaf_names(matrix)
    head = " \\ ".join(names[k] for k in (layout.rows, layout.columns) if k is not None)
    columns = [head, *(map(value_text, matrix.columns) if layout.columns else [w("table.score")])]
    blocks: list[Block] = [Text(w("matrix.table_about"), "soft")]
    for layer in matrix.layers:
        rows: list[Row] = []
        for row in matrix.rows:
            cells = [matrix.cells[(row, column, *layer)] for column in matrix.columns]
            shown = [_matrix_cell(cell, matrix, folder, w) for cell in cells]
            rows.append([Shown(value_text(row), kind="head"), *shown])
        title = values_text(dict(zip(layout.layers, layer, strict=True)), matrix, w)
        runs = {o.run for p, c in matrix.cells.items() if p[2:] == layer for o in c.origins}
        told = [
            note for note in matrix.notes if note.values["name"].split(": ")[0] in map(str, runs)
        ]
        blocks.append(Table(columns, rows, title, " ".join(note_lines(told, w)), kind="heat"))
    return blocks


def _matrix_cell(cell: SweepCell, matrix: Matrix, folder: Path, w: Words) -> Shown:
    """A cell with its score and verdict, or its state."""
    if cell.score is None or cell.interval is None:
        known = w.sections["status"].get(cell.state) or w(f"cell_state.{cell.state}")
        return Shown(known, kind="soft")
    parts = [w("matrix.items", count=number(cell.items))]
    if cell.repeats > 1:
        parts.append(w("table.many_passes", repeats=cell.repeats))
    if cell.seeds > 1:
        parts.append(w("matrix.seeds", count=cell.seeds))
    if cell.seeds_missing:
        parts.append(w("matrix.seeds_missing", count=cell.seeds_missing))
    below: list[Line] = [interval_text(cell.interval, w), w.comma.join(parts)]
    dev = matrix.recommendation.dev_scores.get(cell.place)
    if dev is not None:
        on_dev = number(dev) if matrix.recommendation.ratios_to else percent(dev)
        below.append(w("matrix.on_dev", score=on_dev))
    if compared := cell.against.get(matrix.baseline):
        verdict = verdict_of(cell, matrix.baseline, compared)
        change = difference_text(compared.difference, compared.interval)
        named = w(f"verdict_name.{verdict}")
        below.append(Mark(f"{SIGNS[verdict]} {change} {named}", compared.verdict))
    elif matrix.baseline in cell.own:
        below.append(Mark(w("matrix.baseline")))
    if cell.alike:
        below.append(w("matrix.alike", names=w.listing.join(cell.alike)))
    if mark := matrix.mark(cell):
        below.append(Mark(w(f"matrix.mark_{mark}")))
    link = Path(os.path.relpath(cell.origins[0].file, folder)).as_posix()
    return Shown(Mark(score_text(cell.score, cell.interval), "score", link), below)


def _counts(matrix: Matrix, w: Words) -> list[Block]:
    """How many cells were run, and the runs that are missing."""
    missing = dict.fromkeys(c.run for c in matrix.cells.values() if c.run)
    tally = matrix.tally
    lines = [w("matrix.run", run=tally.run, missing=tally.missing)]
    if matrix.baseline:
        signs = ("improved", "declined", "unchanged", "compared", "run")
        lines.append(w("matrix.by_sign", **{name: getattr(tally, name) for name in signs}))
        counts = {name: getattr(tally, name) for name in VERDICTS[:4]}
        counts |= {"refused": tally.not_comparable, "same": tally.same_weights}
        lines.append(w("matrix.by_verdict", **counts))
    fills = [Text(w("matrix.fills", runs=w.listing.join(missing)))] if missing else []
    return [Bullets(lines), *fills]


def _methods(matrix: Matrix, w: Words) -> list[str]:
    """The methods of the figures, in sentences."""
    comparisons = [cell.against.get(matrix.baseline) for cell in matrix.cells.values()]
    tests = named_tests([each.method for each in comparisons if each], w)
    lines = [w("matrix.method_score")]
    if matrix.ratios_to:
        pairs = w.listing.join(f"{name} {value:g}" for name, value in matrix.ratios_to.items())
        lines.append(w("matrix.method_ratio", pairs=pairs))
    if tests:
        lines.append(w("matrix.method_tests", tests=tests, count=matrix.tally.compared))
    return [*lines, w("methods.three"), w("matrix.method_select")]
