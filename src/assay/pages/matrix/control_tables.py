"""The tables of a matrix against each control, and of the training and data of its runs."""

from collections.abc import Sequence

from assay.judge.averages import Average
from assay.judge.families import Tally
from assay.lab.sweep.matrix.model import Block as ControlBlock
from assay.lab.sweep.matrix.model import Changes, Matrix, Trend
from assay.lab.sweep.matrix.training_epochs import DataFile, Epoch, StageEpochs
from assay.pages.matrix.figures import (
    change_limits,
    leaf_names,
    value_text,
    values_text,
    verdict_of,
)
from assay.pages.page import Block, Heading, Table, Text
from assay.pages.words import Words, number

METRICS = (
    "loss",
    "validation_loss",
    "policy_loss",
    "kl",
    "advantage_std",
    "advantage_max",
    "kl_coef",
    "reward_mean",
)
CHANGING = ("loss", "policy_loss", "kl")
"""Metrics that are shown with their change since the epoch before."""
AT_START = 0.01
"""A KL of the first step above this, against the start itself, has another cause than training."""
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
    tables = [each for block in matrix.blocks for each in _tables(block, matrix, w)]
    return [*(Text(line, "soft") for line in about), *tables]


def _tables(block: ControlBlock, matrix: Matrix, w: Words) -> list[Block]:
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
            tables.append(_by_value(names[axis], heads, rows, bool(matrix.ratios_to), w))
    return [Heading(w(key, where=where, control=control)), *tables]


def _summary(block: ControlBlock, heads: Sequence[str], matrix: Matrix, w: Words) -> Table:
    """The whole block: mean difference, extremes, counts out of all cells, verdicts."""
    ratios, nothing, tallies = bool(matrix.ratios_to), w("matrix.nothing_compared"), block.tallies

    def extreme(name: str | None) -> str:
        cell = next((c for place, c in matrix.cells.items() if repr(place) == name), None)
        found = cell.against.get(block.control) if cell else None
        if cell is None or found is None:
            return "–"
        axes = {k: v for k, v in matrix.layout.values(cell.place).items() if k not in dict(layers)}
        change = change_limits(found.difference, found.interval, ratios, w)
        verdict = w(f"verdict_name.{verdict_of(cell, block.control, found)}")
        return f"{values_text(axes, matrix, w)}{w.colon}{change}{w.comma}{verdict}"

    def count(of: int, tally: Tally) -> str:
        total = tally.run + tally.missing
        return w("matrix.count_of", count=of, total=total) if tally.compared else nothing

    def verdicts(tally: Tally) -> str:
        counts = [(kind.replace("_", " "), getattr(tally, kind)) for kind in VERDICTS]
        texts = [f"{w(f'verdict_name.{kind}')} {count}" for kind, count in counts if count]
        return w.listing.join(texts) or nothing

    layers = [(key, None) for key in matrix.layout.layers]
    rows = [
        ("mean_difference", [_mean(mean, ratios, w) for mean in block.overall.means]),
        ("largest_gain_of", [extreme(t.largest_gain) for t in tallies]),
        ("largest_loss_of", [extreme(t.largest_loss) for t in tallies]),
        ("cells_improved", [count(t.improved, t) for t in tallies]),
        ("cells_declined", [count(t.declined, t) for t in tallies]),
        ("cells_by_verdict", [verdicts(t) for t in tallies]),
    ]
    if trend := trend_text(block.overall.trend, ratios, w):
        rows.append(("trend", [*[""] * (len(heads) - 1), trend]))
    table = [[w(f"matrix.{key}"), *texts] for key, texts in rows]
    return Table([w("matrix.all_cells"), *heads], table, kind="plain")


def _by_value(
    name: str, heads: Sequence[str], rows: Sequence[Changes], ratios: bool, w: Words
) -> Table:
    """The mean differences at each value of an axis, with their trend where there is one."""
    trending = any(each.trend for each in rows)
    table = [
        [
            value_text(each.value),
            *(_mean(mean, ratios, w) for mean in each.means),
            *([trend_text(each.trend, ratios, w) or "–"] * trending),
        ]
        for each in rows
    ]
    return Table([name, *heads, *([w("matrix.trend")] * trending)], table, kind="plain")


def _mean(mean: Average | None, ratios: bool, w: Words) -> str:
    if mean is None:
        return w("matrix.nothing_compared")
    return change_limits(mean.mean, mean.interval, ratios, w)


def trend_text(trend: Trend | None, ratios: bool, w: Words) -> str:
    """Whether the difference grew between two checkpoints; "" where there are not two."""
    if trend is None:
        return ""
    interval = trend.change.interval
    kind = "rises" if interval.low > 0 else "falls" if interval.high < 0 else "unclear"
    change = change_limits(trend.change.mean, interval, ratios, w)
    return w(f"matrix.trend_{kind}", change=change)


def training_blocks(matrix: Matrix, w: Words) -> list[Block]:
    """The epochs of every stage of each run with what they mean, and the data that runs learned
    from."""
    stages = [block for each in matrix.trainings for block in _stage(each, w)]
    about: list[Block] = [Text(w("training.about"), "soft")] if stages else []
    return [*about, *stages, *_data(matrix.data_files, w)]


def _stage(found: StageEpochs, w: Words) -> list[Block]:
    shown = [name for name in METRICS if any(name in e.values for e in found.epochs)]
    before: list[Epoch | None] = [None, *found.epochs]
    rows = [
        [f"{epoch.number}", *(_value(earlier, epoch, name) for name in shown)]
        for earlier, epoch in zip(before, found.epochs, strict=False)
    ]
    columns = [w("training.epoch"), *(w(f"training.{name}") for name in shown)]
    title = w("training.title", run=found.run, stage=found.stage, method=found.method)
    return [Heading(title), Table(columns, rows, kind="plain"), *map(Text, _kl(found, w))]


def _value(earlier: Epoch | None, epoch: Epoch, name: str) -> str:
    value = epoch.values.get(name)
    if value is None:
        return "–"
    text = f"{value:.4g}".replace("-", "−")
    change = percent_change(earlier, epoch, name) if earlier and name in CHANGING else None
    return text if change is None else f"{text} ({change:+.1%})".replace("-", "−")


def percent_change(before: Epoch, after: Epoch, name: str) -> float | None:
    """The change of a metric as a share of its value before; None where that is not above 0, which
    no change is a share of."""
    first, second = before.values.get(name), after.values.get(name)
    return None if first is None or second is None or first <= 0 else second / first - 1


def _kl(found: StageEpochs, w: Words) -> list[str]:
    """In which direction the policy moved, by its KL."""
    measured = [e.values["kl"] for e in found.epochs if "kl" in e.values]
    if not measured or not found.reference:
        return []
    first, last = measured[0], measured[-1]
    reference = w(f"training.reference_{found.reference}")
    kind = "fell" if last < first else "rose" if last > first else "same"
    figures = {"first": f"{first:.4g}", "last": f"{last:.4g}", "reference": reference}
    lines = [w(f"training.kl_{kind}", **figures)] if len(measured) > 1 else []
    if found.reference == "stage_start" and (found.first_kl or 0) > AT_START:
        lines.append(w("training.kl_at_start", kl=f"{found.first_kl:.4g}"))
    return lines


def _data(files: Sequence[DataFile], w: Words) -> list[Block]:
    if not files:
        return []
    names = ("data", "contents", "rows", "mean_reward", "positive_queries")
    columns = [w(f"training.{name}") for name in (*names, "positive_candidates", "runs")]
    table = Table(columns, [_file_row(each, w) for each in files], kind="plain")
    known = [each.name for each in files]
    several = sorted({name for name in known if known.count(name) > 1})
    differ = [Text(w("training.files_differ", name=f"data.{name}")) for name in several]
    return [Heading(w("training.files")), table, *differ]


def _file_row(found: DataFile, w: Words) -> list[str]:
    groups = found.groups
    shares = []
    for each in ("queries", "candidates"):
        count, total = groups.get(f"positive_{each}"), groups.get(each)
        share = f"{count / total:.1%}" if count is not None and total else ""
        shown = w("training.share", count=count, total=total, share=share) if share else "–"
        shares.append(shown)
    mean = f"{groups['mean_reward']:.4f}" if "mean_reward" in groups else "–"
    first = [f"data.{found.name}", f"sha256:{found.contents[:8]}", number(found.rows), mean]
    return [*first, *shares, w.listing.join(found.runs)]
