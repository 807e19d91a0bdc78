"""Prepares the data sets of an experiment: reads, removes test items, measures lengths, splits.

Every omitted row is counted by its reason. Truncates and trains nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay.data.csv_files import CsvOptions
from assay.data.formats.formats import Layout, iter_items, shaped
from assay.data.leakage import call_path, separate
from assay.data.loaded import Loaded, gather, spread
from assay.data.renderings.hermes import without_reasoning
from assay.data.row import Row
from assay.data.splits import (
    Lengths,
    drop_long,
    drop_short,
    length_statistics,
    split_by_conversation,
    take,
)
from assay.errors import InputError
from assay.experiment.data_tables import DataSpec
from assay.experiment.experiment import Experiment
from assay.lab.setup.learner import Encoder, gold_turns, question
from assay.tasks.task import BenchmarkOptions, Task, benchmark, lookup

TOO_LONG = "prompt longer than max_prompt_tokens"
LONGER = "conversation longer than max_tokens"
SHORTER = "conversation shorter than min_tokens"


@dataclass(frozen=True, slots=True)
class Shift:
    """Tokens of whole conversations before and after rows were left out for their length."""

    before: Lengths
    after: Lengths


@dataclass(frozen=True, slots=True)
class Kept:
    """The rows that are left, and the ids of the others by reason."""

    rows: tuple[Row, ...]
    dropped: dict[str, tuple[str, ...]] = field(default_factory=dict)
    shift: Shift | None = None
    """None where whole conversations were not measured."""


def by_length(rows: Sequence[Row], spec: DataSpec, task: Task, encoder: Encoder) -> Kept:
    """The rows within the limits of a data set's table. Raises RenderingError."""
    kept, dropped = tuple(rows), {}
    if spec.max_prompt_tokens is not None:
        lengths = [encoder.size(encoder.prompt(row, question(task, row))) for row in kept]
        kept, out = drop_long(kept, lengths, spec.max_prompt_tokens)
        dropped[TOO_LONG] = tuple(d.row_id for d in out)
    shift = None
    if spec.min_tokens is not None or spec.max_tokens is not None:
        tokens = {row.id: conversation_tokens(encoder, task, row) for row in kept}
        before = kept
        limits: tuple[tuple[str, int | None, Callable], ...] = (
            (LONGER, spec.max_tokens, drop_long),
            (SHORTER, spec.min_tokens, drop_short),
        )
        for reason, limit, drop in limits:
            if limit is not None:
                kept, out = drop(kept, [tokens[row.id] for row in kept], limit)
                dropped[reason] = tuple(d.row_id for d in out)
        shift = Shift(*(length_statistics([tokens[r.id] for r in side]) for side in (before, kept)))
    return Kept(kept, {reason: ids for reason, ids in dropped.items() if ids}, shift)


def conversation_tokens(encoder: Encoder, task: Task, row: Row) -> int:
    """Tokens that training sees of a row with its answer, the end of that turn included; those of
    its prompt where it has no answer. Raises RenderingError.
    """
    try:
        task.target(row)
    except InputError:
        return encoder.size(encoder.prompt(row, question(task, row)))
    (turn,) = gold_turns(encoder, task, row)
    return encoder.size(turn.context) + len(turn.actions)


class NothingLeft(InputError):
    """Every row of a data set was left out."""


@dataclass(frozen=True)
class DataSet:
    """The rows of one `[data.NAME]` table."""

    name: str
    train: tuple[Row, ...]
    dev: tuple[Row, ...]
    dropped: Mapping[str, tuple[str, ...]]
    """Reason to the ids of the rows that were left out for it."""
    total: int
    """Rows of the source before anything was left out; a conversation that became none is one."""
    remarks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Remarks on rows that are kept -> their ids."""
    shift: Shift | None = None
    """Effect of `min_tokens` and `max_tokens` on the lengths; None without them."""

    def part(self, name: str) -> tuple[Row, ...]:
        """The rows that `NAME` or `NAME.dev` means."""
        return self.dev if name == f"{self.name}.dev" else self.train


def load_rows(spec: DataSpec, task: Task, root: Path) -> Loaded:
    """All rows of a source as its table expands them, and what it had that cannot be used.

    Relative files lie in `root`.
    """
    kind, _, rest = spec.source.partition(":")
    if kind == "path":
        items = iter_items(root / rest, spec.format or "", layout(spec))
    else:
        items = spread(lookup(task.sources, kind, "data source")(rest))
    if spec.reasoning == "drop":
        items = without_reasoning(items)
    return gather(shaped(items, spec.expand, spec.undeclared_calls == "keep"))


def layout(spec: DataSpec) -> Layout:
    """How the table says that its source is laid out."""
    csv = spec.csv and CsvOptions(**spec.csv.model_dump())
    return Layout(csv, spec.columns or {})


def prepare(name: str, spec: DataSpec, task: Task, encoder: Encoder, root: Path) -> DataSet:
    """Read one data set and apply its table: turns, benchmarks, lengths, take, split, in order.

    Subsets and splits are the same for every training seed, so that seeds can be compared.

    Raises NothingLeft where no row remains, and what reading and splitting raise.
    """
    loaded = load_rows(spec, task, root)
    rows, dropped = loaded.rows, dict(loaded.dropped)
    for test in spec.disjoint_from:
        apart = separate(rows, benchmark(task, test, BenchmarkOptions()).items)
        rows = apart.rows
        for reason, ids in apart.dropped.items():
            dropped[f"{reason} ({test})"] = ids
    kept = by_length(rows, spec, task, encoder)
    rows = kept.rows
    dropped |= kept.dropped
    if not rows:
        reasons = ", ".join(f"{reason}: {len(ids)}" for reason, ids in dropped.items())
        raise NothingLeft("no row is left", field=f"data.{name}", fix=reasons)
    if spec.take is not None:
        rows = take(rows, spec.take.rows, spec.take.how).rows
    train, dev = rows, ()
    if spec.split is not None:
        split = split_by_conversation(rows, spec.split.dev)
        train, dev = split.train, split.dev
    total = len(loaded.rows) + sum(map(len, loaded.dropped.values()))
    return DataSet(name, train, dev, dropped, total, loaded.remarks, kept.shift)


def describe(made: DataSet, spec: DataSpec) -> str:
    """One line for the display: rows, omitted rows, overlap that was removed."""
    used = len(made.train) + len(made.dev)
    parts = [f"data {made.name}: {used} of {made.total} rows"]
    if made.dev:
        parts.append(f"{len(made.train)} to train on, {len(made.dev)} dev")
    parts += [f"{len(ids)} dropped: {reason}" for reason, ids in made.dropped.items()]
    if made.shift is not None:
        before, after = made.shift.before.mean, made.shift.after.mean
        parts.append(f"{before:,.0f} tokens on average became {after:,.0f}")
    parts += [f"{len(ids)} kept: {words}" for words, ids in made.remarks.items()]
    if spec.disjoint_from:
        tests = ", ".join(spec.disjoint_from)
        several = any(call_path(row) for row in (*made.train, *made.dev))
        what = "no path of calls" if several else "no function name"
        parts.append(f"no question and {what} in common with {tests}")
    return "; ".join(parts)


def rendering_of(experiment: Experiment, data: str) -> str:
    """The rendering of the first stage that reads a data set; `auto` where none does."""
    reading = [
        stage.rendering
        for stage in experiment.stage.values()
        if data in {name.removesuffix(".dev") for name in stage.reads}
    ]
    return reading[0] if reading else "auto"


def find_part(sets: Mapping[str, DataSet], name: str) -> tuple[Row, ...]:
    """The rows of `NAME` or `NAME.dev`."""
    return sets[name.removesuffix(".dev")].part(name)
