"""The VQA benchmark's own accuracy with its normalisation, and a looser rule in its place.

Antol et al., ICCV 2015; the rules are those of github.com/GT-Vision-Lab/VQA, commit a013f004, read
there and written anew, its mistakes included: they are what published numbers were made with.
Which of the two rules scores an answer is decided in `outcomes`.
"""

import itertools
import re
from collections.abc import Sequence

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
