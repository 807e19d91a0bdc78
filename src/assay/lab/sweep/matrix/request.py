"""Answers `assay matrix`: pivots a sweep file or a set of runs as the user asked.

Options missing on the command line come from the sweep file; for a set of runs the rows must be
named. `build` makes the matrix.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from assay.data.hashing import canonical_json, sha256_text
from assay.data.toml_text import TomlInvalid, load_toml
from assay.errors import InputError, nearest
from assay.experiment.checkpoint_reference import parse_checkpoint
from assay.experiment.overrides import parse_override
from assay.lab.sweep.matrix.build import Question, build
from assay.lab.sweep.matrix.coordinates import CHECKPOINT_KEYS
from assay.lab.sweep.matrix.filling import fill_command, resume_command, with_commands
from assay.lab.sweep.matrix.judged_cells import Baseline, baseline_run
from assay.lab.sweep.matrix.model import Layout, Matrix, Note, Unit
from assay.lab.sweep.matrix.units import (
    Ask,
    Slot,
    damaged_of,
    slots_of_runs,
    slots_of_sweep,
    units_of,
)
from assay.lab.sweep.planned_runs import plan
from assay.lab.sweep.read_sweep import POINT, SweepFile, leaves, read_sweep
from assay.lab.sweep.sweep_tables import BaselineSpec
from assay.runs.history import evaluation_records


class BadRequest(InputError):
    """A matrix that cannot be made of what was asked."""


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
    _check_checkpoint(request.checkpoint)
    files = [text for text in what if text.endswith(".toml")]
    if files and len(what) > 1:
        raise BadRequest(f"{files[0]} and something else", fix="one sweep file, or runs")
    if files:
        return _of_sweep(root, read_sweep(Path(files[0])), request)
    return _of_runs(root, what, request)


def _check_checkpoint(text: str | None) -> None:
    if text is not None and parse_checkpoint(text) is None:
        fix = "write base, STAGE.best, STAGE.last, STAGE.step-N or STAGE.all"
        raise BadRequest(f"{text!r} is not a checkpoint", field="--checkpoint", fix=fix)


def _of_runs(root: Path, names: Sequence[str], request: Request) -> Matrix:
    if request.rows is None:
        fix = "such as --rows stage.sft.batch --columns step"
        raise BadRequest("a set of runs needs an axis", field="--rows", fix=fix)
    layout = Layout(request.rows, request.columns, request.layers)
    slots = slots_of_runs(root, names, by_seed="seed" in layout.keys)
    name = "runs-" + sha256_text(canonical_json([list(names), layout.keys]))[:8]
    ask = Question(
        name=name,
        about=" ".join(names),
        on=request.on,
        ratios_to={},
        controls=_named(_baseline(root, request.baseline)),
        select=(request.select,) if request.select else (),
        declared=layout.keys,
        allow=request.allow,
        notes=_damaged(root, slots, names),
    )
    return with_commands(
        _build(slots, layout, ask, request.checkpoint), partial(resume_command, root)
    )


def _of_sweep(root: Path, found: SweepFile, request: Request) -> Matrix:
    sweep = found.sweep
    slots, others = slots_of_sweep(root, plan(found))
    axis, select = found.checkpoint_axis, sweep.selecting
    if request.select:
        select = (request.select,)
    layout = sweep_layout(found, request)
    baseline = _baseline(root, request.baseline)
    if baseline is None and sweep.baseline is not None:
        baseline = _of_spec(root, sweep.baseline)
    controls = {name: _of_spec(root, spec) for name, spec in sweep.controls.items()}
    ask = Question(
        name=sweep.name,
        about=sweep.about,
        on=request.on or sweep.on,
        ratios_to={} if request.on else sweep.ratios_of(sweep.on),
        controls={**_named(baseline), **controls},
        select=select,
        declared=(*layout.keys, *declared_by(found)),
        allow=request.allow,
        select_ratios=sweep.ratios_of(select) if select else {},
        listed={axis.key: axis.values} if axis else {},
        sweep=True,
        chosen_points=found.chosen_points,
        notes=(*(Note("made_otherwise", run) for run in others), *_damaged(root, slots, ())),
    )
    if request.on:
        slots = [Slot(s.name, s.coordinates, s.runs, s.seeds) for s in slots]
    made = _build(slots, layout, ask, request.checkpoint or sweep.checkpoint)
    return with_commands(made, partial(fill_command, root, found.file))


def _damaged(root: Path, slots: Sequence[Slot], names: Sequence[str]) -> tuple[Note, ...]:
    found = damaged_of(root, slots, names)
    return tuple(Note("damaged_run", f"{each.run} ({each.why})") for each in found)


def declared_by(found: SweepFile) -> list[str]:
    """The keys in which the cells of a sweep differ on purpose."""
    sets = [key for arm in found.sweep.arms.values() for key, _, _ in leaves(arm.set)]
    return [*(axis.key for axis in found.axes), *sets]


SPARSE = 4
"""A table of axes with more places than this for each point is a list of points instead."""


def sweep_layout(found: SweepFile, request: Request) -> Layout:
    """Rows and columns as asked, else as the file says, else the first axes; layers: the rest."""
    keys = [axis.key for axis in found.axes]
    rows, columns = (request.rows or found.sweep.rows), (request.columns or found.sweep.columns)
    if rows is None and _sparse(found):
        keys = [POINT, *(axis.key for axis in found.axes if not axis.makes_runs)]
    elif rows == POINT:
        keys = [axis.key for axis in found.axes if not axis.makes_runs]
    rows = rows or keys[0]
    rest = [key for key in keys if key != rows]
    columns = columns or (rest[0] if rest else None)
    layers = request.layers or tuple(key for key in rest if key != columns)
    return Layout(rows, columns, layers)


def _sparse(found: SweepFile) -> bool:
    """Whether the points of a search are few among the combinations of their values."""
    places = math.prod(len(axis.values) for axis in found.axes if axis.makes_runs)
    return found.chosen_points and places > SPARSE * len(found.points)


def _build(slots: Sequence[Slot], layout: Layout, ask: Question, checkpoint: str | None) -> Matrix:
    by_record = any(key.startswith("evaluation.") for key in layout.keys)
    wanted = Ask(
        on=ask.on or (("*",) if by_record else ()),
        together=bool(ask.ratios_to),
        checkpoint=checkpoint,
        by_checkpoint=any(key in CHECKPOINT_KEYS for key in layout.keys),
        listed=next(iter(ask.listed.items()), None),
    )
    units = [unit for slot in slots for unit in units_of(slot, wanted)]
    _check_on(units, ask)
    return build(units, layout, ask)


def _check_on(units: Sequence[Unit], ask: Question) -> None:
    """Some run has the evaluation that was asked for, or none was asked for."""
    if not ask.on or {unit.state for unit in units} != {"not measured"}:
        return
    runs = {run for unit in units for run in unit.runs}
    known = sorted({r.name for run in runs for r in evaluation_records(run) if r.role == "report"})
    text = ", ".join(ask.on)
    fix = nearest(text, known) if known else "the runs have no reporting evaluation"
    raise BadRequest(f"no run was measured on {text!r}", field="--on", fix=fix)


def _baseline(root: Path, text: str | None) -> Baseline | None:
    """`base` is the base of each cell's own run; KEY=VALUE another cell; else a run's name."""
    if text is None:
        return None
    if "=" in text:
        key, _, _ = text.partition("=")
        return Baseline(where={key.strip(): _typed(text)})
    if text == "base" or parse_checkpoint(text) is not None:
        return Baseline(checkpoint=text)
    return baseline_run(root, text)


def _of_spec(root: Path, spec: BaselineSpec) -> Baseline:
    where = {key: value for key, value, _ in leaves(spec.where)}
    run = baseline_run(root, spec.run) if spec.run else None
    return run or Baseline(where=where or None, checkpoint=spec.checkpoint)


def _named(baseline: Baseline | None) -> dict[str, Baseline]:
    """The baseline among the controls, which have names of their own."""
    return {} if baseline is None else {"baseline": baseline}


def _typed(text: str) -> object:
    """The value of KEY=VALUE: TOML where it is, else text."""
    override = parse_override(text)
    try:
        return load_toml(f"value = {override.value}")["value"]
    except TomlInvalid:
        return override.value
