"""Outcomes: what the frozen model answered after a selection, and how good that was.

`METRICS` scores answers. VQA's own accuracy and its normalisation (Antol et al., ICCV 2015) follow
github.com/GT-Vision-Lab/VQA, commit a013f004, read there and written anew, its mistakes included:
they are what published numbers were made with. The prompts of a batch are asked together, so that
what they begin with is computed once; what was asked before is remembered for all processes
(`once`). What a reward makes of an outcome is `rewards`'.
"""

import difflib
import itertools
import json
import math
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from assay.data.files import cache_root, canonical_json, sha256_text
from assay.data.row import Message, Row, TextPart
from assay.errors import RunFailure, look_up
from assay.labs.demos.demonstrations import ANSWERS, conversation, set_of
from assay.labs.demos.demonstrations import FROZEN as FROZEN
from assay.rl.policy import SampleKey, Sampling, Stop
from assay.tasks.helper_model import HelperFailed, HelperModel, Question

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
    plain = text
    for mark in PUNCTUATION:
        beside_space = f"{mark} " in text or f" {mark}" in text
        plain = plain.replace(mark, "" if numeric or beside_space else " ")
    return PERIOD.sub("", plain, MOST_PERIODS)


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
    text, references = _in_one_line(prediction), [_in_one_line(answer) for answer in answers]
    if len(set(references)) > 1:
        text, references = normalised(text), [normalised(answer) for answer in references]
    matches, size = references.count(text), len(references)
    # Whole numbers, so that 3 of 10 are 0.9 and not a little less.
    among_others = [(matches, matches - 1), (size - matches, matches)]
    return sum(times * min(n, ENOUGH) for times, n in among_others) / (ENOUGH * size)


def _in_one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\t", " ").strip()


def loose_accuracy(prediction: str, answers: Sequence[str]) -> float:
    """1 where an answer is the prediction, letter case aside; 0.5 where one holds the other; else 0
    (Lever-Plus). Nothing empty matches: it would be a part of every text."""
    text = prediction.strip().lower()
    references = [reference for answer in answers if (reference := answer.strip().lower())]
    if not text or not references:
        return 0.0
    if text in references:
        return 1.0
    return 0.5 if any(text in each or each in text for each in references) else 0.0


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
    texts = itertools.chain(common, rare)
    return tuple(
        answer for answer, count in zip(texts, counts, strict=True) for _ in range(2 * count)
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
    answer = _plain(prediction)
    return Accuracy(float(bool(answer) and answer in map(_plain, answers)))


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


def relevance(prediction: str, answers: Sequence[str]) -> float:
    """max over answers of max(token F1, difflib's ratio); 0 for an empty prediction."""
    return max(token_f1(prediction, answers), edit_similarity(prediction, answers))


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of words, over the best answer; 0 to 1."""
    one = Counter(_plain(prediction).split())
    others = [Counter(_plain(answer).split()) for answer in answers]
    shared = [((one & other).total(), one.total() + other.total()) for other in others]
    return max((2 * same / both for same, both in shared if same), default=0.0)


def edit_similarity(prediction: str, answers: Sequence[str]) -> float:
    """difflib's ratio of characters, over the best answer; 0 for an empty prediction."""
    text = _plain(prediction)
    ratios = (difflib.SequenceMatcher(None, text, _plain(answer)).ratio() for answer in answers)
    return max(ratios, default=0.0) if text else 0.0


def outcome_of(generation: str, answers: Sequence[str], metric: Metric) -> SelectionOutcome:
    """The outcome of a generation."""
    # The first answer alone, as Lever-Plus cuts it.
    text = re.split(r"\n|Question|Answer|Short", generation.strip(), maxsplit=1)[0]
    prediction = text.split(", ", 1)[0].strip()
    return SelectionOutcome(
        generation, prediction, metric(prediction, answers), relevance(prediction, answers)
    )


WAIT_SECONDS = 60.0
"""For another process that is writing."""
FOUND = "SELECT outcome FROM outcomes WHERE request = ?"
TABLE = "CREATE TABLE IF NOT EXISTS outcomes (request TEXT PRIMARY KEY, outcome TEXT NOT NULL)"

Compute = Callable[[Sequence[int]], Sequence[Any]]
"""What the model says to the requests at these places, as JSON values; None is not remembered."""


def once(frozen: HelperModel, requests: Sequence[Any], compute: Compute) -> list[Any]:
    """The outcome of each request, a JSON value: remembered, or computed and then remembered.

    One SQLite file below the cache for each model, whose name says all that its answers depend on.
    Only models that say so are remembered (`identity`): an endpoint may stand for other weights
    tomorrow. Equal requests are computed once; `frozen.usage` counts those that were not computed.
    Raises RunFailure, and what `compute` raises.
    """
    keys = [sha256_text(canonical_json(request)) for request in requests]
    known: dict[str, Any] = {}
    if frozen.identity:
        with outcomes_of(frozen) as store:
            for key in keys:
                row = store.execute(FOUND, (key,)).fetchone()
                known |= {key: json.loads(row[0])} if row is not None else {}
    first: dict[str, int] = {}
    for place, key in enumerate(keys):
        if key not in known:
            first.setdefault(key, place)
    frozen.usage.remember(len(keys) - len(first))
    values = dict(zip(first, compute([*first.values()]) if first else [], strict=True))
    if frozen.identity and values:
        lines = [(key, json.dumps(value)) for key, value in values.items() if value is not None]
        with outcomes_of(frozen) as store, store:
            store.executemany("INSERT OR IGNORE INTO outcomes VALUES (?, ?)", lines)
    every = {**known, **values}
    return [every[key] for key in keys]


@contextmanager
def outcomes_of(frozen: HelperModel) -> Iterator[sqlite3.Connection]:
    """The remembered outcomes of a model; of two processes that found the same, the first one's
    stays. Raises RunFailure."""
    file = cache_root() / "outcomes" / f"{sha256_text(frozen.identity)[:24]}.sqlite"
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with closing(sqlite3.connect(file, timeout=WAIT_SECONDS)) as store:
            store.execute(TABLE)
            yield store
    except sqlite3.Error as error:
        problem = f"{file}: remembered outcomes cannot be used: {error} (delete the file)"
        raise RunFailure(problem) from error


def shown(messages: Sequence[Message]) -> list[Any]:
    """A conversation as a JSON value; an image is its sha256."""
    return [
        [
            message.role,
            message.content
            if not message.parts
            else [
                part.text if isinstance(part, TextPart) else {"image": part.sha256}
                for part in message.parts
            ],
        ]
        for message in messages
    ]


GREEDY = Sampling(0.0, max_tokens=8, stop=Stop(("\n",)))
"""How the frozen model answers; the first line is the answer."""

Selection = tuple[Row, tuple[int, ...]]
"""A query and its picks."""


def ask(frozen: HelperModel, selections: Sequence[Selection]) -> list[SelectionOutcome]:
    """What the frozen model answers, greedily or, where its table has `beams`, as that says, in
    order. Raises HelperFailed."""
    how = frozen.sampling if frozen.sampling.beams > 1 else GREEDY
    prompts = [conversation(row, picks) for row, picks in selections]
    keys = [SampleKey(0, row.id, 0) for row, _ in selections]

    def answered(places: Sequence[int]) -> list[str]:
        replies = frozen.answer([Question(prompts[n], how, keys[n]) for n in places])
        if failures := [answer.failure for answer in replies if answer.failure]:
            raise HelperFailed(f"{frozen.name} gave no answer: {failures[0]}")
        return [answer.text for answer in replies]

    settings = ["answer", how.max_tokens, *(how.stop.strings if how.stop else ())]
    settings += ["beams", how.beams] if how.beams > 1 else []
    texts = once(frozen, [[*settings, shown(messages)] for messages in prompts], answered)
    return [
        outcome_of(text, row.extra[ANSWERS], look_up(METRICS, set_of(row).metric, "metric"))
        for (row, _), text in zip(selections, texts, strict=True)
    ]


def probabilities(
    frozen: HelperModel, selections: Sequence[Selection], answers: Sequence[str]
) -> list[float]:
    """P of each answer after its selection: exp of the mean log-probability of its tokens, the end
    of the turn included (Lever-LM); 0 to 1. Raises InputError and HelperFailed as scoring does."""
    prompts = [conversation(row, picks) for row, picks in selections]

    def scored(places: Sequence[int]) -> list[float]:
        pairs = [prompts[n] for n in places], [answers[n] for n in places]
        return [sum(logps) / len(logps) for logps in frozen.score(*pairs, ended=True)]

    pairs = zip(prompts, answers, strict=True)
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
    pairs = [(n, answer) for n, each in enumerate(weights) for answer in each]
    values = probabilities(frozen, [selections[n] for n, _ in pairs], [a for _, a in pairs])
    sums = [0.0] * len(selections)
    for (n, answer), value in zip(pairs, values, strict=True):
        sums[n] += weights[n][answer] * value
    return [min(each, 1.0) for each in sums]


def answer_weights(row: Row) -> dict[str, float]:
    """The distinct right answers with what each counts: min(annotators / 3, 1) where annotators
    answered (Lever-Plus), 1 where answers are simply right."""
    if set_of(row).metric == "exact":
        return dict.fromkeys(row.extra[ANSWERS], 1.0)
    counts = Counter(map(normalised, row.extra[ANSWERS]))
    return {answer: min(count / 3, 1.0) for answer, count in counts.items() if answer}


def judge(frozen: HelperModel, selections: Sequence[Selection]) -> list[SelectionOutcome]:
    """What the frozen model answers, with the probability of the right answers.

    Raises HelperFailed, and InputError for a model that gives no log-probabilities.
    """
    outcomes = ask(frozen, selections)
    likely = gold_probabilities(frozen, selections)
    pairs = zip(outcomes, likely, strict=True)
    return [replace(outcome, gold_probability=value) for outcome, value in pairs]
