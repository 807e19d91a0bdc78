"""Prepares the data sets of an experiment: reads, removes test items, measures lengths, splits.

Every omitted row is counted by its reason. Truncates and trains nothing.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from assay.data.csv_files import CsvOptions
from assay.data.files import atomic_write_text
from assay.data.formats.formats import MOST_BAD, FileLayout, items_of, shaped
from assay.data.hub_rows import HubSet, hub_records
from assay.data.json_files import line_count
from assay.data.leakage import separate
from assay.data.loaded import UNREADABLE, Item, LeftOut, Loaded, gather, spread
from assay.data.renderings.hermes import without_end, without_reasoning
from assay.data.renderings.packed_rows import packed, read_once
from assay.data.row import Row
from assay.data.row_checks import FieldCondition, sorted_places, where, without_duplicates
from assay.data.splits import (
    Fixed,
    Mixture,
    MixturePart,
    RowOrder,
    Shuffled,
    conversation_of,
    epoch_shares,
    split_by_conversation,
    take,
    within_tokens,
)
from assay.errors import InputError, within
from assay.experiment.base_table import RenderingSettings
from assay.experiment.data_tables import DataSpec, Hub, OrderBy, Recorded, Split
from assay.experiment.experiment import Experiment, mixed
from assay.experiment.tables import EvaluateSpec
from assay.lab.data.run_rows import (
    FEWER,
    Records,
    TakenSelection,
    check_unchanged,
    chosen_rows,
    records_of,
    refuse_leaked,
    run_rows,
    with_examples,
    with_pass_rates,
)
from assay.lab.models.learner import Encoder, each_encoded, gold_turns, question
from assay.lab.monitor.observer import Observer
from assay.runs.history import read_description
from assay.runs.run_names import experiment_of
from assay.tasks.task import BenchmarkOptions, Task, benchmark, made_source, read_source
from assay.tasks.task import task as make_task

QUIET = Observer()
TOO_LONG = "prompt longer than max_prompt_tokens"
LONGER = "conversation longer than max_tokens"
SHORTER = "conversation shorter than min_tokens"
EXAMPLES = "examples"
"""The benchmark option that adds worked examples to an item."""


Dropped = dict[str, tuple[str, ...]]
"""Ids of rows that were left out, by reason."""


def by_length(
    rows: Sequence[Row], spec: DataSpec, task: Task, encoder: Encoder, observer: Observer = QUIET
) -> tuple[tuple[Row, ...], Dropped]:
    """The rows within the limits of a data set's table, and the others. Raises RenderingError."""
    kept, dropped = tuple(rows), {}
    if spec.max_prompt_tokens is not None:
        sizes = partial(prompt_tokens, encoder, task)
        lengths = [*each_encoded(encoder, kept, sizes, observer)]
        kept, dropped[TOO_LONG] = within_tokens(kept, lengths, most=spec.max_prompt_tokens)
    if spec.min_tokens is not None or spec.max_tokens is not None:
        sizes = partial(conversation_tokens, encoder, task)
        each = each_encoded(encoder, kept, sizes, observer)
        tokens = {row.id: size for row, size in zip(kept, each, strict=True)}
        for reason, limits in (
            (LONGER, (None, spec.max_tokens)),
            (SHORTER, (spec.min_tokens, None)),
        ):
            kept, dropped[reason] = within_tokens(kept, [tokens[row.id] for row in kept], *limits)
    return kept, {reason: ids for reason, ids in dropped.items() if ids}


def prompt_tokens(encoder: Encoder, task: Task, row: Row) -> int:
    """Tokens of a row's prompt. Raises RenderingError."""
    return encoder.size(encoder.prompt(row, question(task, row)))


def conversation_tokens(encoder: Encoder, task: Task, row: Row) -> int:
    """Tokens that training sees of a row with its answer, the end of that turn included; those of
    its prompt where it has no answer. Raises RenderingError."""
    try:
        task.target(row)
    except InputError:
        return prompt_tokens(encoder, task, row)
    (turn,) = gold_turns(encoder, task, row)
    return encoder.size(turn.context) + len(turn.actions)


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
    order: RowOrder | None = None
    """Order in which a stage visits the training part; None: shuffled anew each epoch."""
    chosen: TakenSelection | None = None
    """The selection that the training part is; None without one."""
    test: tuple[Row, ...] = ()

    def part(self, name: str) -> tuple[Row, ...]:
        """The rows that `NAME`, `NAME.dev` or `NAME.test` means."""
        parts = {f"{self.name}.dev": self.dev, f"{self.name}.test": self.test}
        return parts.get(name, self.train)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Those of all parts."""
        return (*self.train, *self.dev, *self.test)


READS = {"format", "csv", "columns", "nulls", "reasoning", "cut_end", "template_options", "expand"}
READS |= {"undeclared_calls"}
"""The keys of a table that say how its file is read; those of RECORDED read runs too."""
RECORDED = ("samples", "pass_rate", "examples")


def load_rows(spec: DataSpec, task: Task, root: Path, observer: Observer = QUIET) -> Loaded:
    """All rows of a source as its table expands them, and what it had that cannot be used. Relative
    files lie in `root`; of a large one, see `read_once`."""
    kind, _, rest = (spec.source or "").partition(":")
    reader = partial(_load_rows, spec, task, root, observer)
    if kind != "path" or any(getattr(spec, key) is not None for key in RECORDED):
        return reader()
    return read_once(root / rest, [spec.model_dump(mode="json", include=READS)], reader)


def _load_rows(spec: DataSpec, task: Task, root: Path, observer: Observer) -> Loaded:
    kind, _, rest = (spec.source or "").partition(":")
    csv = spec.csv and CsvOptions(**spec.csv.model_dump())
    layout = FileLayout(csv, spec.columns or {}, spec.nulls)
    recorded: dict[str, tuple[Records, Mapping[str, Row]]] = {}
    for key in RECORDED:
        if (table := getattr(spec, key)) is not None:
            run, tokens = getattr(table, "run", rest), getattr(table, "each", "") == "group"
            records = records_of(root, run, table, tokens=tokens)
            recorded[key] = records, asked_rows(records, table, root)
    items: Iterable[Item]
    if kind in ("path", "hf"):
        lines = hub_records(hub_set(spec), root) if kind == "hf" else None
        place = root / rest if lines is None else spec.source or ""
        items = items_of(lines, spec.format or "", layout, place, MOST_BAD)
        total = line_count(root / rest) if rest.endswith(".jsonl") else 0
        items = without_duplicates(watched(items, total, observer))
    elif kind == "run":
        assert spec.samples is not None
        items = spread(run_rows(*recorded["samples"], spec.samples.each))
    else:
        options = None if spec.options is None else BenchmarkOptions(spec.options, root)
        items = spread(read_source(task, kind, rest, options or BenchmarkOptions({}, root)))
    if spec.reasoning == "drop":
        items = without_reasoning(items)
    if spec.cut_end is not None:
        items = without_end(items, spec.cut_end)
    if spec.template_options is not None:
        items = with_template_options(items, spec.template_options)
    items = shaped(items, spec.expand, spec.undeclared_calls == "keep")
    loaded = gather(packed(item) if isinstance(item, Row) else item for item in items)
    if spec.pass_rate is not None:
        rows = with_pass_rates(loaded.rows, spec.pass_rate, *recorded["pass_rate"])
        loaded = replace(loaded, rows=rows)
    if spec.examples is not None:
        rows, fewer = with_examples(loaded.rows, spec.examples, *recorded["examples"])
        remarks = {**loaded.remarks, **({FEWER: fewer} if fewer else {})}
        loaded = replace(loaded, rows=rows, remarks=remarks)
    return loaded


READING = "rows read"


def watched(items: Iterable[Item], total: int, observer: Observer) -> Iterator[Item]:
    """The items; the observer is told how many of a `total`, 0 where it is not known, there are so
    far, and at once of the first that cannot be read."""
    done, told = 0, False
    for item in items:
        if isinstance(item, LeftOut) and item.reason == UNREADABLE and not told:
            observer.note(f"{item.origin.rpartition(':')[0]}: {item.id}")
            told = True
        done += isinstance(item, Row)
        observer.work(READING, done, total)
        yield item
    observer.work(READING, done, done)


def with_template_options(items: Iterable[Item], options: Mapping[str, Any]) -> Iterator[Item]:
    """The items with rows that give the template these options too. Raises InputError where a row
    says otherwise."""
    for item in items:
        if isinstance(item, Row):
            for name, value in item.template_options.items():
                if options.get(name, value) != value:
                    problem = f"row {item.id} says {name} = {value!r}, the table {options[name]!r}"
                    fix = "say it in one place"
                    raise InputError(
                        problem, file=item.origin or None, field="template_options", fix=fix
                    )
            item = replace(item, template_options={**options, **item.template_options})
        yield item


def rows_by_id(experiment: Experiment, name: str, root: Path) -> Mapping[str, Row]:
    """All rows of a data set, none left out; those of a mixture as it names them."""
    spec = experiment.data[name]
    if (maker := made_source(make_task(experiment.task, root), spec.source)) is not None:
        table = (spec.source or "").partition(":")[2]
        prompts = rows_by_id(experiment, asked_by(experiment, spec).partition(".")[0], root)
        rows = maker.rows(experiment, table, [*prompts.values()], root).rows
        return {row.id: row for row in rows}
    if spec.mix is None:
        rows = load_rows(spec, make_task(experiment.task, root), root).rows
        return {row.id: row for row in rows}
    parts = {part: rows_by_id(experiment, part, root) for part in spec.mix}
    named = (row for part, rows in parts.items() for row in named_rows(part, [*rows.values()]))
    return {row.id: row for row in named}


def asked_rows(records: Records, table: Recorded, root: Path) -> Mapping[str, Row]:
    """The rows or items that a run's answers are to, by id; its data must not have changed. Raises
    InputError."""
    experiment = experiment_of(records.run)
    if table.stage is not None:
        data = experiment.stage[table.stage].data.partition(".")[0]
    else:
        stored = read_description(records.files[0].with_name("evaluation.json"))
        data = stored.benchmark.partition(".")[0]
        if data not in experiment.data:
            options = BenchmarkOptions(stored.options, root)
            made = benchmark(make_task(experiment.task, root), stored.benchmark, options)
            return {item.id: item for item in made.items}
    check_unchanged(records.run, experiment, data, root)
    return rows_by_id(experiment, data, root)


def hub_set(spec: DataSpec) -> HubSet:
    """The data set that an `hf:` source means."""
    return HubSet((spec.source or "").removeprefix("hf:"), **(spec.hub or Hub()).model_dump())


def prepare(
    name: str,
    spec: DataSpec,
    task: Task,
    encoder: Encoder,
    root: Path,
    evaluations: Mapping[str, EvaluateSpec] = MappingProxyType({}),
    stored: Loaded | None = None,
    observer: Observer = QUIET,
) -> DataSet:
    """Read one data set that is no mixture and apply its table: turns, conditions, benchmarks (with
    the options of `evaluations`), lengths, take, split, in order. Rows with `stored` selections are
    given.

    Subsets and splits are the same for every training seed, so that seeds can be compared.

    Raises InputError where no row remains, and what reading and splitting raise.
    """
    loaded = stored or load_rows(spec, task, root, observer)
    conditions = [FieldCondition(**condition.model_dump()) for condition in spec.where or ()]
    rows, missed = where(loaded.rows, conditions)
    dropped = {**loaded.dropped, **missed}
    for test in spec.disjoint_from:
        tested = tested_items(test, task, root, evaluations)
        of_test = [each for each in evaluations.values() if each.benchmark == test]
        declared = any(each.same_prompt for each in of_test)
        apart = separate(rows, tested, lambda row: task.dialogue(row) is not None, declared)
        rows = apart.rows
        refuse_leaked(rows, tested, test)
        for reason, ids in apart.dropped.items():
            dropped[f"{reason} ({test})"] = ids
    rows, others = by_length(rows, spec, task, encoder, observer)
    dropped |= others
    reasons = ", ".join(f"{reason}: {len(ids)}" for reason, ids in dropped.items())
    if not rows:
        raise InputError("no row is left", field=f"data.{name}", fix=reasons)
    if spec.take is not None and spec.take.rows is not None:
        rows = take(rows, spec.take.rows, spec.take.how)
    try:
        train, dev, test = held_out(rows, spec.split) if spec.split else (rows, (), ())
    except InputError as error:
        problem = "; left out before: ".join(filter(None, (error.problem, reasons)))
        raise InputError(problem, field=error.field, fix=error.fix) from None
    chosen = None
    if spec.take is not None and spec.take.selection is not None:
        # After the split: two runs of which one takes a selection have the same dev part.
        chosen, train = chosen_rows(root, spec.take.selection, loaded.rows, train)
        if not train:
            fix = "its rows were left out before, or are in the dev part"
            problem = f"no row of {chosen.file} is left"
            raise InputError(problem, field="take.selection", fix=fix)
    total = len(loaded.rows) + sum(map(len, loaded.dropped.values()))
    order = Fixed(tuple(range(len(train)))) if spec.order == "given" else None
    if isinstance(spec.order, OrderBy):
        order = Fixed(sorted_places(train, spec.order.by, spec.order.descending))
    return DataSet(name, train, dev, dropped, total, loaded.remarks, order, chosen, test)


def held_out(
    rows: Sequence[Row], spec: Split
) -> tuple[tuple[Row, ...], tuple[Row, ...], tuple[Row, ...]]:
    """The training, dev and test parts; shares are of all conversations. Raises InputError."""
    train, dev, test = tuple(rows), (), ()
    if spec.dev is not None:
        train, dev = split_by_conversation(rows, spec.dev)
    if spec.test is not None:
        size = spec.test
        if isinstance(size, float):
            size *= len({*map(conversation_of, rows)}) / len({*map(conversation_of, train)})
        train, test = split_by_conversation(train, size, side="test")
    return train, dev, test


def tested_items(
    test: str, task: Task, root: Path, evaluations: Mapping[str, EvaluateSpec]
) -> list[Row]:
    """The items of a benchmark without worked examples, by the options of every evaluation that
    asks it, else by its default ones. Raises InputError where those do not say where it lies."""
    items: list[Row] = []
    tables = {name: each.options for name, each in evaluations.items() if each.benchmark == test}
    for name, options in tables.items():
        bare = {k: v for k, v in options.items() if k != EXAMPLES}
        with within(f"evaluate.{name}"):
            items += benchmark(task, test, BenchmarkOptions(bare, root)).items
    try:
        return items if tables else [*benchmark(task, test, BenchmarkOptions({}, root)).items]
    except InputError as error:
        if error.field != "options":
            raise
        fix = f"add an [evaluate.NAME] table that asks {test}: its options say where it lies"
        raise InputError(error.problem, field="disjoint_from", fix=fix) from error


def prepare_set(
    experiment: Experiment,
    name: str,
    task: Task,
    encoders: Callable[[RenderingSettings], Encoder],
    root: Path,
    made: dict[str, DataSet] | None = None,
    observer: Observer = QUIET,
) -> DataSet:
    """The data set `name` of an experiment, prepared or mixed; sets in `made` are not made again.
    `encoders` gives the encoder of a rendering. Raises what `prepare` and `epoch_shares` raise."""
    made = {} if made is None else made
    spec, context = experiment.data[name], (task, encoders, root, made, observer)
    if name not in made and spec.mix is None:
        encoder = encoders(rendering_of(experiment, name))
        stored = None
        if (maker := made_source(task, spec.source)) is not None:
            prompt_set, table = asked_by(experiment, spec), (spec.source or "").partition(":")[2]
            prepare_set(experiment, prompt_set.partition(".")[0], *context)
            with within((spec.source or "").replace(":", ".")):
                stored = maker.rows(experiment, table, find_part(made, prompt_set), root)
        with within(f"data.{name}"):
            tables = experiment.evaluate
            made[name] = prepare(name, spec, task, encoder, root, tables, stored, observer)
            refuse_reported(experiment, made[name])
    elif name not in made:
        parts = {part: prepare_set(experiment, part, *context) for part in sorted(spec.mix or ())}
        with within(f"data.{name}"):
            made[name] = mixture(name, spec, parts)
    return made[name]


def asked_by(experiment: Experiment, spec: DataSpec) -> str:
    """The data set, or part of one, whose rows a made source extends."""
    scheme, _, table = (spec.source or "").partition(":")
    return getattr(experiment, scheme)[table].data


def refuse_reported(experiment: Experiment, made: DataSet) -> None:
    """Raise InputError where a stage trains on rows that a reporting evaluation chose."""
    if made.chosen is None or made.chosen.selection.recorded.get("role") != "report":
        return
    for name, stage in experiment.stage.items():
        if made.name in mixed(experiment, stage.data):
            recorded = made.chosen.selection.recorded
            problem = f"stage.{name} would train on rows that {recorded['evaluation']!r} chose, an "
            problem += f"evaluation of {made.chosen.selection.run} that reports"
            fix = "select by a stage, or by an evaluation with role select"
            raise InputError(problem, field="take.selection", fix=fix)


def mixture(name: str, spec: DataSpec, parts: Mapping[str, DataSet]) -> DataSet:
    """The rows of several sets as one, each with the name of its set before its id. Raises
    InputError where the weights and sizes give no epoch."""
    weights = dict(spec.mix or {})
    orders = {part: made.order or Shuffled(len(made.train)) for part, made in parts.items()}
    try:
        sizes = {part: order.count for part, order in orders.items()}
        shares = epoch_shares(weights, sizes, spec.epoch_rows)
    except InputError as error:
        place = f"data.{name}.{error.field}"
        raise InputError(error.problem, field=place, fix=error.fix) from error
    train: list[Row] = []
    laid = []
    for part, made in parts.items():
        laid.append(MixturePart(part, shares[part], len(train), orders[part]))
        train += named_rows(part, made.train)
    dev = tuple(row for part, made in parts.items() for row in named_rows(part, made.dev))
    test = tuple(row for part, made in parts.items() for row in named_rows(part, made.test))
    ranks = None
    if isinstance(spec.order, OrderBy):
        places = sorted_places(train, spec.order.by, spec.order.descending)
        ranks = tuple(sorted(range(len(train)), key=places.__getitem__))
    order = Mixture(tuple(laid), ranks)
    # What its sets left out is counted there.
    total = len(train) + len(dev) + len(test)
    return DataSet(name, tuple(train), dev, {}, total, order=order, test=test)


def named_rows(part: str, rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows of a set as a mixture has them: two sets may use one id for different rows."""
    return tuple(
        packed(
            replace(
                row,
                id=f"{part}/{row.id}",
                conversation=f"{part}/{row.conversation}" if row.conversation else "",
            )
        )
        for row in rows
    )


def describe(made: DataSet, spec: DataSpec) -> str:
    """One line for the display: rows, omitted rows, overlap that was removed."""
    parts = [f"data {made.name}: {len(made.rows)} of {made.total} rows"]
    if made.dev or made.test:
        sides = {"train": made.train, "dev": made.dev, "test": made.test}
        parts.append(", ".join(f"{len(rows)} {side}" for side, rows in sides.items() if rows))
    parts += [f"{len(ids)} dropped: {reason}" for reason, ids in made.dropped.items()]
    if made.chosen is not None:
        count = f"{len(made.train)} of {made.chosen.total} rows"
        parts.append(f"{made.chosen.file} takes {count} ({made.chosen.selection.origin})")
    parts += [f"{len(ids)} kept: {words}" for words, ids in made.remarks.items()]
    if isinstance(made.order, Mixture):
        shares = ", ".join(f"{part.share} of {part.name}" for part in made.order.parts)
        parts.append(f"an epoch is {made.order.count} rows: {shares}")
    return "; ".join(parts)


def rendering_of(experiment: Experiment, data: str) -> RenderingSettings:
    """How the first stage that reads a data set writes it; the default where none does."""
    reading = [
        stage
        for stage in experiment.stage.values()
        if any(data in mixed(experiment, name.partition(".")[0]) for name in stage.reads)
    ]
    return reading[0] if reading else RenderingSettings()


def find_part(sets: Mapping[str, DataSet], name: str) -> tuple[Row, ...]:
    """The rows of `NAME` or `NAME.dev`."""
    return sets[name.partition(".")[0]].part(name)


def find_order(sets: Mapping[str, DataSet], name: str) -> RowOrder:
    """The order in which a stage visits the rows of `NAME` or `NAME.dev`."""
    made = sets[name.partition(".")[0]]
    if name == made.name and made.order is not None:
        return made.order
    return Shuffled(len(made.part(name)))


MADE_OF = "made_of.json"
"""What the contents of a folder are made of."""


def note_made_of(folder: Path, made_of: Mapping[str, Any], what: str) -> None:
    """Write down what a folder's contents, `what` in words, are made of, or check it. Raises
    InputError where they were made of something else."""
    file = folder / MADE_OF
    if not file.exists():
        atomic_write_text(file, json.dumps(made_of, indent=2, ensure_ascii=False) + "\n")
        return
    before = json.loads(file.read_text(encoding="utf-8"))
    for key, value in json.loads(json.dumps(made_of)).items():
        if before.get(key) != value:
            problem = f"its {what} were made of other {key.removesuffix('_sha256')}"
            raise InputError(problem, file=folder, fix="delete the folder to make them again")
