"""What is known of the judge behind the scores of a comparison, and the scores that labels correct.

A judge is held to the labels that the runs hold (`runs.judge_file`); labels of answers that are
compared correct the scores.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

import numpy as np
from scipy import special

from assay.compare.arm import Arm
from assay.data.hashing import canonical_json, sha256_text
from assay.errors import Finding, finding
from assay.judge.cluster_robust import item_mean
from assay.judge.families import holm
from assay.judge.intervals import Estimate
from assay.judge.label_agreement import (
    Agreement,
    Injected,
    Leanings,
    agreement_on,
    injected,
    leanings,
)
from assay.judge.prediction_powered import Corrected, corrected_mean
from assay.judge.scores import Array
from assay.judge.verdict import ALPHA, Verdict
from assay.runs.judge_file import JudgedLabels, read_judged
from assay.runs.run_directory import RunDirectory
from assay.tasks.rubric import NEUTRAL

RUBRIC = "rubric"
"""The option of a record that holds the rubric of its judge."""
FEWEST = 10
"""Items with fewer labels correct no score."""
CHOSEN = 0.001
"""Labelled answers that the judge scores otherwise than the rest, at this level, were not drawn at
random."""

Trust = Literal["unknown", "below", "unsure", "shown"]


@dataclass(frozen=True)
class HeldJudge:
    """A judge beside the labels that it was held to."""

    stored: JudgedLabels
    agreements: tuple[Agreement, ...]
    leanings: Leanings | None
    injected: tuple[Injected, ...]

    @property
    def abstained(self) -> int:
        """Labelled answers without a verdict."""
        return sum(each.score is None for each in self.stored.judged)

    @property
    def trust(self) -> Trust:
        """Whether every criterion's kappa is shown to be what the rubric asks for."""
        kappas = [each.kappa for each in self.agreements]
        least = self.stored.least_kappa
        if len(kappas) < len(self.stored.levels) or any(kappa is None for kappa in kappas):
            return "unknown"
        if any(kappa.value < least for kappa in kappas if kappa):
            return "below"
        lows = [kappa.interval.low for kappa in kappas if kappa and kappa.interval]
        return "unsure" if any(low < least for low in lows) else "shown"


@dataclass(frozen=True)
class JudgedBy:
    """The judge of the scores of a table."""

    rubric: Mapping[str, Any]
    held: HeldJudge | None
    """None where nobody labelled anything."""
    scores: Mapping[str, Corrected] = field(default_factory=dict)
    """By the name of the line; without those that too few labels are of."""
    differences: Mapping[str, Corrected] = field(default_factory=dict)
    """To the control, by labels of both; p-values are corrected for the family."""
    findings: tuple[Finding, ...] = ()

    def verdict(self, name: str) -> Verdict | None:
        """The corrected verdict of a line against the control; None where there is none."""
        found = self.differences.get(name)
        if found is None:
            return None
        if found.p_value >= ALPHA:
            return "undecided"
        return "better" if found.value > 0 else "worse"

    def refusal(self, name: str) -> str:
        """Why no verdict on a line passes a gate; "" where one may: it is corrected, or the judge
        agrees with people as the rubric asks."""
        if name in self.differences or (self.held and self.held.trust in ("unsure", "shown")):
            return ""
        if self.held is None or self.held.trust == "unknown":
            return "is scored by a judge whose agreement with people is unknown"
        return "is scored by a judge that agrees less with people than its rubric asks"


def held_judges(run: RunDirectory) -> list[HeldJudge]:
    """The judges that a run holds labels for. Raises DamagedFile."""
    return [held(each) for each in read_judged(run)]


def held(stored: JudgedLabels) -> HeldJudge:
    """A judge with its figures."""
    found = (agreement_on(n, levels, stored.judged) for n, levels in stored.levels.items())
    tried = (
        injected(kind, [(each.item, each.before, each.after) for each in canaries])
        for kind, canaries in groupby(stored.canaries, key=lambda each: each.kind)
    )
    return HeldJudge(
        stored,
        tuple(each for each in found if each is not None),
        leanings(stored.judged),
        tuple(each for each in tried if each is not None),
    )


def judged_by(arms: Sequence[Arm]) -> JudgedBy | None:
    """The judge of arms that one rubric judged, the control first; None for other scores. Raises
    DamagedFile."""
    origins = [arm.provenance for arm in arms if arm.provenance is not None]
    rubrics = [canonical_json(each.record.options.get(RUBRIC, {})) for each in origins]
    if len(origins) < len(arms) or {*rubrics} != {rubrics[0]} or rubrics[0] == "{}":
        return None
    runs = dict.fromkeys(each.run for each in origins)
    stored = [
        each
        for run in runs
        for each in read_judged(run)
        if canonical_json(each.settings) == rubrics[0]
    ]
    rubric = origins[0].record.options[RUBRIC]
    if not stored:
        return JudgedBy(rubric, None, findings=(finding("judge_unknown", "warning"),))
    judge = held(_pooled(stored))
    labels = {(each.item, each.sha256): each.wanted for each in judge.stored.judged}
    columns = {arm.name: _columns(arm, labels) for arm in arms if not arm.seeds}
    known = {name: each for name, each in columns.items() if each.labelled >= FEWEST}
    differences = {}
    for name in [arm.name for arm in arms[1:] if arm.name in columns]:
        if arms[0].name in columns:
            change = columns[name].less(columns[arms[0].name])
            if change.labelled >= FEWEST:
                differences[name] = change.corrected(difference=True)
    adjusted = holm([each.p_value for each in differences.values()])
    differences = {
        name: replace(each, p_value=p)
        for (name, each), p in zip(differences.items(), adjusted, strict=True)
    }
    chosen = [name for name, each in known.items() if each.chosen]
    found = [*judge_findings(judge), *(finding("judge_chosen", "warning", name=n) for n in chosen)]
    scores = {name: each.corrected() for name, each in known.items()}
    return JudgedBy(rubric, judge, scores, differences, tuple(found))


def _pooled(stored: Sequence[JudgedLabels]) -> JudgedLabels:
    """The labels of several runs, each answer once, with its verdict where one run has it."""
    every: dict[tuple[str, str], Any] = {}
    for each in (one for file in stored for one in file.judged):
        place = each.item, each.sha256
        if place not in every or every[place].score is None:
            every[place] = each
    return replace(stored[0], judged=[*every.values()])


@dataclass(frozen=True)
class _Columns:
    """The I items of an arm: the judge's mean, the labels' mean, the judge's beside labels."""

    items: Sequence[str]
    judged_I: Array
    labels_I: Array
    beside_I: Array
    clusters: tuple[str, ...] | None
    bounds: tuple[float, float]

    @property
    def labelled(self) -> int:
        """Items with a label."""
        return int((~np.isnan(self.labels_I)).sum())

    @property
    def chosen(self) -> bool:
        """Whether the judge scores the labelled answers otherwise than the rest."""
        known = ~np.isnan(self.labels_I) & ~np.isnan(self.beside_I)
        rest = np.isnan(self.labels_I) & ~np.isnan(self.judged_I)
        if known.sum() < FEWEST or rest.sum() < FEWEST:
            return False
        sides = [
            item_mean(self.beside_I[known], None, self.bounds),
            item_mean(self.judged_I[rest], None, self.bounds),
        ]
        error = float(np.hypot(*(each.standard_error for each in sides)))
        gap = abs(float(sides[0].mean - sides[1].mean))
        return gap > 0 and (error == 0 or 2 * special.ndtr(-gap / error) < CHOSEN)

    def less(self, control: "_Columns") -> "_Columns":
        """The differences to a control on the items of both."""
        places = {item: n for n, item in enumerate(control.items)}
        mine = [n for n, item in enumerate(self.items) if item in places]
        theirs = [places[self.items[n]] for n in mine]
        width = self.bounds[1] - self.bounds[0]
        return _Columns(
            [self.items[n] for n in mine],
            self.judged_I[mine] - control.judged_I[theirs],
            self.labels_I[mine] - control.labels_I[theirs],
            self.beside_I[mine] - control.beside_I[theirs],
            None if self.clusters is None else tuple(self.clusters[n] for n in mine),
            (-width, width),
        )

    def corrected(self, *, difference: bool = False) -> Corrected:
        """The corrected mean."""
        given = self.judged_I, self.labels_I, self.beside_I, self.clusters, self.bounds
        return corrected_mean(*given, difference=difference)


def _columns(arm: Arm, labels: Mapping[tuple[str, str], float]) -> _Columns:
    """The items of an arm with the labels of its answers."""
    wanted: dict[str, list[tuple[float, float]]] = {}
    answers = zip(arm.outputs.items(), arm.judged, strict=True) if arm.outputs else ()
    for ((item, _), output), (score, _, _) in answers:
        label = labels.get((item, sha256_text(output)))
        if label is not None:
            wanted.setdefault(item, []).append((label, np.nan if score is None else score))
    labels_I, beside_I = np.full((2, len(arm.scores.item_ids)), np.nan)
    for n, item in enumerate(arm.scores.item_ids):
        if pairs := wanted.get(item):
            label_sum, scores = sum(pair[0] for pair in pairs), [pair[1] for pair in pairs]
            known = [score for score in scores if not np.isnan(score)]
            labels_I[n] = label_sum / len(pairs)
            beside_I[n] = sum(known) / len(known) if known else np.nan
    scores = arm.scores
    given = labels_I, beside_I, scores.clusters, scores.bounds
    return _Columns(scores.item_ids, scores.item_means, *given)


def judge_findings(judge: HeldJudge) -> Iterator[Finding]:
    """What people should know before they read a score of this judge."""
    stored, trust = judge.stored, judge.trust
    if trust == "unknown":
        yield finding("judge_unknown", "warning")
    elif trust != "shown":
        shown = [
            (each.name, each.kappa.value, each.kappa.interval)
            for each in judge.agreements
            if each.kappa and each.kappa.interval
        ]
        by_value = trust == "below"
        name, kappa, interval = min(shown, key=lambda of: of[1] if by_value else of[2].low)
        ends = {"low": interval.low, "high": interval.high}
        values = {"criterion": name, "kappa": kappa, "least": stored.least_kappa}
        if trust == "below":
            yield finding("judge_below", "warning", **values, **ends)
        else:
            yield finding("judge_unsure", "note", **values, **ends)
    for each in judge.injected:
        if each.kind != NEUTRAL and each.rise.interval and each.rise.interval.low > 0:
            yield _leaning("judge_fooled", each.rise, f"canary.{each.kind}")
    found = judge.leanings
    if found is None:
        return
    if found.length is not None:
        yield from _shown(found.length, 0.0, ("judge.leans_short", "judge.leans_long"))
    if found.own is not None:
        yield from _shown(found.own, 0.0, ("judge.leans_others", "judge.leans_own"))
    if found.position is not None and not stored.settings["both_orders"]:
        first = found.position.first
        yield from _shown(first, 0.5, ("judge.leans_second", "judge.leans_first"))


def _shown(found: Estimate, fair: float, words: tuple[str, str]) -> Iterable[Finding]:
    """A finding where the interval lies below or above what is fair."""
    if found.interval is not None and not found.interval.low <= fair <= found.interval.high:
        yield _leaning("judge_leans", found, words[found.value > fair])


def _leaning(code: str, found: Estimate, how: str) -> Finding:
    assert found.interval is not None
    values = {"value": found.value, "low": found.interval.low, "high": found.interval.high}
    return finding(code, "warning", **values, count=found.trials, words={"how": how})
