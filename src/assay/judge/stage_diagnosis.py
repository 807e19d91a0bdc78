"""Rules over the metrics of one training stage: what went wrong, with evidence and advice.

Checks the rules of `health_rules`. Rules look at the last steps, so that they say what is wrong
now. Stopping a run is a guard's part, not theirs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.judge.findings import Finding, Severity
from assay.judge.health_checks import CHECKS, Dev, Evidence, Line, Spending, values_of
from assay.judge.health_rules import RULES, WINDOW, Advice, Rule
from assay.judge.health_words import ENGLISH
from assay.judge.identity import IDENTITY_RULES
from assay.judge.plural import filled


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a rule found, as keys of a catalogue and the figures that fill them."""

    rule: str
    severity: Severity
    evidence: str
    """The template of the evidence."""
    figures: Mapping[str, str]
    """Figures as text; numbers are written alike in every language."""
    advice: tuple[str, ...]


def diagnose(
    lines: Sequence[Line], dev: Dev = (), spending: Sequence[Spending] = ()
) -> list[Diagnosis]:
    """What the rules find in the steps of one stage, worst first.

    The rules of `identity`, on numbers that contradict each other, are among them.

    Raises what `judge.paired.compare` raises for `dev`.
    """
    evidence = Evidence([derived(line) for line in lines], dev, spending)
    found = [
        Diagnosis(name, severity, template, figures, _advice(rule, evidence.lines))
        for name, rule in RULES.items()
        for severity, template, figures in CHECKS[rule.kind](rule, evidence)
    ]
    found += [
        Diagnosis(name, each.severity, "contradiction", {"evidence": each.evidence}, (name,))
        for name, contradicts in IDENTITY_RULES.items()
        if (each := contradicts(lines)) is not None
    ]
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda each: order[each.severity])


def worded(found: Diagnosis, words: Mapping[str, Mapping[str, str]] = ENGLISH) -> Finding:
    """A diagnosis in words; `words` has the sections of `health_words.ENGLISH`."""
    return Finding(
        found.severity,
        words["health"][found.rule],
        filled(words["health_evidence"][found.evidence], found.figures),
        "; ".join(words["health_advice"][key] for key in found.advice),
    )


def derived(line: Line) -> Line:
    """A line with the metrics that follow from others."""
    more: dict[str, float] = {}
    tokens, seconds = line.get("completion_tokens", line.get("tokens")), line.get("seconds")
    if tokens and seconds:
        more["tokens_per_second"] = tokens / seconds
    clipped = [line[key] for key in ("clip_low_share", "clip_high_share") if key in line]
    if clipped and None not in clipped:
        more["clipped_share"] = sum(clipped)
    return {**line, **more}


def _advice(rule: Rule, lines: Sequence[Line]) -> tuple[str, ...]:
    """The advice whose condition holds."""
    return tuple(dict.fromkeys(each.key for each in rule.advice if _holds(each, lines)))


def _holds(advice: Advice, lines: Sequence[Line]) -> bool:
    if not advice.metric:
        return True
    recent = values_of(lines, advice.metric)[-WINDOW:]
    if not recent:
        return False
    value = float(np.mean(recent))
    over = advice.above is not None and value > advice.above
    under = advice.below is not None and value < advice.below
    return over or under
