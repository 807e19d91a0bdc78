"""Audit rules about what a report compares and concludes, against its items' sampling noise.

Each run is compared with its control as one family, beside the comparisons that the report claims.
Scores came without their items, so every comparison is unpaired; a paired one would be sharper, and
`unpaired` reports that. Settings say which factors differ; of a base model against a trained one
the training is what is compared.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import hypot

import numpy as np
from scipy import special

from assay.data.reported import reported_record
from assay.data.reported.reported_record import Reported, ReportedRun, Verdict
from assay.errors import Finding
from assay.judge.audit.arithmetic import at, cells, flaw, items_of
from assay.judge.binomial import compare_counts
from assay.judge.confounds import Confound, differences
from assay.judge.families import adjust_family
from assay.judge.intervals import Interval
from assay.judge.power import detectable_from_interval, planned
from assay.judge.significance import agreeing
from assay.judge.verdict import ALPHA, Comparison, Figures

Claim = reported_record.ReportedComparison
DECIDED = ("better", "worse")
DATA = "data"
"""The setting that names the data a run was trained on."""
SAME = "same_values", "error", 4
MOSTLY_SAME = "mostly_same_values", "warning", 8
"""Key, severity, and the figures below which agreement to the last digit in all of them, or in more
than half of them, may be chance."""
SHARE_SAME = 0.5
OPPOSITE: Mapping[str | None, str] = {
    "better": "worse",
    "worse": "better",
    "away": "towards",
    "towards": "away",
}
RISING_MEANS = {
    **dict.fromkeys(("error rate", "loss", "cost"), "worse"),
    "score": "better",
    "distance": "away",
}
"""The meaning of a rise. A count and a policy loss measure neither."""


def same_value(first: object, second: object) -> bool:
    """Whether two values of a setting are the same: equal numbers, or the same words."""
    words = [" ".join(str(value).split()).casefold() for value in (first, second)]
    try:
        return float(words[0]) == float(words[1])
    except ValueError:
        return words[0] == words[1]


def settings_of(report: Reported, run: ReportedRun) -> dict[str, object]:
    """The settings of a run from its own table, then from other mentions."""
    mentions = [m.settings for m in report.mentions if m.of == run.name]
    places = [*reversed(mentions), run.settings]
    return {key: value for settings in places for key, value in settings.items()}


@dataclass(frozen=True, slots=True)
class RunPair:
    """A run against another, cell by cell."""

    run: ReportedRun
    control: ReportedRun
    by_cell: Mapping[str, Comparison]
    """The cells that both have, with Holm-adjusted p-values; without those of unknown size."""
    overall: Comparison | None
    """The mean over these cells, where there are several and none is part of another."""
    claims: tuple[Claim, ...]
    """What the report says of the two, its verdicts all in the pair's direction."""
    vary: tuple[str, ...]
    differs: tuple[Confound, ...]
    """Settings known of both runs that differ, without those that the comparison is about."""

    @property
    def line(self) -> int | None:
        """Of the first claim that has one, or of the run."""
        return next((claim.line for claim in self.claims if claim.line), self.run.line)

    @property
    def confounded(self) -> bool:
        """Whether more differs than the one thing that a comparison may be about."""
        return len(self.differs) + bool(self.vary) > 1

    @property
    def name(self) -> str:
        """`run / control`."""
        return f"{self.run.name} / {self.control.name}"


def pairs(report: Reported) -> list[RunPair]:
    """Every comparison of the report, each once: runs against their control, where all cells of all
    with one control are one family, then those that it claims."""
    main = report.scoring.control
    own = [
        Claim(
            run=r.name, control=main if r.control is None else r.control, says=r.says, line=r.line
        )
        for r in report.runs
    ]
    scored = [each for each, run in zip(own, report.runs, strict=True) if run.scores or run.right]
    wanted = [(each, "") for each in scored] + [(each, each.run) for each in report.comparisons]
    families: dict[tuple[str, str], list[tuple[ReportedRun, ReportedRun]]] = {}
    known = set[frozenset[str]]()
    for claim, alone in wanted:
        run, control = report.run(claim.run), report.run(claim.control)
        names = frozenset((claim.run, claim.control))
        if run and control and run is not control and names not in known:
            families.setdefault((control.name, alone), []).append((run, control))
            known.add(names)
    claims = [*(claim for claim in own if claim.says), *report.comparisons]
    return [pair for family in families.values() for pair in _family(report, family, claims)]


def _family(
    report: Reported, family: Sequence[tuple[ReportedRun, ReportedRun]], claims: Sequence[Claim]
) -> Iterator[RunPair]:
    """Runs against their one control, corrected together."""
    compared = {run.name: _compare(report, control, run) for run, control in family}
    cells = adjust_family({(n, cell): c for n, of in compared.items() for cell, c in of.items()})
    # Subsets that hold each other have no mean.
    several = {n: [*of.values()] for n, of in compared.items() if len(of) > 1}
    means = {n: compare_means(of) for n, of in several.items() if not report.scoring.nested}
    overall = adjust_family(means)
    for run, control in family:
        turned = tuple(
            c if c.run == run.name else c.model_copy(update={"says": OPPOSITE.get(c.says, c.says)})
            for c in claims
            if {c.run, c.control} == {run.name, control.name}
        )
        vary = next((claim.vary for claim in turned if claim.vary), ())
        before, after = (settings_of(report, each) for each in (control, run))
        shared = before.keys() & after.keys()
        apart = {key for key in shared if not same_value(before[key], after[key])}
        differing = differences(before, after, vary)
        yield RunPair(
            run,
            control,
            {cell: c for (name, cell), c in cells.items() if name == run.name},
            overall.get(run.name),
            turned,
            vary or ("training",) * (control.trained != run.trained),
            tuple(d for d in differing if d.path in apart and d.kind != "declared"),
        )


def _compare(report: Reported, control: ReportedRun, run: ReportedRun) -> dict[str, Comparison]:
    """The cells of both whose numbers of items are known, as two binomials each."""
    after = {cell.name: cell for cell in cells(report, run) if cell.items}
    return {
        one.name: compare_counts(one.successes, one.items, two.successes, two.items)
        for one in cells(report, control)
        if one.items and (two := after.get(one.name))
    }


def compare_means(comparisons: Sequence[Comparison]) -> Comparison:
    """The mean over independent cells, each of the same weight.

    The pooled score test of the mean difference, and Newcombe's limits of the cells, their reaches
    squared and added (Zou and Donner 2008, Statistics in Medicine 27:1693).
    """
    scores = np.array([(c.control_score, c.score) for c in comparisons])
    before, after = map(float, scores.mean(axis=0))
    difference, count = after - before, len(comparisons)

    def interval_at(level: float) -> Interval:
        cells = [(c.difference, c.interval_at(level)) for c in comparisons]
        low = difference - hypot(*(d - i.low for d, i in cells)) / count
        high = difference + hypot(*(i.high - d for d, i in cells)) / count
        return Interval(low, high, "Newcombe, reaches squared and added", level)

    middles = scores.mean(axis=1)
    nulls = middles * (1 - middles) * 2 / np.array([c.items for c in comparisons])
    error = float(np.sqrt(nulls.sum())) / count
    p_value = 1.0 if error == 0 else float(2 * special.ndtr(-abs(difference) / error))
    agreed = agreeing(interval_at, p_value)

    def plan_at(alpha: float) -> tuple[float | None, None]:
        return detectable_from_interval(agreed(1 - alpha).half_width, 1.0, 1 - alpha), None

    return planned(
        Figures(before, after, difference, p_value, agreed),
        plan_at,
        method="mean of binomials without items: score test, Newcombe limits",
        items=sum(c.items for c in comparisons),
    )


def not_comparable(report: Reported) -> Iterator[Finding]:
    """Compared runs that differ in more than what is varied: settings, data, number of items.

    A note where the report says nothing of the two: a table of runs is no comparison yet.
    """
    for pair in pairs(report):
        severity = "error" if pair.claims else "note"
        if pair.confounded:
            shown = "; ".join(f"{c.path}: {c.control} → {c.other}" for c in pair.differs)
            vary = ", ".join(pair.vary) or "–"
            numbers = {"count": len(pair.differs), "what": shown, "vary": vary}
            yield flaw("several_factors", severity, pair.name, pair.line, **numbers)
        for data in (c for c in pair.differs if c.path == DATA and pair.confounded):
            both = {"control": str(data.control), "other": str(data.other)}
            yield flaw("different_data", severity, pair.name, pair.line, **both)
        sides = (pair.control, pair.run)
        sizes = [(cell, *(items_of(report, s, cell) for s in sides)) for cell in pair.by_cell]
        apart = [each for each in sizes if each[1] != each[2]]
        if apart and not any(claim.paired for claim in pair.claims):
            cell, before, after = apart[0]
            numbers = {"control": before, "other": after, "count": len(apart)}
            yield flaw("different_items", severity, at(pair.name, cell), pair.line, **numbers)


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
                numbers = {"setting": key, "here": str(first), "place": place}
                numbers |= {"there": str(value), "other": mention.place}
                yield flaw("label_disagrees", "error", mention.of, mention.line, **numbers)


def same_values(report: Reported) -> Iterator[Finding]:
    """Conditions whose scores agree to the last digit in all cells, or in most of many.

    Scores of 0 and 100 % do not count as agreement, and equal repeats count as one figure.
    """
    scored = [
        (run, {cell.name: cell.values for cell in cells(report, run) if 0 < cell.mean < 1})
        for run in report.runs
    ]
    for (first, before), (second, after) in combinations(scored, 2):
        shared = before.keys() & after.keys()
        equal = [cell for cell in shared if before[cell] == after[cell]]
        figures = sum(len(set(before[cell])) for cell in shared)
        key, severity, fewest = SAME if len(equal) == len(shared) else MOSTLY_SAME
        if figures >= fewest and len(equal) > SHARE_SAME * len(shared):
            numbers = {"equal": len(equal), "cells": len(shared), "figures": figures}
            yield flaw(key, severity, f"{first.name} / {second.name}", second.line, **numbers)


def never_run(report: Reported) -> Iterator[Finding]:
    """Comparisons with a condition that has no result in the report."""
    for claim in report.comparisons:
        for name in (claim.run, claim.control):
            if report.run(name) is None:
                about = f"{claim.run} / {claim.control}"
                yield flaw("never_run", "error", about, claim.line, name=name)


def inside_noise(report: Reported) -> Iterator[Finding]:
    """Compares each of the report's verdicts with the test at the given number of items.

    A verdict on one cell is checked on that cell only. Between runs that are not comparable no
    difference decides anything; one inside the noise is reported all the same.
    """
    for pair in pairs(report):
        whole, rest = [claim for claim in pair.claims if not claim.cells], dict(pair.by_cell)
        of = {cell: [claim for claim in pair.claims if cell in claim.cells] for cell in rest}
        for cell, claims in of.items():
            if verdict_of(claims):
                yield from _one(pair, rest.pop(cell), claims, cell)
        if len(rest) == 1:
            ((cell, comparison),) = rest.items()
            about = cell if len(pair.by_cell) > 1 else ""
            yield from _one(pair, comparison, [*of[cell], *whole], about)
        elif rest:
            yield _several(pair, rest, whole)


def _one(
    pair: RunPair, comparison: Comparison, claims: Sequence[Claim], cell: str
) -> Iterator[Finding]:
    """The flaw, or the note, of a comparison of one cell, unless the report tested it itself."""
    verdict, says = comparison.verdict, verdict_of(claims)
    code, severity, decided = verdict, "note", verdict in DECIDED
    if decided and says not in (None, "undecided", verdict):
        code, severity = "contradicted", "error" if says in DECIDED else "warning"
    elif not decided and says in DECIDED:
        code, severity = "inside_noise", "warning"
    elif says == "same" and verdict != "equivalent":
        code, severity = "no_effect_not_shown", "warning"
    if not (pair.confounded if decided else code == "inside_noise" and any(map(tested, claims))):
        line, numbers = claims[0].line if claims else pair.line, figures(comparison)
        yield flaw(code, severity, at(pair.name, cell), line, **numbers, says=says or "")


def _several(pair: RunPair, by_cell: Mapping[str, Comparison], claims: Sequence[Claim]) -> Finding:
    """The same for several cells: how many of them decide, and which is nearest to noise.

    A claim about the whole is carried by every cell, or by the mean over all of them.
    """
    decided = [cell for cell, c in by_cell.items() if c.verdict in DECIDED]
    says = verdict_of(claims)
    least = max(by_cell, key=lambda cell: by_cell[cell].p_value)
    numbers = figures(by_cell[least]) | {
        "cells": len(by_cell),
        "decided": len(decided),
        "which": ", ".join(decided) or "–",
        "cell": least,
        "says": says or "",
        "fewest": min(c.items for c in by_cell.values()),
    }
    overall, verdict = pair.overall, pair.overall.verdict if pair.overall else None
    carried = verdict == says or all(c.verdict == says for c in by_cell.values())
    code, severity = "cells_judged", "note"
    if overall and says in DECIDED and verdict == OPPOSITE[says] and not pair.confounded:
        code, severity, numbers = "contradicted", "error", figures(overall) | {"says": says}
    elif says in DECIDED and not carried and not any(map(tested, claims)):
        code, severity = "cells_inside_noise", "warning"
    elif says == "same" and (decided or verdict != "equivalent"):
        code, severity = "cells_not_the_same", "warning"
    return flaw(code, severity, pair.name, pair.line, **numbers)


def verdict_of(claims: Sequence[Claim]) -> Verdict | None:
    """The first verdict in them."""
    return next((claim.says for claim in claims if claim.says), None)


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
        numbers = figures(comparison) | {"least": min(sizes), "largest": max(sizes)}
        carried = comparison.verdict in DECIDED
        key = "difference_could_be_real" if carried else "difference_inside_noise"
        severity = "note" if carried or claim.says == "same" else "warning"
        about, fewest = f"{claim.run} / {claim.control}", min(claim.items)
        yield flaw(key, severity, about, claim.line, **numbers, fewest=fewest)


def unpaired(report: Reported) -> Iterator[Finding]:
    """Scores of the same items, compared without pairing them, or without a number of items."""
    drawn = [p for p in pairs(report) if p.by_cell and not any(c.paired for c in p.claims)]
    claims = [claim for claim in report.comparisons if claim.points and not claim.paired]
    if drawn or claims:
        yield flaw("unpaired", "note", report.subject, comparisons=len(drawn) + len(claims))


def repeats_alike(report: Reported) -> Iterator[Finding]:
    """Repeats that vary far less than samples would: they are not further items."""
    scored = (cell for cell in cells(report) if cell.items and 0 < cell.mean < 1)
    repeated = [cell for cell in scored if len(cell.values) > 1]
    if not repeated:
        return
    shares = [np.array([float(v) / cell.scale for v in cell.values]) for cell in repeated]
    spread = float(np.mean([each.std(ddof=1) for each in shares]))
    noise = [(cell.mean * (1 - cell.mean) / cell.items) ** 0.5 for cell in repeated]
    same = [c.run.name for c in repeated if len(c.values) > 2 and len({*c.values}) == 1]
    if spread < np.mean(noise) / 2:
        numbers = {
            "scores": len(repeated),
            "repeats": max(map(len, shares)),
            "spread": spread * 100,
            "error": float(np.mean(noise)) * 100,
            "identical": ", ".join(same) or "–",
        }
        yield flaw("repeats_alike", "note", report.subject, **numbers)


def nested_subsets(report: Reported) -> Iterator[Finding]:
    """Agreement over subsets that hold each other, taken as repeated evidence."""
    drawn = [p for p in pairs(report) if len(p.by_cell) > 1]
    sizes = {items for claim in report.comparisons for items in claim.items}
    sizes |= {c.items for pair in drawn for c in pair.by_cell.values()}
    if report.scoring.nested and len(sizes) > 1:
        numbers = {"sizes": ", ".join(map(str, sorted(sizes))), "largest": max(sizes)}
        yield flaw("nested_subsets", "warning", report.scoring.benchmark, **numbers)


def misread_direction(report: Reported) -> Iterator[Finding]:
    """Conclusions that contradict the direction in which their metric went."""
    for metric in report.metrics:
        shown = metric.values or metric.counts
        if len(shown) < 2 or metric.reads in (None, "stable") or shown[-1] == shown[0]:
            continue
        numbers = {"readings": " → ".join(map(str, shown)), "reads": metric.reads}
        rising = RISING_MEANS.get(metric.meaning or "", "")
        means = rising if shown[-1] > shown[0] else OPPOSITE.get(rising, "")
        if metric.meaning == "policy loss":
            yield flaw("policy_loss_read", "warning", metric.name, metric.line, **numbers)
        elif metric.reads == OPPOSITE.get(means):
            key = "distance_misread" if metric.meaning == "distance" else "misread_direction"
            yield flaw(key, "error", metric.name, metric.line, **numbers, means=means)


def cause_without_effect(report: Reported) -> Iterator[Finding]:
    """A count of effects below the count of their stated cause."""
    for claim in report.causes:
        metrics = map(report.metric, (claim.cause, claim.effect))
        before, after = (metric.counts or metric.values for metric in metrics)
        if before and after and after[-1] < before[-1]:
            numbers = {"effects": after[-1], "causes": before[-1], "cause": claim.cause}
            yield flaw("cause_without_effect", "error", claim.effect, claim.line, **numbers)


def effect_without_control(report: Reported) -> Iterator[Finding]:
    """Claims that something works, or does not, without a run that lacks it."""
    for claim in report.effects:
        if report.run(claim.control) is None:
            yield flaw("effect_without_control", "warning", claim.what, claim.line, says=claim.says)


def left_open(report: Reported) -> Iterator[Finding]:
    """Everything that was to be filled in, counted."""
    places = [(part.place, part.count) for part in report.open]
    places += [(run.name, 1) for run in report.runs if not run.finished]
    if places:
        shown = ", ".join(f"{place} ({count})" if count > 1 else place for place, count in places)
        numbers = {"count": sum(count for _, count in places), "places": len(places)}
        yield flaw("left_open", "note", report.about, **numbers, where=shown)
