"""Rewards of selections: what the frozen model's answer is worth.

`accuracy` is the benchmark's own score, to the letter. The modes of `reward_modes` are for stages:
they abstain from empty predictions and from fallbacks. A selection that the query does not allow
earns 0.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from assay.data.episode import Reward
from assay.judge.identity import FALLBACK
from assay.tasks.demos.demonstrations import BadSelection
from assay.tasks.demos.frozen import FROZEN, Selection, ask, judge
from assay.tasks.demos.outcomes import SelectionOutcome
from assay.tasks.demos.reward_modes import (
    LIKELY,
    MODES,
    Known,
    full_value,
    known_of,
    reward_of_known,
    soft_only,
)
from assay.tasks.demos.selections import picks_of
from assay.tasks.helper_model import HelperModel
from assay.tasks.judge_reward import JudgeReward, Pair


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


def judge_accuracy(pairs: Sequence[Pair], helpers: Mapping[str, HelperModel]) -> list[Reward]:
    """The accuracy of the frozen model's answer after each selection."""
    return judge_outcomes(pairs, lambda asked: ask(helpers[FROZEN], asked), earned)


def judge_outcomes(
    pairs: Sequence[Pair],
    asking: Callable[[Sequence[Selection]], Sequence[SelectionOutcome]],
    rewarding: Callable[[SelectionOutcome], Reward],
) -> list[Reward]:
    """The rewards of the outcomes of selections, in order; 0 for one that is not allowed."""
    rewards: list[Reward | None] = [None] * len(pairs)
    asked: dict[int, Selection] = {}
    for n, (row, completion) in enumerate(pairs):
        try:
            asked[n] = row, picks_of(row, completion.text)
        except BadSelection as bad:
            rewards[n] = Reward(0.0, why=bad.problem, outcome="not allowed")
    outcomes = asking([*asked.values()])
    for n, outcome in zip(asked, outcomes, strict=True):
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
        return reward_of_known(mode, known_outcome(outcome), skip_fallback, facts_of(outcome))

    def judge_selections(pairs: Sequence[Pair], helpers: Mapping[str, HelperModel]) -> list[Reward]:
        asking = judge if likely else ask
        return judge_outcomes(pairs, lambda asked: asking(helpers[FROZEN], asked), rewarding)

    def of_stored(candidate: Mapping[str, Any]) -> Reward:
        known = known_of(candidate)
        if known is None:
            return Reward(None, why="its facts name no accuracy")
        return reward_of_known(mode, known, skip_fallback)

    return JudgeReward(
        judge_selections,
        helpers=(FROZEN,),
        batch=None,
        maximum=full_value(mode),
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


def known_outcome(outcome: SelectionOutcome) -> Known:
    """What modes read of an outcome."""
    return Known(
        outcome.accuracy.score,
        outcome.accuracy.mode,
        outcome.prediction,
        outcome.gold_probability,
        outcome.relevance,
    )


def stored_accuracy(candidate: Mapping[str, Any]) -> Reward:
    """The accuracy that a stored candidate notes; an abstention where nothing scored it."""
    known = known_of(candidate)
    if known is None or known.eval_mode == "error":
        return Reward(None, why="its facts name no accuracy")
    return reward_of_known(soft_only, replace(known, prediction=None), skip_fallback=False)


accuracy = JudgeReward(judge_accuracy, helpers=(FROZEN,), batch=None, of_stored=stored_accuracy)
"""The score of the benchmark, 0 to 1."""

REWARDS = {"accuracy": accuracy, **{name: mode_reward(name) for name in MODES}}
