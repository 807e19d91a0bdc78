"""Recommends a cell of a matrix, from records of role `select` alone, and finds what is missing.

Ranking, tests and optimism are those of `judge.selection` and `judge.harmonic_choice`; `winner`
records the choice.
"""

from collections.abc import Mapping, Sequence

from assay.compare.arm import Arm
from assay.judge.arms import as_repeats
from assay.judge.averages import value_of
from assay.judge.harmonic_choice import choose_harmonic
from assay.judge.scores import ItemScores
from assay.judge.selection import Choice, choose
from assay.lab.sweep.matrix.model import Cell, Place, Recommendation, Unit
from assay.lab.sweep.matrix.units import dev_scores, selecting
from assay.runs.records import DamagedRecord

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
    measured = {p: c for p, c in cells.items() if c.state == "measured" and c.unit is not None}
    known = selecting([c.unit for c in measured.values() if c.unit])
    names = select or tuple(known)
    if not select and len(known) != 1:
        return Recommendation("several_select" if known else "no_select", missing=_gaps(cells))
    try:
        dev = {p: _dev(c.unit, names) for p, c in measured.items()}
    except DamagedRecord as error:
        return Recommendation("dev_damaged", select=names, problem=str(error))
    scores = {p: s for p, s in dev.items() if s is not None}
    missing = _gaps(cells) + len(dev) - len(scores)
    if not scores:
        return Recommendation("no_select", select=names, missing=missing)
    if len({tuple(frozenset(part.item_ids) for part in s) for s in scores.values()}) > 1:
        return Recommendation("dev_differs", select=names, missing=missing)
    bases = {p: _baseline(p, controls, names) for p in scores}
    fair = {p: s for p, s in scores.items() if not _not_comparable(cells[p])}
    usable = {p: s for p, s in fair.items() if bases[p] or cells[p].is_baseline}
    if compared and not fair:
        return Recommendation("no_dev_baseline", select=names, missing=missing)
    among = usable or fair
    looks = sum(u.looks for p in among if (u := cells[p].unit) and not cells[p].is_baseline)
    found = _choice(among, bases, max(looks, 1), ratios_to)
    by_name = {repr(p): p for p in scores}
    place = by_name[found.candidate]
    return Recommendation(
        reason=_reason(found, compared, bool(usable)),
        choice=found,
        cell=cells[place],
        select=names,
        ratios_to=ratios_to,
        dev=scores[place],
        dev_scores={p: value_of(s, tuple(ratios_to.values())) for p, s in scores.items()},
        missing=missing,
        rivals=tuple(cells[by_name[n]] for n in found.rivals),
    )


def _choice(
    among: Mapping[Place, Parts],
    bases: Mapping[Place, Parts | None],
    looks: int,
    ratios_to: Mapping[str, float],
) -> Choice:
    named = {repr(p): parts for p, parts in among.items()}
    controls = {repr(p): bases[p] for p in among}
    if ratios_to:
        return choose_harmonic(named, controls, looks, tuple(ratios_to.values()))
    return choose(
        {name: parts[0] for name, parts in named.items()},
        {name: control[0] if control else None for name, control in controls.items()},
        looks,
    )


def _reason(found: Choice, compared: bool, usable: bool) -> str:
    """The key of the sentence that says why the candidate is recommended, or why not."""
    if not compared:
        return "no_baseline"
    if not usable:
        return "no_dev_baseline"
    if found.comparison is None:
        return "baseline_best"
    return "chosen" if found.chosen else "unproven"


def _gaps(cells: Mapping[Place, Cell]) -> int:
    """Places of the sweep whose score is missing, or is that of fewer seeds."""
    return sum(
        cell.state not in ("measured", "not in the search")
        or bool(cell.unit and cell.unit.seeds_missing)
        for cell in cells.values()
    )


def _dev(unit: Unit | None, names: Sequence[str]) -> Parts | None:
    """The dev scores of a unit, seeds as repeats; None where one evaluation has no record."""
    found = [dev_scores(unit, name) if unit else None for name in names]
    whole = [as_repeats(scores) for scores in found if scores is not None]
    return tuple(whole) if len(whole) == len(names) else None


def _baseline(
    place: Place, controls: Mapping[Place, tuple[Arm, ...]], names: Sequence[str]
) -> Parts | None:
    """The dev scores of the runs and checkpoints that a cell is compared with."""
    control = controls.get(place)
    if control is None:
        return None
    return _dev(Unit("", {}, "measured", (), control), names)


def _not_comparable(cell: Cell) -> bool:
    return cell.comparison is not None and cell.comparison.verdict == "not comparable"
