"""Recommends a setting and its model by the rule of `judge.setting_choice`, or says why there is
none.

Only records of role `select` are asked. The reported score of the candidate is evidence beside it.
"""

from collections.abc import Mapping

from assay.compare.arm import Arm
from assay.judge.arms import as_repeats
from assay.judge.scores import ItemScores
from assay.judge.selection import choose
from assay.lab.sweep.matrix.judged_cells import Baseline
from assay.lab.sweep.matrix.model import Cell, Place, Recommendation, Unit
from assay.lab.sweep.matrix.units import dev_scores, selecting
from assay.runs.records import DamagedRecord


def recommend(
    cells: Mapping[Place, Cell],
    controls: Mapping[Place, tuple[Arm, ...]],
    baseline: Baseline | None,
    select: str | None,
) -> Recommendation:
    """The best cell on dev if it beats its baseline there after the correction for looks."""
    measured = {p: c for p, c in cells.items() if c.state == "measured" and c.unit is not None}
    known = selecting([c.unit for c in measured.values() if c.unit])
    if select is None and len(known) != 1:
        return Recommendation("several_select" if known else "no_select")
    name = select or known[0]
    try:
        dev = {p: _dev(c.unit, name) for p, c in measured.items()}
    except DamagedRecord as error:
        return Recommendation("dev_damaged", select=name, problem=str(error))
    scores = {p: s for p, s in dev.items() if s is not None}
    if not scores:
        return Recommendation("no_select", select=name)
    if len({frozenset(s.item_ids) for s in scores.values()}) > 1:
        return Recommendation("dev_differs", select=name)
    if baseline is None:
        return Recommendation("no_baseline", select=name)
    bases = {p: _baseline(p, cells, controls, name) for p in scores}
    unfair = {p for p in scores if _not_comparable(cells[p])}
    usable = {p for p in scores if p not in unfair and (bases[p] or cells[p].is_baseline)}
    if not usable:
        return Recommendation("no_dev_baseline", select=name)
    looks = sum(u.looks for p in scores if (u := cells[p].unit) and not cells[p].is_baseline)
    found = choose(
        {repr(p): scores[p] for p in scores if p in usable},
        {repr(p): bases[p] for p in scores if p in usable},
        max(looks, 1),
    )
    by_name = {repr(p): p for p in scores}
    place = by_name[found.candidate]
    reason = (
        "baseline_best" if found.comparison is None else "chosen" if found.chosen else "unproven"
    )
    rivals = tuple(cells[by_name[n]] for n in found.rivals)
    return Recommendation(reason, found, cells[place], name, scores[place], rivals)


def _dev(unit: Unit | None, name: str) -> ItemScores | None:
    found = dev_scores(unit, name) if unit else None
    return as_repeats(found) if found else None


def _baseline(
    place: Place,
    cells: Mapping[Place, Cell],
    controls: Mapping[Place, tuple[Arm, ...]],
    name: str,
) -> ItemScores | None:
    """The dev scores of the runs and checkpoints that a cell is compared with."""
    control = controls.get(place)
    if control is None:
        return None
    return _dev(Unit("", {}, "measured", (), control), name)


def _not_comparable(cell: Cell) -> bool:
    return cell.comparison is not None and cell.comparison.verdict == "not comparable"
