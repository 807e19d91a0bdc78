"""Reward modes: what a selection earns, as pure functions of what is known of its outcome.

The modes are Lever-Plus's (reports 002 and 004). Their keyword parameters are the options of the
reward that is named after them. Nothing is asked here: `rewards` does that, for new selections.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from assay.data.episode import Reward
from assay.judge.identity import FALLBACK
from assay.tasks.reward_table import CORRECT

HELD = 5.0
"""Rewards are held in [-5, 5]."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the outcome of a selection; None is what was not noted."""

    accuracy: float
    """The metric's score, 0 to 1."""
    eval_mode: str = "official"
    """One of `outcomes.EvalMode`."""
    prediction: str | None = None
    gold_probability: float | None = None
    """0 to 1."""
    relevance: float | None = None
    """0 to 1."""
    score: float | None = None
    """What a beam ranked the selection by, such as its InfoScore."""
    logp: float | None = None
    """The selection's log-probability where it was picked."""

    @property
    def correct(self) -> float:
        """1 where anything was scored, accuracy above 0, else 0."""
        return float(self.accuracy > 0)


class NotKnown(Exception):
    """A mode reads what was not noted; the selection's reward abstains."""


def needed(value: float | None, name: str) -> float:
    """A value that a mode reads. Raises NotKnown."""
    if value is None:
        raise NotKnown(f"its {name} was not noted")
    return value


Mode = Callable[..., float]
"""The value of a `Known`; weights are keyword parameters with defaults."""


def hard_plus_soft(known: Known, *, hard: float = 1.0, soft: float = 1.0) -> float:
    """hard * correct + soft * accuracy: 0 to 2."""
    return hard * known.correct + soft * known.accuracy


def hard_plus_soft_v2(known: Known, *, hard: float = 1.0, soft: float = 1.0) -> float:
    """soft * accuracy + 2 * hard * correct: 0 to 3."""
    return soft * known.accuracy + 2 * hard * known.correct


def separated(known: Known, *, hard: float = 1.0, soft: float = 1.0) -> float:
    """2 * hard + soft * accuracy where it is correct, soft * accuracy elsewhere."""
    return (2 * hard if known.correct else 0.0) + soft * known.accuracy


def hard_only(known: Known, *, hard: float = 1.0) -> float:
    """hard * correct."""
    return hard * known.correct


def soft_only(known: Known, *, soft: float = 1.0) -> float:
    """soft * accuracy."""
    return soft * known.accuracy


def hard01_plus_gtprob(known: Known, *, hard: float = 1.0, soft: float = 1.0) -> float:
    """hard * correct + soft * the probability of the right answers."""
    return hard * known.correct + soft * _likely(known)


def hard01_plus_gtprob_separated(known: Known, *, hard: float = 1.0, soft: float = 1.0) -> float:
    """2 * hard + soft * the probability of the right answers where it is correct, else the second
    term alone."""
    return (2 * hard if known.correct else 0.0) + soft * _likely(known)


def hard_plus_gtprob_plus_rel(
    known: Known, *, hard: float = 1.0, soft: float = 1.0, relevance: float = 0.1
) -> float:
    """hard * correct + soft * the probability of the right answers + relevance * (1 - correct) *
    the prediction's likeness to a right answer."""
    likeness = needed(known.relevance, "relevance")
    near = relevance * (1 - known.correct) * likeness
    return hard * known.correct + soft * _likely(known) + near


def legacy(
    known: Known,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    signed: bool = False,
    logp: bool = False,
) -> float:
    """alpha * quality + beta * correctness.

    Quality is the score that a beam ranked by, with `logp` minus the selection's log-probability;
    correctness is 0 or 1, with `signed` -1 or 1.
    """
    quality = -needed(known.logp, "logp") if logp else needed(known.score, "score")
    correctness = 2 * known.correct - 1 if signed else known.correct
    return alpha * quality + beta * correctness


def _likely(known: Known) -> float:
    return needed(known.gold_probability, "gold_probability")


MODES: Mapping[str, Mode] = {
    mode.__name__: mode
    for mode in (
        hard_plus_soft,
        hard_plus_soft_v2,
        separated,
        hard_only,
        soft_only,
        hard01_plus_gtprob,
        hard01_plus_gtprob_separated,
        hard_plus_gtprob_plus_rel,
        legacy,
    )
}
"""By the name of the reward."""
LIKELY = frozenset(name for name in MODES if "gtprob" in name)
"""Modes that read the probability of the right answers."""


def reward_of_known(
    mode: Mode, known: Known, skip_fallback: bool, facts: Mapping[str, str | float] | None = None
) -> Reward:
    """The reward of an outcome, held in [-5, 5]; the parts are what the modes read.

    Abstains where nothing scored the answer, where a fallback did and those are skipped, where the
    prediction is empty, and where the mode reads what was not noted.
    """
    parts = {CORRECT: known.correct, "accuracy": known.accuracy}
    parts[FALLBACK] = float(known.eval_mode == "fallback")
    optional = {"gold_probability": known.gold_probability, "relevance": known.relevance}
    parts |= {name: value for name, value in optional.items() if value is not None}
    found = facts or {}
    if why := _no_reward(known, skip_fallback):
        return Reward(None, why=why, facts=found)
    try:
        value = mode(known)
    except NotKnown as missing:
        return Reward(None, why=str(missing), facts=found)
    outcome = "right" if known.accuracy >= 1 else "wrong"
    return Reward(min(max(value, -HELD), HELD), parts, outcome=outcome, facts=found)


def _no_reward(known: Known, skip_fallback: bool) -> str:
    """Why no mode may reward an outcome; "" if they may."""
    if known.eval_mode == "error" or not math.isfinite(known.accuracy):
        return "no metric scored the answer"
    if known.eval_mode == "fallback" and skip_fallback:
        return "a fallback scored the answer, not the official metric"
    if known.prediction is not None and not known.prediction.strip():
        return "the prediction is empty"
    return ""


def known_of(candidate: Mapping[str, Any]) -> Known | None:
    """What a stored candidate holds; None where its facts name no accuracy."""
    facts = candidate.get("facts") or {}
    if not isinstance(facts.get("accuracy"), int | float):
        return None
    numbers = {name: facts.get(name) for name in ("gold_probability", "relevance")}
    ranked = {name: candidate.get(name) for name in ("score", "logp")}
    said = facts.get("prediction"), str(facts.get("eval_mode", "official"))
    return Known(float(facts["accuracy"]), said[1], said[0], **numbers, **ranked)


def full_value(mode: Mode) -> float:
    """What a mode gives a right answer that is certain; infinite where a score adds to it."""
    try:
        return min(max(mode(Known(1.0, gold_probability=1.0, relevance=1.0)), -HELD), HELD)
    except NotKnown:
        return math.inf
