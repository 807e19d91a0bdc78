"""What is known of the judge behind the scores of a comparison: its agreement with the labels that
the runs hold (`runs.judge_file`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay.compare.arm import Arm
from assay.data.hashing import canonical_json
from assay.errors import Finding, finding
from assay.judge.intervals import Estimate
from assay.judge.label_agreement import kappa_on
from assay.runs.judge_file import JudgedLabels, read_judged

RUBRIC = "rubric"
"""The option of a record that holds the rubric of its judge."""

Trust = Literal["unknown", "below", "unsure", "shown"]


@dataclass(frozen=True)
class HeldJudge:
    """A judge beside the labels that it was held to."""

    stored: JudgedLabels
    kappas: Mapping[str, Estimate | None]
    """By criterion; None where it has no value."""

    @property
    def worst(self) -> tuple[str, Estimate] | None:
        """The criterion that is agreed on least; None where one has no kappa."""
        found = [(name, kappa) for name, kappa in self.kappas.items() if kappa is not None]
        if not found or len(found) < len(self.kappas):
            return None
        least = self.stored.least_kappa
        low = [(n, k) for n, k in found if k.value < least]
        return min(low or found, key=lambda each: each[1].value if low else _low(each[1]))

    @property
    def trust(self) -> Trust:
        """Whether every criterion's kappa is shown to be what the rubric asks for."""
        if self.worst is None:
            return "unknown"
        _, kappa = self.worst
        least = self.stored.least_kappa
        if kappa.value < least:
            return "below"
        return "unsure" if _low(kappa) < least else "shown"


def _low(kappa: Estimate) -> float:
    return kappa.value if kappa.interval is None else kappa.interval.low


@dataclass(frozen=True)
class JudgedBy:
    """The judge of the scores of a table."""

    rubric: Mapping[str, Any]
    held: HeldJudge | None
    """None where nobody labelled anything."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What people should know before they read a score of this judge."""
        worst = self.held and self.held.worst
        if self.held is None or not worst:
            return (finding("judge_unknown", "warning"),)
        name, kappa = worst
        assert kappa.interval is not None, "kappa_on gives one"
        ends = {"low": kappa.interval.low, "high": kappa.interval.high}
        least = {"least": self.held.stored.least_kappa}
        values = {"criterion": name, "kappa": kappa.value, **least, **ends}
        if self.held.trust == "below":
            return (finding("judge_below", "warning", **values),)
        return (finding("judge_unsure", "note", **values),) if self.held.trust == "unsure" else ()

    @property
    def refusal(self) -> str:
        """Why no verdict passes a gate; "" where one may: the judge agrees with people as the
        rubric asks."""
        if self.held is None or self.held.trust == "unknown":
            return "is scored by a judge whose agreement with people is unknown"
        if self.held.trust == "below":
            return "is scored by a judge that agrees less with people than its rubric asks"
        return ""


def held(stored: JudgedLabels) -> HeldJudge:
    """A judge with its figures."""
    kappas = {name: kappa_on(name, each, stored.judged) for name, each in stored.levels.items()}
    return HeldJudge(stored, kappas)


def judged_by(arms: Sequence[Arm]) -> JudgedBy | None:
    """The judge of arms that one rubric judged; None for other scores. Raises DamagedFile."""
    origins = [arm.provenance for arm in arms if arm.provenance is not None]
    rubrics = [canonical_json(each.record.options.get(RUBRIC, {})) for each in origins]
    if len(origins) < len(arms) or {*rubrics} != {rubrics[0]} or rubrics[0] == "{}":
        return None
    stored = [
        each
        for run in dict.fromkeys(each.run for each in origins)
        for each in read_judged(run)
        if canonical_json(each.settings) == rubrics[0]
    ]
    most = max(stored, key=lambda each: len(each.judged), default=None)
    return JudgedBy(origins[0].record.options[RUBRIC], most and held(most))
