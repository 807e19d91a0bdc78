"""Sequential comparisons: judged again by the anytime-valid test, every look recorded.

The test needs neither a plan nor the number of looks; they are recorded so that a reader sees how
often the runs were compared before the verdict fell.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from assay.compare.fairness import Unfair
from assay.compare.table import Line, Table
from assay.data.files import append_line
from assay.errors import finding
from assay.judge.families import adjust_family
from assay.judge.intervals import LEVEL, Interval
from assay.judge.paired import compare, with_missing_at
from assay.judge.power import POWER
from assay.judge.scores import Array, ItemScores, cluster_totals, on_one_scale, on_shared_items
from assay.judge.verdict import (
    ALPHA,
    MARGIN,
    Comparison,
    Figures,
    IntervalAt,
    filled,
    judged,
    not_comparable,
    with_lower_better,
)
from assay.runs.run_files import DamagedFile, whole_lines

METHOD = "anytime-valid betting test and interval"
BETS = 200
"""Sizes of bets that the capital is spread over."""
HALVINGS = 40
MOST_TIMES = 64.0
"""No more than so many times the items are forecast."""


@dataclass(frozen=True, slots=True)
class Units:
    """The independent units of one comparison, counted by K different totals and sizes."""

    totals_K: Array
    """Sums of the differences, other minus control."""
    sizes_K: Array
    """Numbers of items."""
    counts_K: Array
    """Units of this kind."""
    width: float
    """Distance between the lowest and the highest score."""

    @property
    def items(self) -> float:
        """Items of all units."""
        return float(self.counts_K @ self.sizes_K)

    @property
    def difference(self) -> float:
        """The mean over items."""
        return float(self.counts_K @ self.totals_K) / self.items

    def log_capital(self, mean: float, times: float = 1.0) -> float:
        """Logarithm of the capital against a true mean difference; `times` as many units like
        these.

        Bets are spread so that half of the capital bets less than a quarter of what it has.
        """
        # The largest unit is the stake: in its measure all lie within the scale.
        largest, share = self.sizes_K.max() * self.width, mean / self.width
        left_K = (self.totals_K - mean * self.sizes_K) / largest
        spread_B, weights_B = _bets()
        bets_B = np.where(spread_B > 0, spread_B / (1 + share), spread_B / (1 - share))
        # A bet of everything may be lost: then its part of the capital is 0.
        rest_KB = np.maximum(1 + np.multiply.outer(left_K, bets_B), 1e-300)
        grown_B = times * (self.counts_K @ np.log(rest_KB))
        most = float(grown_B.max())
        return most + float(np.log(weights_B @ np.exp(grown_B - most)))


@cache
def _bets() -> tuple[Array, Array]:
    """Sizes of bets from -1 to 1, denser around 0, and the part of the capital on each."""
    nodes_B, weights_B = np.polynomial.legendre.leggauss(BETS)
    return nodes_B * np.abs(nodes_B), weights_B / 2


def compare_anytime(control: ItemScores, other: ItemScores, margin: float = MARGIN) -> Comparison:
    """`other` against `control`, as `judge.paired.compare`, at a level that holds however often the
    comparison is made while items are added.

    Items have to come in an order that their answers do not decide, and answers that were given
    have to stay. The interval is a confidence sequence: its level holds for all looks together.
    Missing scores count at their worst. Raises what `judge.paired.compare` raises.
    """
    found = compare(control, other, margin)
    control, other = on_shared_items(control, other)
    test = _figures(control, other)
    ends = (None, None)
    if control.missing or other.missing:
        ends = (
            filled(_figures(with_missing_at(control, control.bounds[1]), _at(other, 0))),
            filled(_figures(with_missing_at(control, control.bounds[0]), _at(other, 1))),
        )
    units = units_of(control, other)

    def plan_at(alpha: float) -> tuple[float | None, int | None]:
        reach = test.interval_at(1 - alpha).half_width + _sampling_reach(units)
        return reach if reach <= units.width else None, items_to_stop(units, alpha)

    detectable, needed = plan_at(ALPHA)
    anytime = replace(
        found,
        interval=test.interval_at(LEVEL),
        p_value=test.p_value,
        adjusted_p=test.p_value,
        method=METHOD,
        minimum_detectable_difference=detectable,
        items_needed=needed,
        interval_at=test.interval_at,
        plan_at=plan_at,
        lowest=ends[0],
        highest=ends[1],
        skewed=False,
    )
    return judged(anytime)


def _at(scores: ItemScores, end: int) -> ItemScores:
    return with_missing_at(scores, scores.bounds[end])


def units_of(control: ItemScores, other: ItemScores) -> Units:
    """The units of the items that have a score in both."""
    place = {item: i for i, item in enumerate(other.item_ids)}
    after_I = other.item_means[[place[item] for item in control.item_ids]]
    differences_I = after_I - control.item_means
    scored_I = np.logical_not(np.isnan(differences_I))
    clusters = None
    if control.clusters is not None:
        clusters = tuple(c for c, kept in zip(control.clusters, scored_I, strict=True) if kept)
    low, high = control.bounds
    return counted_units(*cluster_totals(differences_I[scored_I], clusters), high - low)


def counted_units(totals_C: Array, sizes_C: Array, width: float) -> Units:
    """C units of these totals and sizes."""
    kinds_2K, counts_K = np.unique(np.stack([totals_C, sizes_C]), axis=1, return_counts=True)
    return Units(kinds_2K[0], kinds_2K[1], counts_K.astype(np.float64), width)


def _figures(control: ItemScores, other: ItemScores) -> Figures:
    """Test and interval."""
    units = units_of(control, other)
    p_value = min(1.0, float(np.exp(-units.log_capital(0.0))))
    means = float(np.nanmean(control.item_means)), float(np.nanmean(other.item_means))
    return Figures(*means, units.difference, p_value, _interval_of(units))


def _interval_of(units: Units) -> IntervalAt:
    """The true means against which no bet has won 1 / alpha."""

    def limit(end: float, needed: float) -> float:
        inside, outside = units.difference, end
        if units.log_capital(0.999999 * end) < needed:
            return end
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            if units.log_capital(middle) < needed:
                inside = middle
            else:
                outside = middle
        return outside

    def interval_at(level: float) -> Interval:
        needed = -float(np.log1p(-level))
        low, high = (limit(end * units.width, needed) for end in (-1, 1))
        return Interval(low, high, "confidence sequence", level, units.width == 1)

    return interval_at


def _sampling_reach(units: Units) -> float:
    """How far the mean difference lies beyond the true one with a chance of 20 %."""
    left_K = units.totals_K - units.difference * units.sizes_K
    error = float(np.sqrt(units.counts_K @ left_K**2)) / units.items
    return float(special.ndtri(POWER)) * error


def items_to_stop(units: Units, alpha: float = ALPHA) -> int | None:
    """Items at which the test rejects if further ones are like these; None for more than MOST_TIMES
    as many."""
    needed = -float(np.log(alpha))
    if units.log_capital(0.0, MOST_TIMES) < needed:
        return None
    low, high = 0.0, MOST_TIMES
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if units.log_capital(0.0, middle) < needed:
            low = middle
        else:
            high = middle
    return int(np.ceil(high * units.items))


LOOKS = "looks.jsonl"
"""In the folder of comparisons: a line for each look."""


def judged_sequentially(table: Table) -> Table:
    """The table with every comparison with the control made by the anytime-valid test.

    Raises Unfair for several training seeds: the test is of checkpoints on items.
    """
    changed = [line for line in table.lines if line.to_control is not None]
    again = {line.name: _again(table.control, line) for line in changed}
    judged = adjust_family(again)
    lines = [
        replace(line, to_control=replace(line.to_control, comparison=judged[line.name]))
        if line.to_control is not None
        else line
        for line in table.lines
    ]
    return replace(table, lines=tuple(lines))


def _again(control: Line, line: Line) -> Comparison:
    assert line.to_control is not None and line.scores is not None and control.scores is not None
    before = line.to_control.comparison
    if "seeds" in before.method:
        fix = "name one run of each, such as NAME#SEED"
        raise Unfair("several seeds are not compared sequentially", field="--sequential", fix=fix)
    first, last = on_one_scale(control.scores, line.scores)
    found = replace(compare_anytime(first, last), noise=before.noise)
    if before.lower_is_better:
        found = with_lower_better(found)
    return not_comparable(found, before.confounds) if before.confounds else found


def note_look(folder: Path, table: Table) -> Table:
    """Record this look in `folder`; the table with a note of all looks at these runs.

    The same runs on the same number of items are the same look. Raises DamagedFile.
    """
    file, key = folder / LOOKS, _key(table)
    looks = [line["items"] for line in _lines(file) if {n: line.get(n) for n in key} == key]
    items = table.control.items
    if items not in looks:
        looks.append(items)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        folder.mkdir(parents=True, exist_ok=True)
        append_line(file, json.dumps({"at": at, **key, "items": items}, ensure_ascii=False))
    listed = ", ".join(map(str, looks))
    found = finding("sequential_look", "note", count=len(looks), listed=listed)
    return replace(table, findings=(*table.findings, found))


def _key(table: Table) -> dict[str, Any]:
    """What a sequential comparison is of: a record of more items is another look at it."""
    names = [line.name for line in table.lines]
    return {"benchmark": table.evaluation.benchmark, "control": names[0], "others": names[1:]}


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    found = whole_lines(file)
    for number, line in enumerate(found, 1):
        if not isinstance(line.get("items"), int):
            raise DamagedFile("is no look: it has no number of items", file=file, line=number)
    return found
