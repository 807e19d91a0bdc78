"""Asks the frozen model what it answers after a selection, and how likely the right answers are.

The prompts of a batch are asked together, so that what they begin with is computed once. What was
asked before is remembered, see `outcome_cache`. Rewards are made of outcomes elsewhere.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from assay.data.row import Row
from assay.rl.policy import SampleKey, Sampling, Stop
from assay.tasks.demos.demonstrations import ANSWERS, set_of
from assay.tasks.demos.demonstrations import FROZEN as FROZEN
from assay.tasks.demos.outcome_cache import once, shown
from assay.tasks.demos.outcomes import METRICS, SelectionOutcome, outcome_of
from assay.tasks.demos.selections import conversation
from assay.tasks.demos.vqa_accuracy import normalised
from assay.tasks.helper_model import HelperFailed, HelperModel
from assay.tasks.task import lookup

GREEDY = Sampling(0.0, max_tokens=8, stop=Stop(("\n",)))
"""How the frozen model answers; the first line is the answer."""

Selection = tuple[Row, tuple[int, ...]]
"""A query and its picks."""


def ask(frozen: HelperModel, selections: Sequence[Selection]) -> list[SelectionOutcome]:
    """What the frozen model answers, greedily or, where its table has `beams`, as that says, in
    order. Raises HelperFailed."""
    how = frozen.sampling if frozen.sampling.beams > 1 else GREEDY
    asked = [conversation(row, picks) for row, picks in selections]
    keys = [SampleKey(0, row.id, 0) for row, _ in selections]

    def answered(places: Sequence[int]) -> list[str]:
        said = frozen.answer([asked[n] for n in places], how, [keys[n] for n in places])
        if failures := [answer.failure for answer in said if answer.failure]:
            raise HelperFailed(f"{frozen.name} gave no answer: {failures[0]}")
        return [answer.text for answer in said]

    settings = ["answer", how.max_tokens, *(how.stop.strings if how.stop else ())]
    settings += ["beams", how.beams] if how.beams > 1 else []
    texts = once(frozen, [[*settings, shown(messages)] for messages in asked], answered)
    return [
        outcome_of(text, row.extra[ANSWERS], lookup(METRICS, set_of(row).metric, "metric"))
        for (row, _), text in zip(selections, texts, strict=True)
    ]


def probabilities(
    frozen: HelperModel, selections: Sequence[Selection], answers: Sequence[str]
) -> list[float]:
    """P of each answer after its selection: exp of the mean log-probability of its tokens, the end
    of the turn included (Lever-LM); 0 to 1. Raises InputError and HelperFailed as scoring does."""
    asked = [conversation(row, picks) for row, picks in selections]

    def scored(places: Sequence[int]) -> list[float]:
        given = [asked[n] for n in places], [answers[n] for n in places]
        return [sum(logps) / len(logps) for logps in frozen.score(*given, ended=True)]

    pairs = zip(asked, answers, strict=True)
    requests = [["mean logp, ended", shown(messages), answer] for messages, answer in pairs]
    return [math.exp(mean) for mean in once(frozen, requests, scored)]


def target_probabilities(
    frozen: HelperModel, row: Row, states: Sequence[tuple[int, ...]]
) -> list[float]:
    """P of the row's target after each of several selections: the difference of two of them, with
    and without a demonstration, is its InfoScore."""
    selections = [(row, picks) for picks in states]
    return probabilities(frozen, selections, [target_of(row)] * len(states))


def target_of(row: Row) -> str:
    """The answer that most annotators gave, the first of equally frequent ones."""
    return Counter(row.extra[ANSWERS]).most_common(1)[0][0]


def gold_probabilities(frozen: HelperModel, selections: Sequence[Selection]) -> list[float]:
    """The probability of the right answers after each selection: the sum over distinct answers of
    P(answer) times its weight, at most 1. Raises as `probabilities` does."""
    weights = [answer_weights(row) for row, _ in selections]
    asked = [(n, answer) for n, each in enumerate(weights) for answer in each]
    found = probabilities(frozen, [selections[n] for n, _ in asked], [a for _, a in asked])
    sums = [0.0] * len(selections)
    for (n, answer), value in zip(asked, found, strict=True):
        sums[n] += weights[n][answer] * value
    return [min(each, 1.0) for each in sums]


def answer_weights(row: Row) -> dict[str, float]:
    """The distinct right answers with what each counts: min(annotators / 3, 1) where annotators
    answered (Lever-Plus), 1 where answers are simply right."""
    weigh = WEIGHTS.get(set_of(row).metric, _by_annotators)
    return weigh(row.extra[ANSWERS])


def _alike(answers: Sequence[str]) -> dict[str, float]:
    return dict.fromkeys(answers, 1.0)


def _by_annotators(answers: Sequence[str]) -> dict[str, float]:
    counts = Counter(map(normalised, answers))
    return {answer: min(count / 3, 1.0) for answer, count in counts.items() if answer}


WEIGHTS: Mapping[str, Callable[[Sequence[str]], dict[str, float]]] = {"exact": _alike}
"""What answers count, by metric; of every other metric they are annotators'."""


def judge(frozen: HelperModel, selections: Sequence[Selection]) -> list[SelectionOutcome]:
    """What the frozen model answers, with the probability of the right answers.

    Raises HelperFailed, and InputError for a model that gives no log-probabilities.
    """
    outcomes = ask(frozen, selections)
    likely = gold_probabilities(frozen, selections)
    pairs = zip(outcomes, likely, strict=True)
    return [replace(outcome, gold_probability=value) for outcome, value in pairs]
