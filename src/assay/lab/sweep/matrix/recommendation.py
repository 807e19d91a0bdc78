"""Recommends a cell of a matrix from records of role `select` alone, and records a sweep's winner.

Ranking, tests and optimism are those of `judge.selection`. The winner,
for `run:SWEEP@winner`, is the best on dev items once all points were measured; another one takes
its place only where it scored higher, or where the recorded one is no longer in the sweep.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assay.compare.arm import Arm
from assay.judge.arms import as_repeats
from assay.judge.averages import value_of
from assay.judge.scores import ItemScores
from assay.judge.selection import Choice, choose
from assay.lab.sweep.matrix.coordinates import Place
from assay.lab.sweep.matrix.model import Cell, Matrix, Recommendation, origins_of
from assay.lab.sweep.matrix.units import dev_scores
from assay.runs.history import evaluation_records
from assay.runs.run_files import DamagedFile
from assay.runs.run_names import Chosen, Winner, read_winner, write_winner
from assay.runs.status import stored_status

Parts = tuple[ItemScores, ...]
"""Scores on each of the selecting evaluations."""


def recommend(
    cells: Mapping[Place, Cell],
    controls: Mapping[Place, tuple[Arm, ...]],
    compared: bool,
    select: tuple[str, ...],
    ratios_to: Mapping[str, float],
) -> Recommendation:
    """The best cell on dev, recommended if it beats its baseline there after correction for
    multiple comparisons.

    `compared` says whether the matrix has a baseline. Several evaluations of `select` are ranked by
    the harmonic mean of their ratios to `ratios_to`.
    """
    measured = {p: c for p, c in cells.items() if c.state == "measured"}
    gaps = sum(
        c.state not in ("measured", "not in the search") or c.seeds_missing > 0
        for c in cells.values()
    )
    runs = dict.fromkeys(origin.run for cell in measured.values() for origin in cell.origins)
    records = (record for run in runs for record in evaluation_records(run))
    known = list(dict.fromkeys(each.name for each in records if each.role == "select"))
    names = select or tuple(known)
    if not select and len(known) != 1:
        return Recommendation("several_select" if known else "no_select", missing=gaps)
    try:
        dev = {p: _dev(c.parts[0], names) for p, c in measured.items()}
        scores = {p: s for p, s in dev.items() if s is not None}
        bases = {p: _dev(controls[p][0], names) if p in controls else None for p in scores}
    except DamagedFile as error:
        return Recommendation("dev_damaged", select=names, problem=str(error))
    missing = gaps + len(dev) - len(scores)
    if not scores:
        return Recommendation("no_select", select=names, missing=missing)
    if len({tuple(frozenset(part.item_ids) for part in s) for s in scores.values()}) > 1:
        return Recommendation("dev_differs", select=names, missing=missing)
    compared_with = {p: cells[p].comparison for p in scores}
    unfair = {p for p, c in compared_with.items() if c and c.verdict == "not comparable"}
    fair = {p: s for p, s in scores.items() if p not in unfair}
    usable = {p: s for p, s in fair.items() if bases[p] or cells[p].is_baseline}
    if compared and not fair:
        return Recommendation("no_dev_baseline", select=names, missing=missing)
    among = usable or fair
    looks = sum(u.looks for p in among if (u := cells[p].unit) and not cells[p].is_baseline)
    choice = _choice(among, bases, max(looks, 1), ratios_to)
    by_name = {repr(p): p for p in scores}
    place = by_name[choice.candidate]
    return Recommendation(
        reason=_reason(choice, compared, bool(usable)),
        choice=choice,
        cell=cells[place],
        select=names,
        ratios_to=ratios_to,
        dev=scores[place],
        dev_scores={p: value_of(s, tuple(ratios_to.values())) for p, s in scores.items()},
        missing=missing,
        rivals=tuple(cells[by_name[n]] for n in choice.rivals),
    )


def _dev(arm: Arm, names: Sequence[str]) -> Parts | None:
    """The dev scores of an arm, seeds as repeats; None where one evaluation has no record."""
    found = [dev_scores(arm, name) for name in names]
    whole = [as_repeats(scores) for scores in found if scores is not None]
    return tuple(whole) if len(whole) == len(names) else None


def _choice(
    among: Mapping[Place, Parts],
    bases: Mapping[Place, Parts | None],
    looks: int,
    ratios_to: Mapping[str, float],
) -> Choice:
    named = {repr(p): parts for p, parts in among.items()}
    controls = {repr(p): bases[p] for p in among}
    return choose(named, controls, looks, tuple(ratios_to.values()))


def _reason(choice: Choice, compared: bool, usable: bool) -> str:
    """The key of the sentence that says why the candidate is recommended, or why not."""
    if not compared:
        return "no_baseline"
    if not usable:
        return "no_dev_baseline"
    if choice.comparison is None:
        return "baseline_best"
    return "chosen" if choice.chosen else "unproven"


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
