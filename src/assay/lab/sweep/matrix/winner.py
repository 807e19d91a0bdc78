"""Records the winner of a sweep once all its points were measured, for `run:SWEEP@winner`.

The winner is the best on dev items by the rule of `recommendation`. Another one takes its
place only where it scored higher, or where the recorded one is no longer in the sweep.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.lab.sweep.matrix.model import Cell, Matrix, Place, origins_of
from assay.lab.sweep.matrix.request import Request, make_matrix
from assay.runs.status import stored_status
from assay.runs.winner_file import Chosen, Winner, read_winner, write_winner


@dataclass(frozen=True, slots=True)
class Settled:
    """The winner of a sweep, or why there is none yet."""

    winner: Winner | None
    said: str
    """One line; "" where nothing selects."""
    note: str = ""
    """That it took the place of another winner, or kept its own, in one line."""


def winner_of_file(root: Path, file: Path) -> Settled:
    """`settle` for a sweep file, whose figures may not be comparable: then that is said."""
    try:
        return settle(root, make_matrix(root, [str(file)], Request()))
    except InputError as error:
        return Settled(None, f"no winner: {error}")


def settle_named(
    root: Path, what: Sequence[str], request: Request, matrix: Matrix
) -> Settled | None:
    """`settle` for the matrix of a sweep file as it is written; None for anything else that was
    asked for, which is no search or has another rule."""
    asked = (request.on, request.checkpoint, request.baseline, request.select, request.allow)
    if len(what) != 1 or not what[0].endswith(".toml") or any(asked):
        return None
    return settle(root, matrix)


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
    now, before = winner_from(matrix, advice.winner), read_winner(root, matrix.name)
    if before is not None and before.runs == now.runs:
        # The same choice keeps its time; what is known of it may have grown.
        now = replace(now, chosen=before.chosen, earlier=before.earlier)
    elif before is not None and _as_good(matrix, before):
        note = f"the winner stays {_named(before)}: no other scored higher"
        return Settled(before, _said(before), note)
    elif before is not None:
        taken = {"runs": asdict(before)["runs"], "points": before.points, "chosen": before.chosen}
        now = replace(now, earlier=[*before.earlier, taken])
    if now != before:
        write_winner(root, now)
    note = ""
    if before is not None and before.runs != now.runs:
        note = f"{_named(now)} is the winner in place of {_named(before)}"
        note += f", the best of {before.points}"
    return Settled(now, _said(now), note)


def winner_from(matrix: Matrix, cell: Cell) -> Winner:
    """The record of a winning cell with its evidence."""
    advice = matrix.recommendation
    assert cell.unit is not None and advice.choice is not None
    origins = {stored_status(o.run.path).seed: o for o in origins_of(cell.unit.parts[0])}
    return Winner(
        sweep=matrix.name,
        runs={str(s): Chosen(str(o.run), o.checkpoint) for s, o in sorted(origins.items())},
        setting=dict(zip(matrix.layout.keys, _values(cell.place, matrix), strict=True)),
        points=len(advice.dev_scores),
        rule=rule_of(matrix),
        evidence=evidence_of(matrix, cell),
        chosen=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def rule_of(matrix: Matrix) -> str:
    """The rule that ranked the points, in a sentence."""
    advice = matrix.recommendation
    if advice.ratios_to:
        pairs = ", ".join(f"{name} {value:g}" for name, value in advice.ratios_to.items())
        return f"the highest harmonic mean of ratios to {pairs} on dev items, the first of equals"
    return f"the highest score on {', '.join(advice.select)}, the first of equals"


def evidence_of(matrix: Matrix, cell: Cell) -> dict[str, Any]:
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


def _as_good(matrix: Matrix, before: Winner) -> bool:
    """Whether the recorded winner is a point of the matrix that none scored higher than."""
    scores = matrix.recommendation.dev_scores
    for place, score in scores.items():
        unit = matrix.cells[place].unit
        runs = {str(o.run): o.checkpoint for o in origins_of(unit.parts[0])} if unit else {}
        if runs == {each.run: each.checkpoint for each in before.runs.values()}:
            return score >= max(scores.values())
    return False


def _said(winner: Winner) -> str:
    return f"winner: {_named(winner)}, the best of {winner.points} on dev"


def _named(winner: Winner) -> str:
    chosen = next(iter(winner.runs.values()))
    return f"{chosen.run}@{chosen.checkpoint}"


def _values(place: Place, matrix: Matrix) -> Place:
    """The values of a place without the empty one of a table of one column."""
    return place if matrix.layout.columns else (place[0], *place[2:])
