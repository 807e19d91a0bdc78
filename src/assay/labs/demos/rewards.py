"""Rewards of selections: what the frozen model's answer is worth.

`accuracy` is the benchmark's own score, to the letter. The modes are for stages: pure functions of
what is known of an outcome, Lever-Plus's (reports 002 and 004), whose keyword parameters are the
options of the reward; they abstain from empty predictions and from fallbacks. A selection that the
query does not allow earns 0.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from assay.data.episode import Reward
from assay.errors import InputError
from assay.judge.identity import FALLBACK
from assay.labs.demos.demonstrations import picks_of
from assay.labs.demos.outcomes import FROZEN, Selection, SelectionOutcome, ask, judge
from assay.tasks.helper_model import HelperModel
from assay.tasks.judge_reward import JudgeReward, Pair
from assay.tasks.reward_table import CORRECT

HELD = 5.0
"""Rewards are held in [-5, 5]."""


@dataclass(frozen=True, slots=True)
class OutcomeFacts:
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

    @property
    def correct(self) -> float:
        """1 where anything was scored, accuracy above 0, else 0."""
        return float(self.accuracy > 0)

    def need(self, name: str) -> float:
        """A value that a mode reads. Raises LookupError."""
        if (value := getattr(self, name)) is None:
            raise LookupError(f"its {name} was not noted")
        return value


Mode = Callable[..., float]
"""The value of `OutcomeFacts`; weights are keyword parameters with defaults."""


def hard_plus_soft(known: OutcomeFacts, *, hard: float = 1.0, soft: float = 1.0) -> float:
    """hard * correct + soft * accuracy: 0 to 2."""
    return hard * known.correct + soft * known.accuracy


def hard_plus_gtprob_plus_rel(
    known: OutcomeFacts, *, hard: float = 1.0, soft: float = 1.0, relevance: float = 0.1
) -> float:
    """hard * correct + soft * the probability of the right answers + relevance * (1 - correct) *
    the prediction's likeness to a right answer."""
    near = relevance * (1 - known.correct) * known.need("relevance") if relevance else 0.0
    return hard * known.correct + soft * known.need("gold_probability") + near


MODES: Mapping[str, Mode] = {
    "hard_plus_soft": hard_plus_soft,
    "separated": partial(hard_plus_soft, hard=2.0),
    "hard_only": partial(hard_plus_soft, soft=0.0),
    "soft_only": partial(hard_plus_soft, hard=0.0),
    "hard01_plus_gtprob": partial(hard_plus_gtprob_plus_rel, relevance=0.0),
    "hard_plus_gtprob_plus_rel": hard_plus_gtprob_plus_rel,
}
"""By the name of the reward."""
LIKELY = frozenset(name for name in MODES if "gtprob" in name)
"""Modes that read the probability of the right answers."""


def reward_of_known(
    mode: Mode,
    known: OutcomeFacts | None,
    skip_fallback: bool,
    facts: Mapping[str, str | float] | None = None,
) -> Reward:
    """The reward of an outcome, held in [-5, 5]; the parts are what the modes read.

    Abstains where nothing is known or nothing scored the answer, where a fallback did and those are
    skipped, where the prediction is empty, and where the mode reads what was not noted.
    """
    if known is None:
        return Reward(None, why="its facts name no accuracy")
    parts = {CORRECT: known.correct, "accuracy": known.accuracy}
    parts[FALLBACK] = float(known.eval_mode == "fallback")
    optional = {"gold_probability": known.gold_probability, "relevance": known.relevance}
    parts |= {name: value for name, value in optional.items() if value is not None}
    facts = facts or {}
    if why := _no_reward(known, skip_fallback):
        return Reward(None, why=why, facts=facts)
    try:
        value = mode(known)
    except LookupError as missing:
        return Reward(None, why=str(missing), facts=facts)
    outcome = "right" if known.accuracy >= 1 else "wrong"
    return Reward(min(max(value, -HELD), HELD), parts, outcome=outcome, facts=facts)


def _no_reward(known: OutcomeFacts, skip_fallback: bool) -> str:
    """Why no mode may reward an outcome; "" if they may."""
    if known.eval_mode == "error" or not math.isfinite(known.accuracy):
        return "no metric scored the answer"
    if known.eval_mode == "fallback" and skip_fallback:
        return "a fallback scored the answer, not the official metric"
    if known.prediction is not None and not known.prediction.strip():
        return "the prediction is empty"
    return ""


def known_of(candidate: Mapping[str, Any]) -> OutcomeFacts | None:
    """What a stored candidate holds; None where its facts name no accuracy."""
    facts = candidate.get("facts") or {}
    if not isinstance(facts.get("accuracy"), int | float):
        return None
    numbers = {name: facts.get(name) for name in ("gold_probability", "relevance")}
    mode = str(facts.get("eval_mode", "official"))
    return OutcomeFacts(float(facts["accuracy"]), mode, facts.get("prediction"), **numbers)


def facts_of(outcome: SelectionOutcome) -> dict[str, str | float]:
    """What records say of an outcome: any mode can be computed from it."""
    likely = outcome.gold_probability
    return {
        "generation": outcome.generation,
        "prediction": outcome.prediction,
        "eval_mode": outcome.accuracy.mode,
        "accuracy": outcome.accuracy.score,
        "relevance": outcome.relevance,
        **({} if likely is None else {"gold_probability": likely}),
    }


def judge_outcomes(
    pairs: Sequence[Pair],
    asking: Callable[[Sequence[Selection]], Sequence[SelectionOutcome]],
    rewarding: Callable[[SelectionOutcome], Reward],
) -> list[Reward]:
    """The rewards of the outcomes of selections, in order; 0 for one that is not allowed."""
    rewards: list[Reward | None] = [None] * len(pairs)
    questions: dict[int, Selection] = {}
    for n, (row, completion) in enumerate(pairs):
        try:
            questions[n] = row, picks_of(row, completion.text)
        except InputError as bad:
            rewards[n] = Reward(0.0, why=bad.problem, outcome="not allowed")
    outcomes = asking([*questions.values()])
    for n, outcome in zip(questions, outcomes, strict=True):
        rewards[n] = rewarding(outcome)
    return [each for each in rewards if each is not None]


def earned(outcome: SelectionOutcome) -> Reward:
    """The accuracy of an outcome; an abstention where nothing could score it."""
    score, mode = outcome.accuracy.score, outcome.accuracy.mode
    if mode == "error":
        return Reward(None, why=f"no metric: {outcome.accuracy.why}", facts=facts_of(outcome))
    return Reward(
        score,
        {"relevance": outcome.relevance, FALLBACK: float(mode == "fallback")},
        why=outcome.accuracy.why,
        outcome="right" if score >= 1 else "wrong",
        facts=facts_of(outcome),
    )


def mode_reward(name: str, skip_fallback: bool = True, **weights: Any) -> JudgeReward:
    """The reward of a mode, with its weights; `skip_fallback` abstains where a fallback scored."""
    mode = partial(MODES[name], **weights)
    likely = name in LIKELY

    def rewarding(outcome: SelectionOutcome) -> Reward:
        facts = facts_of(outcome)
        return reward_of_known(mode, known_of({"facts": facts}), skip_fallback, facts)

    def judge_selections(pairs: Sequence[Pair], helpers: Mapping[str, HelperModel]) -> list[Reward]:
        asking = judge if likely else ask
        return judge_outcomes(
            pairs, lambda questions: asking(helpers[FROZEN], questions), rewarding
        )

    def of_stored(candidate: Mapping[str, Any]) -> Reward:
        return reward_of_known(mode, known_of(candidate), skip_fallback)

    return JudgeReward(
        judge_selections,
        helpers=(FROZEN,),
        batch=None,
        # What a right answer that is certain earns.
        maximum=min(mode(OutcomeFacts(1.0, gold_probability=1.0, relevance=1.0)), HELD),
        maker=maker_of(name),
        of_stored=of_stored,
    )


def maker_of(name: str) -> Callable[..., JudgeReward]:
    """Makes the reward of a mode with other options: the mode's own weights, and
    `skip_fallback`."""

    def make(**options: Any) -> JudgeReward:
        return mode_reward(name, **options)

    own = [
        p for p in inspect.signature(MODES[name]).parameters.values() if p.kind is p.KEYWORD_ONLY
    ]
    skip = inspect.signature(mode_reward).parameters["skip_fallback"]
    skip = skip.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    make.__signature__ = inspect.Signature([*own, skip])  # type: ignore[attr-defined]
    return make


def stored_accuracy(candidate: Mapping[str, Any]) -> Reward:
    """The accuracy that a stored candidate notes; an abstention where nothing scored it."""
    known = known_of(candidate)
    if known is None or known.eval_mode == "error":
        return Reward(None, why="its facts name no accuracy")
    return reward_of_known(MODES["soft_only"], replace(known, prediction=None), skip_fallback=False)


accuracy = JudgeReward(
    lambda pairs, helpers: judge_outcomes(
        pairs, lambda choices: ask(helpers[FROZEN], choices), earned
    ),
    helpers=(FROZEN,),
    batch=None,
    of_stored=stored_accuracy,
)
"""The score of the benchmark, 0 to 1."""

REWARDS = {"accuracy": accuracy, **{name: mode_reward(name) for name in MODES}}
