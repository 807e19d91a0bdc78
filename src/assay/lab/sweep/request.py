"""Answers `assay matrix`: the matrix of a sweep file, and the winner of a sweep that is whole."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.compare.fairness import Terms
from assay.errors import InputError, nearest
from assay.lab.sweep.build import build
from assay.lab.sweep.model import Baseline, Matrix, Recommendation, SweepCell, origins_of
from assay.lab.sweep.planned_runs import plan
from assay.lab.sweep.read_sweep import BaselineSpec, SweepFile, leaves, read_sweep
from assay.lab.sweep.units import runs_of_plan
from assay.runs.run_names import (
    Winner,
    WinningRun,
    checkpoint_directory,
    find_run,
    read_run_name,
    read_winner,
    write_winner,
)
from assay.runs.status import stored_status


def make_matrix(root: Path, file: Path, on: str | None = None, allow: Sequence[str] = ()) -> Matrix:
    """The matrix of a sweep file, showing the evaluation `on` in place of the file's; `allow` names
    differences that are accepted. Raises InputError for what does not exist or fit together."""
    sweep_file = read_sweep(file)
    sweep, points = sweep_file.sweep, [runs_of_plan(root, each) for each in plan(sweep_file)]
    reporting = points[0].plan.experiment.evaluate
    if on is not None and (on not in reporting or reporting[on].role != "report"):
        known = [name for name, each in reporting.items() if each.role == "report"]
        raise InputError(f"no reporting evaluation {on!r}", field="--on", fix=nearest(on, known))
    specs = {**({"baseline": sweep.baseline} if sweep.baseline else {}), **sweep.controls}
    controls = {name: _baseline(root, spec) for name, spec in specs.items()}
    sets = [key for arm in sweep.arms.values() for key, _, _ in leaves(arm.set)]
    terms = Terms(allow=tuple(allow), axes=(*(axis.key for axis in sweep_file.axes), *sets))
    return build(sweep_file, points, controls, on, terms)


def _baseline(root: Path, spec: BaselineSpec) -> Baseline:
    """What cells are compared with. Raises RunNotFound and InputError."""
    if not spec.run:
        where = {key: value for key, value, _ in leaves(spec.where)}
        return Baseline(where=where or None, checkpoint=spec.checkpoint)
    reference = read_run_name(root, spec.run)
    run = find_run(root, reference)
    if reference.checkpoint is None:
        return Baseline(run=run)
    if reference.checkpoint.stage is None:
        return Baseline(run=run, checkpoint="base")
    folder = checkpoint_directory(run, reference.checkpoint)
    return Baseline(run=run, checkpoint=f"{reference.checkpoint.stage}.{folder.name}")


@dataclass(frozen=True, slots=True)
class SweepWinner:
    """The winner of a sweep, or why there is none yet."""

    winner: Winner | None
    line: str
    """"" where nothing selects."""
    note: str = ""
    """That it took the place of another winner, in one line."""


def settle(root: Path, matrix: Matrix) -> SweepWinner:
    """Record the winner of a sweep's whole matrix, unless points are missing.

    Raises DamagedFile for a record of a winner that cannot be read.
    """
    advice = matrix.recommendation
    if advice.missing:
        count = "1 point is" if advice.missing == 1 else f"{advice.missing} points are"
        return SweepWinner(None, f"no winner yet: {count} missing of {advice.points}")
    if advice.winner is None:
        return SweepWinner(None, "" if advice.reason == "no_select" else "no winner was chosen")
    now, before, note = _winner_from(matrix, advice.winner), read_winner(root, matrix.name), ""
    if before is not None and before.runs == now.runs:
        now = replace(now, chosen=before.chosen)  # what is known of the same choice may have grown
    elif before is not None:
        note = f"{_named(now)} is the winner in place of {_named(before)}"
        note += f", the best of {before.points}"
    if now != before:
        write_winner(root, now)
    return SweepWinner(now, f"winner: {_named(now)}, the best of {now.points} on dev", note)


def winner_of_file(root: Path, file: SweepFile) -> SweepWinner:
    """`settle` for a sweep whose figures may not be comparable: then the line says so."""
    try:
        return settle(root, make_matrix(root, file.file))
    except InputError as error:
        return SweepWinner(None, f"no winner: {error}")


def _winner_from(matrix: Matrix, cell: SweepCell) -> Winner:
    """The record of a winning cell with its evidence: on dev with its optimism, and on items that
    did not choose."""
    advice = matrix.recommendation
    assert advice.choice is not None
    test = advice.choice.comparison
    origins = {stored_status(o.run.path).seed: o for o in origins_of(cell.parts[0])}
    evidence: dict[str, Any] = {
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
    return Winner(
        sweep=matrix.name,
        runs={str(s): WinningRun(str(o.run), o.checkpoint) for s, o in sorted(origins.items())},
        setting=matrix.layout.values(cell.place),
        points=len(advice.dev_scores),
        rule=_rule(advice),
        evidence=evidence,
        chosen=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _rule(advice: Recommendation) -> str:
    """The rule that ranked the points, in a sentence."""
    if advice.ratios_to:
        pairs = ", ".join(f"{name} {value:g}" for name, value in advice.ratios_to.items())
        return f"the highest harmonic mean of ratios to {pairs} on dev items, the first of equals"
    return f"the highest score on {', '.join(advice.select)}, the first of equals"


def _named(winner: Winner) -> str:
    chosen = next(iter(winner.runs.values()))
    return f"{chosen.run}@{chosen.checkpoint}"
