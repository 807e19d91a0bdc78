"""Outcomes: what the frozen model answered after a selection, and how good that was.

`METRICS` scores answers. VQA's own accuracy and its normalisation (Antol et al., ICCV 2015) follow
github.com/GT-Vision-Lab/VQA, commit a013f004, read there and written anew, its mistakes included:
they are what published numbers were made with. What a reward makes of an outcome is `rewards`', and
which model is asked `frozen`'s.
"""

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

ANNOTATORS = 10
"""The answers that the official accuracy takes for each question."""
ENOUGH = 3
"""So many other annotators make an answer right."""

PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
DIGITS_AROUND_COMMA = re.compile(r"\d,\d", re.ASCII)
PERIOD = re.compile(r"\.(?!\d)", re.ASCII)
"""A period that no digit follows. The original means to spare one after a digit as well, but its
look-behind is misspelt and matches everywhere."""
MOST_PERIODS = 32
"""The original passes the flag re.UNICODE, which is 32, where the count of replacements goes."""
_COUNTED = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBERS = {"none": "0", **{word: str(number) for number, word in enumerate(_COUNTED)}}
ARTICLES = frozenset({"a", "an", "the"})
_WITH_APOSTROPHES = """
ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've
hasn't haven't he'd he'd've he's how'd how'll how's isn't it'd it'd've it'll ma'am
mightn't mightn't've might've mustn't must've needn't not've o'clock oughtn't 'ow's'at
shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's
someone'd someone'd've someone'll someone's something'd something'd've something'll that's
there'd there'd've there're there's they'd they'd've they'll they're they've 'twas wasn't
we'd've we've weren't what'll what're what's what've when's where'd where's where've who'd
who'd've who'll who's who've why'll why're why's won't would've wouldn't wouldn't've y'all
y'all'll y'all'd've you'd you'd've you'll you're you've
"""


def _one_left_out(word: str) -> list[str]:
    """The word without each of its apostrophes in turn."""
    places = [n for n, letter in enumerate(word) if letter == "'"]
    return [word[:n] + word[n + 1 :] for n in places]


CONTRACTIONS = {
    **{short: word for word in _WITH_APOSTROPHES.split() for short in _one_left_out(word)},
    # The original has this one the wrong way round. Its entries with capitals never apply.
    "somebody'd": "somebodyd",
}
"""Contractions that lack an apostrophe, and what they are."""


def without_punctuation(text: str) -> str:
    """The text with each mark of PUNCTUATION removed, or replaced by a space.

    A mark is removed where it stands beside a space anywhere in the text, and all are where a comma
    stands between digits. Periods go, unless a digit follows.
    """
    numeric = DIGITS_AROUND_COMMA.search(text) is not None
    found = text
    for mark in PUNCTUATION:
        beside_space = f"{mark} " in text or f" {mark}" in text
        found = found.replace(mark, "" if numeric or beside_space else " ")
    return PERIOD.sub("", found, MOST_PERIODS)


def plain_words(text: str) -> str:
    """The text in lower case, with digits for numbers, without articles, contractions restored."""
    words = [NUMBERS.get(word, word) for word in text.lower().split()]
    return " ".join(CONTRACTIONS.get(word, word) for word in words if word not in ARTICLES)


def normalised(text: str) -> str:
    """What predictions and answers are compared as, where the answers are not all the same."""
    return plain_words(without_punctuation(text))


def official_accuracy(prediction: str, answers: Sequence[str]) -> float:
    """The mean over annotators of min(matches among the others / 3, 1); 0 to 1.

    Where all annotators say the same, nothing is normalised, so that "yes" is wrong for ten "Yes".
    By the number of matches among ten: 0, 0.3, 0.6, 0.9, then 1. At least one answer.
    """
    said, given = _in_one_line(prediction), [_in_one_line(answer) for answer in answers]
    if len(set(given)) > 1:
        said, given = normalised(said), [normalised(answer) for answer in given]
    matches, size = given.count(said), len(given)
    # Whole numbers, so that 3 of 10 are 0.9 and not a little less.
    among_others = [(matches, matches - 1), (size - matches, matches)]
    return sum(times * min(n, ENOUGH) for times, n in among_others) / (ENOUGH * size)


def _in_one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\t", " ").strip()


def loose_accuracy(prediction: str, answers: Sequence[str]) -> float:
    """1 where an answer is the prediction, letter case aside; 0.5 where one holds the other; else 0
    (Lever-Plus). Nothing empty matches: it would be a part of every text."""
    said = prediction.strip().lower()
    given = [text for answer in answers if (text := answer.strip().lower())]
    if not said or not given:
        return 0.0
    if said in given:
        return 1.0
    return 0.5 if any(said in text or text in said for text in given) else 0.0


def answers_from_soft_label(soft_label: dict[str, float]) -> tuple[str, ...] | None:
    """The ten answers of a question of OK-VQA whose soft label alone is known; None where they do
    not follow from it.

    Five annotators count twice: an answer of one of them has 2/3, of more of them 1. Of two answers
    with 1 each has two annotators or more, so that who has the odd one changes no score.
    """
    rare = [answer for answer, share in soft_label.items() if share < 1]
    common = [answer for answer in soft_label if answer not in rare]
    left = ANNOTATORS // 2 - len(rare) - 2 * len(common)
    if left < 0 or (left and not common):
        return None
    counts = [2 + left * (n == 0) for n in range(len(common))] + [1] * len(rare)
    said = itertools.chain(common, rare)
    return tuple(
        answer for answer, count in zip(said, counts, strict=True) for _ in range(2 * count)
    )


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
