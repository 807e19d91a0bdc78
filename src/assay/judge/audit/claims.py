"""Audit rules about what a report compares and concludes, against its items' sampling noise.

Each run is compared with its control as one family, beside the comparisons that the report claims.
Scores came without their items, so every comparison is unpaired; a paired one would be sharper, and
`unpaired` reports that. Settings say which factors differ; of a base model against a trained one
the training is what is compared.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

import numpy as np

from assay.data.reported.reported_record import (
    Meaning,
    Reading,
    Reported,
    ReportedMetric,
    ReportedRun,
    Verdict,
)
from assay.data.reported.reported_record import ReportedComparison as Claim
from assay.errors import Finding
from assay.judge.audit.cells import at, cells, compare_means, flaw, items_of
from assay.judge.binomial import compare_counts
from assay.judge.confounds import ABSENT, Confound, differences
from assay.judge.families import adjust_family
from assay.judge.verdict import ALPHA, Comparison

DECIDED = ("better", "worse")
DATA = "data"
"""The setting that names the data a run was trained on."""
FEWEST_SAME = 4
"""Figures below which agreement to the last digit in all of them may be chance."""
FEWEST_MOSTLY_SAME = 8
"""Figures below which agreement in more than half of them may be chance."""
SHARE_SAME = 0.5

Values = tuple[Decimal, ...]


def same_value(first: object, second: object) -> bool:
    """Whether two values of a setting are the same: equal numbers, or the same words."""
    words = [" ".join(str(value).split()).casefold() for value in (first, second)]
    try:
        return float(words[0]) == float(words[1])
    except ValueError:
        return words[0] == words[1]


def settings_of(report: Reported, run: ReportedRun) -> dict[str, object]:
    """The settings of a run from its own table, then from other mentions."""
    known: dict[str, object] = {}
    for settings in (run.settings, *(m.settings for m in report.mentions if m.of == run.name)):
        known = {**settings, **known}
    return known


REVERSED: dict[Verdict, Verdict] = {"better": "worse", "worse": "better"}


@dataclass(frozen=True, slots=True)
class RunPair:
    """A run against another, cell by cell."""

    run: ReportedRun
    control: ReportedRun
    says: Verdict | None
    """The report's verdict on the whole run."""
    by_cell: Mapping[str, Comparison]
    """The cells that both have, with Holm-adjusted p-values; without those of unknown size."""
    overall: Comparison | None = None
    """The mean over these cells, where there are several and none is part of another."""
    differs: tuple[Confound, ...] = ()
    """Settings known of both runs that differ, without those that the comparison is about."""
    vary: tuple[str, ...] = ()
    line: int | None = None
    says_of: Mapping[str, Verdict] = field(default_factory=dict)
    """Cell -> the report's verdict on it alone."""
    claims: tuple[Claim, ...] = ()
    """The report's own comparisons of the two, all in the pair's direction."""

    @property
    def claimed(self) -> bool:
        """Whether the report gives a verdict on the pair, or claims the comparison."""
        return bool(self.says or self.says_of or self.claims)

    @property
    def confounded(self) -> bool:
        """Whether more differs than the one thing that a comparison may be about."""
        return len(self.differs) + bool(self.vary) > 1

    @property
    def name(self) -> str:
        """`run / control`."""
        return f"{self.run.name} / {self.control.name}"

    def claim_of(self, cell: str) -> Claim | None:
        """The report's own comparison of a cell: the one that names it, else the one of all."""
        named = [claim for claim in self.claims if cell in claim.cells]
        whole = [claim for claim in self.claims if not claim.cells]
        return next(iter([*named, *whole]), None)


def pairs(report: Reported) -> list[RunPair]:
    """Every comparison of the report, each once: families against a control, then its own."""
    by_runs: dict[frozenset[str], RunPair] = {}
    for pair in families(report):
        by_runs.setdefault(frozenset((pair.run.name, pair.control.name)), pair)
    for claim in report.comparisons:
        run, control = report.run(claim.run), report.run(claim.control)
        if run is not None and control is not None and run.name != control.name:
            key = frozenset((claim.run, claim.control))
            if key not in by_runs:
                cells = _compare(report, control, run)
                by_runs[key] = RunPair(
                    run, control, None, adjust_family(cells), _mean(report, cells)
                )
            by_runs[key] = _with(by_runs[key], claim)
    return [_of_settings(report, pair) for pair in by_runs.values()]


def families(report: Reported) -> Iterator[RunPair]:
    """Runs against their control. All cells of all runs with one control are one family."""
    members: dict[str, list[ReportedRun]] = {}
    for run in report.runs:
        name = report.scoring.control if run.control is None else run.control
        if name and name != run.name and (run.scores or run.right):
            members.setdefault(name, []).append(run)
    for name, runs in members.items():
        control = report.run(name)
        if control is None:
            continue
        compared = {run.name: _compare(report, control, run) for run in runs}
        flat = {f"{n}\n{cell}": c for n, by_cell in compared.items() for cell, c in by_cell.items()}
        judged = adjust_family(flat)
        means = {n: _mean(report, by_cell) for n, by_cell in compared.items()}
        overall = adjust_family({n: mean for n, mean in means.items() if mean is not None})
        for run in runs:
            cells = {cell: judged[f"{run.name}\n{cell}"] for cell in compared[run.name]}
            mean = overall.get(run.name)
            yield RunPair(run, control, run.says, cells, mean, line=run.line, says_of=run.says_of)


def _mean(report: Reported, by_cell: Mapping[str, Comparison]) -> Comparison | None:
    """The mean over the cells of a pair; none over subsets that hold each other."""
    return None if report.scoring.nested else compare_means(list(by_cell.values()))


def _with(pair: RunPair, claim: Claim) -> RunPair:
    """The pair with one more claim of the report about it, turned where it is the other way."""
    if claim.run != pair.run.name:
        claim = _turned(claim)
    told = dict.fromkeys(claim.cells, claim.says) if claim.says else {}
    return replace(
        pair,
        says=pair.says or (None if claim.cells else claim.says),
        says_of={**{cell: says for cell, says in told.items() if says}, **pair.says_of},
        claims=(*pair.claims, claim),
        line=pair.line or claim.line,
    )


def _turned(claim: Claim) -> Claim:
    """The same claim with run and control exchanged."""
    says = REVERSED.get(claim.says, claim.says) if claim.says else None
    limits = tuple(-limit for limit in reversed(claim.interval))
    update = {"run": claim.control, "control": claim.run, "says": says, "interval": limits}
    return claim.model_copy(update=update)


def _of_settings(report: Reported, pair: RunPair) -> RunPair:
    """The pair with the factors it varies, and the other settings that are known of both runs and
    differ."""
    named = next((claim.vary for claim in pair.claims if claim.vary), ())
    control, run = (settings_of(report, each) for each in (pair.control, pair.run))
    differs = tuple(
        difference
        for difference in differences(control, run, named)
        if ABSENT not in (difference.control, difference.other)
        and difference.kind != "declared"
        and not same_value(difference.control, difference.other)
    )
    training = pair.control.trained != pair.run.trained
    return replace(pair, differs=differs, vary=named or ("training",) * training)


def _compare(report: Reported, control: ReportedRun, run: ReportedRun) -> dict[str, Comparison]:
    """The cells of both whose numbers of items are known, as two binomials each."""
    before, after = cells(report, control), cells(report, run)
    return {
        name: compare_counts(one.successes, one.items, two.successes, two.items)
        for name, one in before.items()
        if one.items and (two := after.get(name)) and two.items
    }


def not_comparable(report: Reported) -> Iterator[Finding]:
    """Compared runs that differ in more than what is varied: settings, data, number of items.

    A note where the report says nothing of the two: a table of runs is no comparison yet.
    """
    for pair in pairs(report):
        severity = "error" if pair.claimed else "note"
        if pair.confounded:
            shown = "; ".join(f"{c.path}: {c.control} → {c.other}" for c in pair.differs)
            vary = ", ".join(pair.vary) or "–"
            numbers = {"count": len(pair.differs), "what": shown, "vary": vary}
            yield flaw("several_factors", severity, pair.name, numbers, pair.line)
        for data in (c for c in pair.differs if c.path == DATA and pair.confounded):
            numbers = {"control": str(data.control), "other": str(data.other)}
            yield flaw("different_data", severity, pair.name, numbers, pair.line)
        sizes = {
            cell: [items_of(report, run, cell) for run in (pair.control, pair.run)]
            for cell in pair.by_cell
        }
        apart = {cell: both for cell, both in sizes.items() if both[0] != both[1]}
        if apart and not any(claim.paired for claim in pair.claims):
            cell, (before, after) = next(iter(apart.items()))
            numbers = {"control": before or 0, "other": after or 0, "count": len(apart)}
            yield flaw("different_items", severity, at(pair.name, cell), numbers, pair.line)


def label_disagrees(report: Reported) -> Iterator[Finding]:
    """Two places that give one run or file different values."""
    known: dict[str, dict[str, tuple[object, str]]] = {
        run.name: {key: (value, "") for key, value in run.settings.items()} for run in report.runs
    }
    for mention in report.mentions:
        settings = known.setdefault(mention.of, {})
        for key, value in mention.settings.items():
            first, place = settings.setdefault(key, (value, mention.place))
            if not same_value(first, value):
                numbers = {
                    "setting": key,
                    "here": str(first),
                    "place": place,
                    "there": str(value),
                    "other": mention.place,
                }
                yield flaw("label_disagrees", "error", mention.of, numbers, mention.line)


def same_values(report: Reported) -> Iterator[Finding]:
    """Conditions whose scores agree to the last digit in all cells, or in most of many.

    Scores of 0 and 100 % do not count as agreement, and equal repeats count as one figure.
    """
    scored = [
        (run, {name: c.values for name, c in cells(report, run).items() if 0 < c.mean < 1})
        for run in report.runs
    ]
    for index, (first, before) in enumerate(scored):
        for second, after in scored[index + 1 :]:
            shared = before.keys() & after.keys()
            equal = [cell for cell in shared if before[cell] == after[cell]]
            figures = sum(len(set(before[cell])) for cell in shared)
            everything = len(equal) == len(shared)
            fewest = FEWEST_SAME if everything else FEWEST_MOSTLY_SAME
            if figures < fewest or len(equal) <= SHARE_SAME * len(shared):
                continue
            numbers = {"equal": len(equal), "cells": len(shared), "figures": figures}
            key = "same_values" if everything else "mostly_same_values"
            about = f"{first.name} / {second.name}"
            yield flaw(key, "error" if everything else "warning", about, numbers, second.line)


def never_run(report: Reported) -> Iterator[Finding]:
    """Comparisons with a condition that has no result in the report."""
    for claim in report.comparisons:
        for name in (claim.run, claim.control):
            if report.run(name) is None:
                about = f"{claim.run} / {claim.control}"
                yield flaw("never_run", "error", about, {"name": name}, claim.line)


def inside_noise(report: Reported) -> Iterator[Finding]:
    """Compares each of the report's verdicts with the test at the given number of items.

    A verdict on one cell is checked on that cell only. Between runs that are not comparable no
    difference decides anything; one inside the noise is reported all the same.
    """
    for pair in pairs(report):
        for cell, says in pair.says_of.items():
            if cell in pair.by_cell:
                yield from _one(pair, pair.by_cell[cell], says, cell)
        rest = {cell: c for cell, c in pair.by_cell.items() if cell not in pair.says_of}
        if len(rest) == 1:
            ((cell, comparison),) = rest.items()
            yield from _one(pair, comparison, pair.says, cell if pair.says_of else "")
        elif rest:
            yield _several(pair, rest)


def _one(
    pair: RunPair, comparison: Comparison, says: Verdict | None, cell: str
) -> Iterator[Finding]:
    """The flaw, or the note, of a comparison of one cell, unless the report tested it itself."""
    decided = comparison.verdict in DECIDED
    claim = pair.claim_of(cell)
    if decided and pair.confounded:
        return
    if decided and says in (None, "undecided", comparison.verdict):
        key, severity = comparison.verdict, "note"
    elif decided:
        key, severity = "contradicted", "error" if says in DECIDED else "warning"
    elif says in DECIDED:
        if claim is not None and tested(claim):
            return
        key, severity = "inside_noise", "warning"
    elif says == "same" and comparison.verdict != "equivalent":
        key, severity = "no_effect_not_shown", "warning"
    else:
        key, severity = comparison.verdict, "note"
    numbers = figures(comparison) | {"says": says or ""}
    line = claim.line if claim else pair.line
    yield flaw(key, severity, at(pair.name, cell), numbers, line)


def _several(pair: RunPair, by_cell: Mapping[str, Comparison]) -> Finding:
    """The same for several cells: how many of them decide, and which is nearest to noise.

    A claim about the whole is carried by every cell, or by the mean over all of them.
    """
    decided = [cell for cell, c in by_cell.items() if c.verdict in DECIDED]
    carried = [cell for cell in decided if by_cell[cell].verdict == pair.says]
    least = max(by_cell, key=lambda cell: by_cell[cell].p_value)
    numbers = figures(by_cell[least]) | {
        "cells": len(by_cell),
        "decided": len(decided),
        "which": ", ".join(decided) or "–",
        "cell": least,
        "says": pair.says or "",
        "fewest": min(c.items for c in by_cell.values()),
    }
    overall, claim = pair.overall, pair.claim_of("")
    verdict = overall.verdict if overall else None
    shown = verdict == pair.says or len(carried) == len(by_cell)
    shown = shown or bool(claim and tested(claim))
    opposed = pair.says in DECIDED and verdict in DECIDED and verdict != pair.says
    if overall and opposed and not pair.confounded:
        turned = figures(overall) | {"says": pair.says or ""}
        return flaw("contradicted", "error", pair.name, turned, pair.line)
    if pair.says in DECIDED and not shown:
        return flaw("cells_inside_noise", "warning", pair.name, numbers, pair.line)
    if pair.says == "same" and (decided or verdict != "equivalent"):
        return flaw("cells_not_the_same", "warning", pair.name, numbers, pair.line)
    return flaw("cells_judged", "note", pair.name, numbers, pair.line)


def tested(claim: Claim) -> bool:
    """Whether a test that the report prints shows the difference."""
    if claim.interval:
        low, high = claim.interval
        return low > 0 or high < 0
    return claim.p is not None and float(claim.p) < ALPHA


def figures(comparison: Comparison) -> dict[str, float | int | str]:
    """What every sentence about a comparison needs, in points."""
    return {
        "control": comparison.control_score * 100,
        "score": comparison.score * 100,
        "difference": comparison.difference * 100,
        "low": comparison.interval.low * 100,
        "high": comparison.interval.high * 100,
        "p": comparison.adjusted_p,
        "items": comparison.items,
        "smallest": (comparison.minimum_detectable_difference or 0) * 100,
        "needed": comparison.items_needed or 0,
        "family": comparison.family,
        "level": comparison.interval.level * 100,
    }


def difference_inside_noise(report: Reported) -> Iterator[Finding]:
    """Differences printed without their scores: the largest, on the most items, where a score in
    the middle has the most noise."""
    for claim in report.comparisons:
        if not claim.points or not claim.items or tested(claim):
            continue
        sizes = [abs(float(points)) for points in claim.points]
        items, after = max(claim.items), float(claim.score or 50) / 100
        before = min(max(after - max(sizes) / 100, 0.0), 1.0)
        comparison = compare_counts(before * items, items, after * items, items)
        numbers = figures(comparison) | {
            "least": min(sizes),
            "largest": max(sizes),
            "fewest": min(claim.items),
        }
        carried = comparison.verdict in DECIDED
        key = "difference_could_be_real" if carried else "difference_inside_noise"
        severity = "note" if carried or claim.says == "same" else "warning"
        yield flaw(key, severity, f"{claim.run} / {claim.control}", numbers, claim.line)


def unpaired(report: Reported) -> Iterator[Finding]:
    """Scores of the same items, compared without pairing them, or without a number of items."""
    drawn = [p for p in pairs(report) if p.by_cell and not any(c.paired for c in p.claims)]
    claims = [claim for claim in report.comparisons if claim.points and not claim.paired]
    if drawn or claims:
        name = report.scoring.benchmark or report.about
        yield flaw("unpaired", "note", name, {"comparisons": len(drawn) + len(claims)})


def repeats_alike(report: Reported) -> Iterator[Finding]:
    """Repeats that vary far less than samples would: they are not further items."""
    spreads, errors, same, repeats = [], [], [], 0
    for run in report.runs:
        for cell in cells(report, run).values():
            if len(cell.values) < 2 or cell.items is None or not 0 < cell.mean < 1:
                continue
            shares = np.array([float(value) / cell.scale for value in cell.values])
            spreads.append(shares.std(ddof=1))
            errors.append(np.sqrt(cell.mean * (1 - cell.mean) / cell.items))
            repeats = max(repeats, len(shares))
            if len(shares) > 2 and spreads[-1] == 0:
                same.append(run.name)
    if spreads and np.mean(spreads) < np.mean(errors) / 2:
        numbers = {
            "scores": len(spreads),
            "repeats": repeats,
            "spread": float(np.mean(spreads)) * 100,
            "error": float(np.mean(errors)) * 100,
            "identical": ", ".join(same) or "–",
        }
        name = report.scoring.benchmark or report.about
        yield flaw("repeats_alike", "note", name, numbers)


def nested_subsets(report: Reported) -> Iterator[Finding]:
    """Agreement over subsets that hold each other, taken as repeated evidence."""
    drawn = [p for p in pairs(report) if len(p.by_cell) > 1]
    sizes = {items for claim in report.comparisons for items in claim.items}
    sizes |= {c.items for pair in drawn for c in pair.by_cell.values()}
    if report.scoring.nested and len(sizes) > 1:
        shown = ", ".join(map(str, sorted(sizes)))
        numbers = {"sizes": shown, "largest": max(sizes)}
        yield flaw("nested_subsets", "warning", report.scoring.benchmark, numbers)


RISING_MEANS: dict[Meaning, Reading] = {
    "score": "better",
    "error rate": "worse",
    "loss": "worse",
    "distance": "away",
    "cost": "worse",
}
OPPOSITE: dict[Reading, Reading] = {
    "better": "worse",
    "worse": "better",
    "away": "towards",
    "towards": "away",
}
"""The meaning of a rise, and its opposite. A policy loss measures neither."""


def misread_direction(report: Reported) -> Iterator[Finding]:
    """Conclusions that contradict the direction in which their metric went."""
    for metric in report.metrics:
        shown = metric.values or metric.counts
        course = 0 if len(shown) < 2 else (shown[-1] > shown[0]) - (shown[-1] < shown[0])
        if metric.reads in (None, "stable") or metric.meaning is None or course == 0:
            continue
        numbers = {"readings": " → ".join(map(str, shown)), "reads": metric.reads}
        if metric.meaning == "policy loss":
            yield flaw("policy_loss_read", "warning", metric.name, numbers, metric.line)
            continue
        rising = RISING_MEANS.get(metric.meaning)
        means = rising if course > 0 or rising is None else OPPOSITE[rising]
        if means is not None and metric.reads == OPPOSITE[means]:
            key = "distance_misread" if metric.meaning == "distance" else "misread_direction"
            yield flaw(key, "error", metric.name, numbers | {"means": means}, metric.line)


def cause_without_effect(report: Reported) -> Iterator[Finding]:
    """A count of effects below the count of their stated cause."""
    for claim in report.causes:
        cause, effect = report.metric(claim.cause), report.metric(claim.effect)
        assert cause is not None and effect is not None, "the record was checked"
        before, after = _last(cause), _last(effect)
        if before is not None and after is not None and after < before:
            numbers = {"effects": after, "causes": before, "cause": claim.cause}
            yield flaw("cause_without_effect", "error", claim.effect, numbers, claim.line)


def _last(metric: ReportedMetric) -> int | None:
    """The last count of a metric, printed as a count or as a whole number."""
    if metric.counts:
        return metric.counts[-1]
    return int(metric.values[-1]) if metric.values else None


def effect_without_control(report: Reported) -> Iterator[Finding]:
    """Claims that something works, or does not, without a run that lacks it."""
    for claim in report.effects:
        if report.run(claim.control) is None:
            numbers = {"says": claim.says}
            yield flaw("effect_without_control", "warning", claim.what, numbers, claim.line)


def left_open(report: Reported) -> Iterator[Finding]:
    """Everything that was to be filled in, counted."""
    places = [(part.place, part.count) for part in report.open]
    places += [(run.name, 1) for run in report.runs if not run.finished]
    if places:
        shown = ", ".join(f"{place} ({count})" if count > 1 else place for place, count in places)
        total = sum(count for _, count in places)
        numbers = {"count": total, "places": len(places), "where": shown}
        yield flaw("left_open", "note", report.about, numbers)
