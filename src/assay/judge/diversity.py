"""How varied texts are: distinct n-grams, ROUGE-L between pairs, clusters of near-duplicates.

ROUGE-L is the F-measure over words of the longest common subsequence (Lin 2004, as `rouge-score`
without stemming); Self-Instruct (arXiv 2212.10560) takes 0.7 of it for a near-duplicate. Distinct-n
is the share of different n-grams (arXiv 1510.03055); it falls with the amount of text, so that two
sets are compared over equally many. No embeddings, and no files.
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np

SIGNS = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Characters of scripts that are written without spaces: each is a word."""
_WORD = re.compile(rf"[{SIGNS}]|[^\W_{SIGNS}]+")


def words_in(text: str) -> tuple[str, ...]:
    """The words of a text in lower case, without signs."""
    return tuple(_WORD.findall(text.lower()))


@dataclass(frozen=True, slots=True)
class Distinct:
    """The n-grams of some texts."""

    different: int
    all: int

    @property
    def share(self) -> float:
        """Different over all; 0 without any."""
        return self.different / self.all if self.all else 0.0


def ngrams(texts: Sequence[Sequence[str]], n: int) -> Iterator[tuple[str, ...]]:
    """The n-grams of texts, none of which spans two."""
    return chain.from_iterable(zip(*(each[i:] for i in range(n)), strict=False) for each in texts)


def distinct(texts: Sequence[Sequence[str]], n: int, most: int | None = None) -> Distinct:
    """The n-grams of texts in words, of the first `most` where that is given."""
    found = list(islice(ngrams(texts, n), most))
    return Distinct(len(set(found)), len(found))


def masks_of(text: Sequence[str]) -> dict[str, int]:
    """For each word the bits of its places."""
    masks: dict[str, int] = {}
    for place, word in enumerate(text):
        masks[word] = masks.get(word, 0) | 1 << place
    return masks


def common_length(masks: dict[str, int], length: int, other: Sequence[str]) -> int:
    """Length of the longest common subsequence with the text of `length` words that `masks` are of.

    Source: Hyyrö, Bit-parallel LCS-length computation revisited (2004); a zero bit is a match.
    """
    row = whole = (1 << length) - 1
    for word in other:
        match = row & masks.get(word, 0)
        row = ((row + match) | (row - match)) & whole
    return length - row.bit_count()


@dataclass
class NearTexts:
    """Texts among which the near-duplicates of others are found; exact, no pair is missed."""

    least: float
    """ROUGE-L from which a text is a near-duplicate."""
    _texts: list[tuple[Any, tuple[str, ...]]] = field(default_factory=list)
    _holders: "dict[tuple[str, int], array[int]]" = field(default_factory=dict)
    """The places of the texts that hold a word so often."""
    _lengths: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, name: Any, text: str) -> None:
        """Take a text by a name."""
        words = words_in(text)
        for key in numbered(words):
            self._holders.setdefault(key, array("q")).append(len(self._texts))
        self._texts.append((name, words))
        self._lengths.append(len(words))

    def near(self, text: str) -> Iterator[tuple[Any, float]]:
        """The near-duplicates of a text with their ROUGE-L, in the order in which they came."""
        words = words_in(text)
        held = [self._holders[key] for key in numbered(words) if key in self._holders]
        if not held:
            return
        places = np.concatenate([np.frombuffer(each, np.int64) for each in held])
        # A common subsequence is no longer than what both texts hold.
        most_N = np.bincount(places, minlength=len(self._texts))
        least_N = self.least * (np.array(self._lengths) + len(words)) / 2
        masks = masks_of(words)
        for place in np.flatnonzero((most_N >= least_N) & (most_N > 0)):
            name, others = self._texts[place]
            common = common_length(masks, len(words), others)
            if common and common >= least_N[place]:
                yield name, 2 * common / (len(words) + len(others))


def numbered(words: Sequence[str]) -> frozenset[tuple[str, int]]:
    """Each word with how often it came before: what two texts share are the words of both bags."""
    seen: Counter[str] = Counter()
    found = set()
    for word in words:
        found.add((word, seen[word]))
        seen[word] += 1
    return frozenset(found)


def clusters(texts: Sequence[str], least: float) -> list[list[int]]:
    """Places of texts that near-duplicates join, the largest cluster first; alone ones too."""
    known, leader = NearTexts(least), list(range(len(texts)))

    def top(place: int) -> int:
        while leader[place] != place:
            leader[place] = leader[leader[place]]
            place = leader[place]
        return place

    for place, text in enumerate(texts):
        for other, _ in known.near(text):
            leader[top(place)] = top(other)
        known.add(place, text)
    groups: dict[int, list[int]] = {}
    for place in range(len(texts)):
        groups.setdefault(top(place), []).append(place)
    size: Callable[[list[int]], int] = len
    return sorted(groups.values(), key=size, reverse=True)
