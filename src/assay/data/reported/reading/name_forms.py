"""Names of runs and benchmarks: one form for all spellings, and where a text names them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from assay.data.reported.reading.figures import clean

ASIDE = re.compile(
    r"\s*[(（]\s*(?:(?:our )?best|ours?|final|new|main|chosen|reported|proposed|this work"
    r"|n\s*=\s*\d+|最佳|最好|最终|我们的?|新"
    r"|(?:no|未|没有|似乎|几乎|基本|可能|略|稍|有|无|效果)[^()（）]*)\s*[)）]",
    re.I,
)
"""Words in parentheses that are no part of a name."""
TELLING = re.compile(
    r"(?<![a-z0-9.])(?:[a-z]+\d[a-z0-9]*|\d+(?:\.\d+)?[a-z]+|sft|grpo|ppo|dpo|orpo|kto|rft|rce|rloo"
    r"|gspo|dapo|lora|student|teacher|distilled|untrained|zero shot)(?![a-z0-9.])"
)
"""Words that identify a name, where no other name has them: `r64` of `lora r64`."""
NUMBERING = re.compile(
    r"^(?:\d+(?:\.\d+)+(?=\s)|\d+[.)、](?!\d)|[一二三四五六七八九十]+、|[A-Z][.、](?=\s))\s*"
)


def tidy(text: str) -> str:
    """A name without numbering, marks and words that praise it."""
    return NUMBERING.sub("", ASIDE.sub("", clean(text))).strip(" :：-–—")


def heading_name(title: str) -> str:
    """A heading as a name, without its number."""
    return re.sub(r"^\d+\s+(?=[^\d\s])", "", tidy(title))


def key_of(text: str) -> str:
    """One form for all spellings of a name."""
    return re.sub(r"[\s_\-–—]+", " ", tidy(text).lower()).strip()


@dataclass(frozen=True, slots=True)
class Named:
    """A place in a text that names something."""

    name: str
    start: int
    end: int


class Names:
    """Finds the given names in texts, in any spelling; the longest that fits counts."""

    def __init__(self, names: Sequence[str]) -> None:
        self._by_key: dict[str, str] = {}
        for name in names:
            self._by_key.setdefault(key_of(name), name)
        for alias, name in _aliases(names):
            self._by_key.setdefault(alias, name)
        keys = sorted((key for key in self._by_key if key), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_spelled, keys)) or r"(?!)", re.I)

    def find(self, text: str) -> list[Named]:
        """All places in order."""
        found = []
        for match in self._pattern.finditer(text):
            name = self._by_key.get(key_of(match[0]))
            # One letter is a name only as it was written.
            if name is not None and (len(match[0]) > 1 or match[0] == name):
                found.append(Named(name, match.start(), match.end()))
        return found

    def whole(self, text: str) -> str:
        """The one name that a text is a form of; "" where it is none."""
        return self._by_key.get(key_of(text), "")


def _spelled(key: str) -> str:
    parts = [re.escape(part) for part in key.split(" ")]
    body = r"[\s_\-–—]+".join(parts)
    start = r"(?<![A-Za-z0-9_@.-])" if key[0].isascii() else ""
    end = r"(?![A-Za-z0-9_@]|[.-][A-Za-z0-9])" if key[-1].isascii() else ""
    return start + body + end


def _aliases(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Short forms that only one name has: without parentheses, and without what all share."""
    keys = {name: key_of(name) for name in names}
    shared = (
        set.intersection(*(set(key.split()) for key in keys.values())) if len(keys) > 1 else set()
    )
    short: dict[str, list[str]] = {}
    for name, key in keys.items():
        without = re.sub(r"\s*[(（][^()（）]*[)）]", "", key).strip()
        rest = " ".join(
            part for part in re.sub(r"[()（）]", " ", key).split() if part not in shared
        )
        for alias in {without, rest} - {key, ""}:
            short.setdefault(alias, []).append(name)
    for name, key in keys.items():
        for part in set(TELLING.findall(key)) - {key}:
            if name not in short.setdefault(part, []):
                short[part].append(name)
    for alias, found in short.items():
        letters = re.sub(r"[^a-z\u4e00-\u9fff]", "", alias)
        if (
            len(found) == 1
            and (len(letters) > 1 or TELLING.fullmatch(alias))
            and alias not in FUNCTION_WORDS
        ):
            yield alias, found[0]


FUNCTION_WORDS = frozenset(
    {"in", "on", "of", "to", "at", "by", "no", "with", "without", "and", "or", "the", "for"}
    | {"from", "plus", "all", "each", "test"}
)
"""Short forms that would be found everywhere."""
