"""Answers `assay matrix`: pivots a sweep file or a set of runs as the user wants it.

Options missing on the command line come from the sweep file; for a set of runs the rows must be
named.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.data.hashing import canonical_json, sha256_text
from assay.data.toml_text import load_toml
from assay.errors import InputError, finding, nearest
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.overrides import parse_override
from assay.lab.sweep.build import build
from assay.lab.sweep.model import (
    Baseline,
    Cell,
    Layout,
    Matrix,
    Question,
    Recommendation,
    origins_of,
)
from assay.lab.sweep.planned_runs import plan
from assay.lab.sweep.read_sweep import POINT, BaselineSpec, SweepFile, leaves, read_sweep
from assay.lab.sweep.units import (
    Slot,
    damaged_of,
    slots_of_runs,
    slots_of_sweep,
    units_of,
)
from assay.runs.history import evaluation_records
from assay.runs.run_names import (
    Chosen,
    Winner,
    checkpoint_directory,
    find_run,
    read_run_name,
    read_winner,
    write_winner,
)
from assay.runs.status import stored_status


@dataclass(frozen=True, slots=True)
class Settled:
    """The winner of a sweep, or why there is none yet."""

    winner: Winner | None
    line: str
    """"" where nothing selects."""
    note: str = ""
    """That it took the place of another winner, or kept its own, in one line."""


def settle(root: Path, matrix: Matrix) -> Settled:
    """Record the winner of a sweep's whole matrix, unless points are missing.

    Raises DamagedFile for a record of a winner that cannot be read.
    """
    advice = matrix.recommendation
    if advice.missing:
        count = "1 point is" if advice.missing == 1 else f"{advice.missing} points are"
        return Settled(None, f"no winner yet: {count} missing of {advice.points}")
    if advice.winner is None:
        return Settled(None, "" if advice.reason == "no_select" else "no winner was chosen")
    now, before, note = _winner_from(matrix, advice.winner), read_winner(root, matrix.name), ""
    if before is not None and before.runs == now.runs:
        # The same choice keeps its time; what is known of it may have grown.
        now = replace(now, chosen=before.chosen, earlier=before.earlier)
    elif before is not None and _is_as_good(matrix, before):
        note = f"the winner stays {_named(before)}: no other scored higher"
        now = before
    elif before is not None:
        replaced = {"runs": asdict(before)["runs"], "points": before.points}
        now = replace(now, earlier=[*before.earlier, {**replaced, "chosen": before.chosen}])
        note = f"{_named(now)} is the winner in place of {_named(before)}"
        note += f", the best of {before.points}"
    if now != before:
        write_winner(root, now)
    return Settled(now, f"winner: {_named(now)}, the best of {now.points} on dev", note)


def _winner_from(matrix: Matrix, cell: Cell) -> Winner:
    """The record of a winning cell with its evidence."""
    origins = {stored_status(o.run.path).seed: o for o in origins_of(cell.parts[0])}
    return Winner(
        sweep=matrix.name,
        runs={str(s): Chosen(str(o.run), o.checkpoint) for s, o in sorted(origins.items())},
        setting=matrix.layout.values(cell.place),
        points=len(matrix.recommendation.dev_scores),
        rule=_rule(matrix.recommendation),
        evidence=_evidence(matrix, cell),
        chosen=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _rule(advice: Recommendation) -> str:
    """The rule that ranked the points, in a sentence."""
    if advice.ratios_to:
        pairs = ", ".join(f"{name} {value:g}" for name, value in advice.ratios_to.items())
        return f"the highest harmonic mean of ratios to {pairs} on dev items, the first of equals"
    return f"the highest score on {', '.join(advice.select)}, the first of equals"


def _evidence(matrix: Matrix, cell: Cell) -> dict[str, Any]:
    """The figures behind a choice: on dev with its optimism, and on items that did not choose."""
    advice = matrix.recommendation
    assert advice.choice is not None
    test = advice.choice.comparison
    return {
        "dev": {part: score.mean for part, score in zip(advice.select, advice.dev, strict=True)},
        "dev_score": advice.dev_scores[cell.place],
        "optimism": advice.choice.optimism,
        "looks": advice.choice.looks,
        "beats_baseline": advice.choice.chosen,
        "adjusted_p": test.adjusted_p if test else None,
        "undecided_against": [rival.name for rival in advice.rivals],
        "on": list(matrix.on),
        "score": cell.score,
        "interval": asdict(cell.interval) if cell.interval else None,
    }


def _is_as_good(matrix: Matrix, before: Winner) -> bool:
    """Whether the recorded winner is a point of the matrix that none scored higher than."""
    scores = matrix.recommendation.dev_scores
    for place, score in scores.items():
        runs = {str(o.run): o.checkpoint for o in origins_of(matrix.cells[place].parts[0])}
        if runs == {each.run: each.checkpoint for each in before.runs.values()}:
            return score >= max(scores.values())
    return False


def _named(winner: Winner) -> str:
    chosen = next(iter(winner.runs.values()))
    return f"{chosen.run}@{chosen.checkpoint}"


SPARSE = 4
"""A table of axes with more places than this for each point is a list of points instead."""


@dataclass(frozen=True, slots=True)
class Request:
    """Options of the command line; None and empty leave them to the sweep file."""

    rows: str | None = None
    columns: str | None = None
    layers: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    checkpoint: str | None = None
    baseline: str | None = None
    """`base`, KEY=VALUE, or NAME[@CHECKPOINT]."""
    select: str | None = None
    allow: tuple[str, ...] = ()


def make_matrix(root: Path, what: Sequence[str], request: Request) -> Matrix:
    """The matrix of one sweep file or of runs by name or pattern.

    Raises InputError for what does not exist or does not fit together.
    """
    checkpoint = request.checkpoint
    if checkpoint is not None and parse_checkpoint(checkpoint) is None:
        fix = "write base, STAGE.best, STAGE.last, STAGE.step-N or STAGE.all"
        raise InputError(f"{checkpoint!r} is not a checkpoint", field="--checkpoint", fix=fix)
    files = [text for text in what if text.endswith(".toml")]
    if files and len(what) > 1:
        raise InputError(f"{files[0]} and something else", fix="one sweep file, or runs")
    if files:
        return _of_sweep(root, read_sweep(Path(files[0])), request)
    return _of_runs(root, what, request)


def winner_of_file(root: Path, file: Path) -> Settled:
    """`settle` for a sweep file, whose figures may not be comparable: then the line says so."""
    try:
        return settle(root, make_matrix(root, [str(file)], Request()))
    except InputError as error:
        return Settled(None, f"no winner: {error}")


def settle_named(
    root: Path, what: Sequence[str], request: Request, matrix: Matrix
) -> Settled | None:
    """`settle` for the matrix of a sweep file as it is written; None for anything else, which is no
    search or has another rule."""
    other = (request.on, request.checkpoint, request.baseline, request.select, request.allow)
    if len(what) != 1 or not what[0].endswith(".toml") or any(other):
        return None
    return settle(root, matrix)


def _of_runs(root: Path, names: Sequence[str], request: Request) -> Matrix:
    if request.rows is None:
        fix = "such as --rows stage.sft.batch --columns step"
        raise InputError("a set of runs needs an axis", field="--rows", fix=fix)
    layout = Layout(request.rows, request.columns, request.layers)
    slots = slots_of_runs(root, names, by_seed="seed" in layout.keys)
    baseline = _baseline(root, request.baseline)
    ask = Question(
        name="runs-" + sha256_text(canonical_json([list(names), layout.keys]))[:8],
        about=" ".join(names),
        layout=layout,
        on=request.on,
        checkpoint=request.checkpoint,
        controls={"baseline": baseline} if baseline else {},
        select=(request.select,) if request.select else (),
        declared=layout.keys,
        allow=request.allow,
        notes=damaged_of(root, slots, names),
    )

    return _build(slots, ask)


def _of_sweep(root: Path, file: SweepFile, request: Request) -> Matrix:
    sweep, axis = file.sweep, file.checkpoint_axis
    slots, others = slots_of_sweep(root, plan(file))
    select = (request.select,) if request.select else sweep.selecting
    layout = sweep_layout(file, request)
    baseline = _baseline(root, request.baseline)
    if baseline is None and sweep.baseline is not None:
        baseline = _of_spec(root, sweep.baseline)
    controls = {name: _of_spec(root, spec) for name, spec in sweep.controls.items()}
    sets = [key for arm in sweep.arms.values() for key, _, _ in leaves(arm.set)]
    ask = Question(
        name=sweep.name,
        about=sweep.about,
        layout=layout,
        on=request.on or sweep.on,
        checkpoint=request.checkpoint or sweep.checkpoint,
        ratios_to={} if request.on else sweep.ratios_of(sweep.on),
        controls={**({"baseline": baseline} if baseline else {}), **controls},
        select=select,
        declared=(*layout.keys, *(each.key for each in file.axes), *sets),
        allow=request.allow,
        select_ratios=sweep.ratios_of(select) if select else {},
        listed=(axis.key, axis.values) if axis else None,
        sweep=True,
        chosen_points=file.chosen_points,
        notes=(
            *(finding("made_otherwise", "warning", name=run) for run in others),
            *damaged_of(root, slots, ()),
        ),
    )
    if request.on:
        slots = [Slot(s.name, s.coordinates, s.runs, s.seeds) for s in slots]

    return _build(slots, ask)


def sweep_layout(file: SweepFile, request: Request) -> Layout:
    """Rows and columns as on the command line, else as in the file, else the first axes; layers:
    the rest. A search of few points among many combinations is a list of points."""
    keys = [axis.key for axis in file.axes]
    rows, columns = (request.rows or file.sweep.rows), (request.columns or file.sweep.columns)
    places = math.prod(len(axis.values) for axis in file.axes if axis.makes_runs)
    sparse = file.chosen_points and places > SPARSE * len(file.points)
    if rows == POINT or (rows is None and sparse):
        rows, keys = POINT, [axis.key for axis in file.axes if not axis.makes_runs]
    rows = rows or keys[0]
    rest = [key for key in keys if key != rows]
    columns = columns or (rest[0] if rest else None)
    layers = request.layers or tuple(key for key in rest if key != columns)
    return Layout(rows, columns, layers)


def _build(slots: Sequence[Slot], ask: Question) -> Matrix:
    units = [unit for slot in slots for unit in units_of(slot, ask)]
    if ask.on and {unit.state for unit in units} == {"not measured"}:
        on, runs = ", ".join(ask.on), {run for unit in units for run in unit.runs}
        records = (record for run in runs for record in evaluation_records(run))
        known = sorted({record.name for record in records if record.role == "report"})
        fix = nearest(on, known) if known else "the runs have no reporting evaluation"
        raise InputError(f"no run was measured on {on!r}", field="--on", fix=fix)
    return build(units, ask)


def _baseline(root: Path, text: str | None) -> Baseline | None:
    """`base` is the base of each cell's own run; KEY=VALUE another cell; else a run's name."""
    if text is None:
        return None
    if "=" in text:
        override = parse_override(text)
        try:
            value = load_toml(f"value = {override.value}")["value"]
        except InputError:
            value = override.value
        return Baseline(where={text.partition("=")[0].strip(): value})
    if text == "base" or parse_checkpoint(text) is not None:
        return Baseline(checkpoint=text)
    return _baseline_run(root, text)


def _of_spec(root: Path, spec: BaselineSpec) -> Baseline:
    if spec.run:
        return _baseline_run(root, spec.run)
    where = {key: value for key, value, _ in leaves(spec.where)}
    return Baseline(where=where or None, checkpoint=spec.checkpoint)


def _baseline_run(root: Path, text: str) -> Baseline:
    """NAME[@CHECKPOINT] as a baseline. Raises RunNotFound and InputError."""
    reference = read_run_name(root, text)
    run = find_run(root, reference)
    if reference.checkpoint is None:
        return Baseline(run=run)
    if reference.checkpoint.stage is None:
        return Baseline(run=run, checkpoint="base")
    folder = checkpoint_directory(run, reference.checkpoint)
    return Baseline(run=run, checkpoint=f"{reference.checkpoint.stage}.{folder.name}")
