"""Outcomes: what the frozen model answered after a selection, and how good that was.

`METRICS` scores answers. What a reward makes of an outcome is `rewards`', and which model is asked
`frozen`'s.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from assay.tasks.demos.vqa_accuracy import ANNOTATORS, loose_accuracy, official_accuracy

EvalMode = Literal["official", "fallback", "error"]
"""Whether the benchmark's own metric scored an answer, a looser rule in its place, or none."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The score of an answer, and what scored it."""

    score: float
    """0 to 1."""
    mode: EvalMode = "official"
    why: str = ""
    """Why it was not the official metric."""


@dataclass(frozen=True, slots=True)
class SelectionOutcome:
    """What the frozen model did with one selection."""

    generation: str
    """As it was written."""
    prediction: str
    """The part of it that is the answer."""
    accuracy: Accuracy
    relevance: float
    """The larger of token F1 and edit similarity, over the best of the right answers; 0 to 1."""
    gold_probability: float | None = None
    """The probability of the right answers; None where it was not asked for."""

    @property
    def correct(self) -> bool:
        """Whether anything was scored: accuracy above 0, not above one half."""
        return self.accuracy.score > 0


Metric = Callable[[str, Sequence[str]], Accuracy]
"""Scores a prediction by the right answers."""


def exact(prediction: str, answers: Sequence[str]) -> Accuracy:
    """1 where the prediction is one of the answers, letter case and a final full stop aside."""
    said = _plain(prediction)
    return Accuracy(float(bool(said) and said in map(_plain, answers)))


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).rstrip(".")


def vqa(prediction: str, answers: Sequence[str]) -> Accuracy:
    """VQA's official accuracy of ten answers, also on empty predictions; the looser rule of another
    number of answers, and no score of none."""
    if not answers:
        return Accuracy(0.0, "error", "the question has no answers")
    if len(answers) == ANNOTATORS:
        return Accuracy(official_accuracy(prediction, answers))
    why = f"the question has {len(answers)} answers, not {ANNOTATORS}"
    return Accuracy(loose_accuracy(prediction, answers), "fallback", why)


METRICS: Mapping[str, Metric] = {"exact": exact, "vqa": vqa}
"""By `DemonstrationSet.metric`."""


def cut_answer(generation: str) -> str:
    """The first answer in what a model wrote: before a line break, the next `Question`, `Answer` or
    `Short`, and the first comma that a space follows (Lever-Plus)."""
    text = re.split(r"\n|Question|Answer|Short", generation.strip(), maxsplit=1)[0]
    return text.split(", ", 1)[0].strip()


def relevance(prediction: str, answers: Sequence[str]) -> float:
    """max over answers of max(token F1, difflib's ratio); 0 for an empty prediction."""
    return max(token_f1(prediction, answers), edit_similarity(prediction, answers))


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of words, over the best answer; 0 to 1."""
    said = _plain(prediction)
    return max((_token_f1(said, _plain(answer)) for answer in answers), default=0.0)


def edit_similarity(prediction: str, answers: Sequence[str]) -> float:
    """difflib's ratio of characters, over the best answer; 0 for an empty prediction."""
    said = _plain(prediction)
    if not said:
        return 0.0
    ratios = (difflib.SequenceMatcher(None, said, _plain(answer)).ratio() for answer in answers)
    return max(ratios, default=0.0)


def _token_f1(said: str, answer: str) -> float:
    one, other = said.split(), answer.split()
    shared = sum((Counter(one) & Counter(other)).values())
    return 2 * shared / (len(one) + len(other)) if shared else 0.0


def outcome_of(generation: str, answers: Sequence[str], metric: Metric) -> SelectionOutcome:
    """The outcome of a generation."""
    prediction = cut_answer(generation)
    return SelectionOutcome(
        generation, prediction, metric(prediction, answers), relevance(prediction, answers)
    )
