"""How far an answer in words agrees with a right one, by the scripts of HotpotQA and DROP.

Both give exact match and F1 of words after small letters, punctuation, articles and spaces are
taken care of. HotpotQA (and SQuAD): words count as often as they occur; yes, no and noanswer count
only where they are all of an answer. DROP (allenai/allennlp-reading-comprehension, `drop_eval`):
words count once, hyphens part them, numbers are compared as numbers, and an answer without any of
the numbers of the right one scores 0. A text is one answer here: DROP's alignment of several spans
is not done, and F1 is not rounded.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = frozenset(string.punctuation)
ALONE = frozenset({"yes", "no", "noanswer"})


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far an answer agrees with the right one that it agrees with most."""

    exact: bool
    f1: float
    """0 to 1; 1 for an exact match."""


def agreement(answer: str, truths: Sequence[str], rules: str = "hotpotqa") -> Agreement:
    """The best agreement with one of several right answers, by F1 and, of those with the same, an
    exact match. Raises KeyError for unknown rules."""
    found = [RULES[rules](answer, each) for each in truths]
    return max(found, key=lambda each: (each.f1, each.exact))


def normalised(text: str) -> str:
    """Small letters without punctuation, articles and extra spaces (SQuAD's evaluation script)."""
    kept = "".join(char for char in text.lower() if char not in PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", kept).split())


def hotpotqa(answer: str, truth: str) -> Agreement:
    """By `hotpot_evaluate_v1.py`; two texts without a word do not agree."""
    given, wanted = normalised(answer), normalised(truth)
    if given == wanted:
        return Agreement(bool(wanted), float(bool(wanted)))
    if {given, wanted} & ALONE:
        return Agreement(False, 0.0)
    one, other = given.split(), wanted.split()
    shared = (Counter(one) & Counter(other)).total()
    return Agreement(False, harmonic(shared, len(one), len(other)))


def drop(answer: str, truth: str) -> Agreement:
    """By `drop_eval.py`, of one span; two texts without a word do not agree."""
    given, wanted = drop_words(answer), drop_words(truth)
    if given == wanted:
        return Agreement(bool(wanted), float(bool(wanted)))
    one, other = set(given), set(wanted)
    numbers = {word for word in other if is_number(word)}
    if numbers and not numbers & one:
        return Agreement(False, 0.0)
    return Agreement(False, harmonic(len(one & other), len(one), len(other)))


def drop_words(text: str) -> list[str]:
    """The words of a text as DROP compares them: 7.0 of "7", "2 000" stays two."""
    words = []
    for token in re.split(r"[ -]", text.lower()):
        bare = token if is_number(token) else "".join(c for c in token if c not in PUNCTUATION)
        number = str(float(bare)) if is_number(bare) else bare
        words += ARTICLES.sub(" ", number).split()
    return words


def is_number(text: str) -> bool:
    """Whether Python reads a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def harmonic(shared: int, given: int, wanted: int) -> float:
    """F1: the harmonic mean of precision and recall; 0 where nothing is shared."""
    return 2 * shared / (given + wanted) if shared else 0.0


RULES: Mapping[str, Callable[[str, str], Agreement]] = {"hotpotqa": hotpotqa, "drop": drop}
"""By the benchmark whose script they follow."""
