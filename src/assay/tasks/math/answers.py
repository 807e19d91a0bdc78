"""Finds the final answer in a text and settles the cheap comparisons of plain numbers.

Pure string work, safe on any text in linear time. What needs algebra goes to `verify`.
"""

import re
from fractions import Fraction

from assay.data.hashing import sha256_text
from assay.tasks.math.written import plain

_NUMBER = re.compile(r"(?:\\?\$)?([+-]?)(?:\\?\$)?(\d{1,3}(?:,\d{3})+|\d{1,40})(\.\d{1,40})?\.?")
_BOX = re.compile(
    r"\\(?:boxed|fbox)\s*(?:\{|(?P<bare>[-+]?\d+(?:[.,/]\d+)*|(?<=\s)[A-Za-z](?![A-Za-z])))"
)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_JOINED = re.compile(
    r"(?:[,;$&/.\\ \t]|\\[()\[\]]|\n(?!\s*\n)|\bor\b|\band\b|\\q?quad"
    r"|\\text\s*\{\s*(?:or|and)\s*\})*"
)
"""What may stand between boxes that are one answer together."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_LONGEST_BARE = 80
_LONGEST_READ = 10_000
"""Characters of an answer whose writing is looked at for facts."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_STATEMENT = re.compile(
    r"(?:(?:so|thus|hence|therefore|then)\b\s*,?\s*)?(?:(?:the|my|our)\s+)?(?:final\s+)?answer"
    r"\s*(?:is\s*:?|:|=)\s*(?P<stated>\S+?)\.?"
    r"|(?:所以|因此|故)?[，,]?\s*(?:最终|最后)?答案\s*(?:[是为]\s*[：:]?|[：:])\s*(?P<in_chinese>[^\s。]+)。?",
    re.IGNORECASE,
)
"""A sentence that says what the answer is and nothing else: no condition, doubt or unit."""
_LONGEST_STATEMENT = 120
_END_OF_REASONING = "</think>"
LONGEST_FACT = 200
"""Characters of an answer in facts."""


def final_answer(text: str) -> str | None:
    r"""The last `\boxed{...}` or the rest of the line after the last `####`, whichever is later.

    Boxes with nothing but commas, "or" and "and" between them are one answer, a list: who gives
    several answers is not asked for the last.
    """
    box, box_end = last_boxed(text)
    marker = text.rfind("####")
    if marker > box_end:
        return text[marker + 4 :].lstrip("#").strip().partition("\n")[0].strip() or None
    return box


def stated_number(text: str) -> str | None:
    r"""The plain number that a text without box and `####` is, or states as its answer at its end.

    What follows `</think>` is in whole a plain number, or its last sentence says "The answer is 42"
    or "Answer: 42" and nothing else. The last number of a text is not enough: "6 and 7 make 42" has
    no final answer.
    """
    if "####" in text or _BOX.search(text):
        return None
    said = text.rpartition(_END_OF_REASONING)[2].strip()
    if number(said) is not None:
        return said
    line = said.rpartition("\n")[2].replace("*", "").strip()
    last = next((piece for piece in reversed(_SENTENCE_END.split(line)) if piece), "")
    found = _STATEMENT.fullmatch(last) if len(last) <= _LONGEST_STATEMENT else None
    stated = (found["stated"] or found["in_chinese"]) if found else ""
    return stated if number(stated) is not None else None


def last_boxed(text: str) -> tuple[str | None, int]:
    r"""What the last closed boxes that belong together hold and where they end; else (None, -1).

    `\boxed 42` is a box too, and `\fbox{42}`.
    Braces nest to any depth; `\{` and `\}` are text. A box inside a box is part of the outer one.
    """
    together: list[str] = []
    last = -1
    for match in _BOX.finditer(text):
        if match.start() < last:
            continue
        end = match.end() if match["bare"] else _closing_brace(text, match.end())
        if end < 0:
            break  # every later box lies inside this unclosed one
        if last < 0 or not _JOINED.fullmatch(text, last, match.start()):
            together = []
        together.append(match["bare"] or text[match.end() : end].strip())
        last = end if match["bare"] else end + 1
    return ", ".join(dict.fromkeys(filter(None, together))) or None, last


def _closing_brace(text: str, start: int) -> int:
    """Where the brace that was opened before `start` closes, or -1."""
    depth = 1
    for mark in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(mark[0], 0)
        if depth == 0:
            return mark.start()
    return -1


def is_bare(text: str) -> bool:
    """Whether a text is a mathematical answer and nothing else: one short line without words."""
    line = text.strip()
    if not line or len(line) > _LONGEST_BARE or "\n" in line:
        return False
    return _WORD.search(_COMMAND.sub("", line)) is None


def number(text: str) -> Fraction | None:
    """A plain decimal number, with thousands commas, a dollar sign or a full stop; else None.

    "1,450" is one thousand four hundred and fifty, never a pair.
    """
    match = _NUMBER.fullmatch(text.strip().strip("$").strip())
    if match is None:
        return None
    sign, whole, decimals = match.groups()
    return Fraction(f"{sign}{whole.replace(',', '')}{decimals or ''}")


def canonical(answer: str) -> str:
    """The answer as records hold it, so that equal texts are equal votes: "1450" of "$1,450.00".

    Other answers than plain numbers lose delimiters, sizes and odd spaces; a long one is cut and
    named by its hash.
    """
    value = number(answer)
    if value is not None:
        return decimal_text(value)
    text = plain(answer) if len(answer) <= _LONGEST_READ else answer
    if len(text) <= LONGEST_FACT:
        return text
    return f"{text[: LONGEST_FACT - 9]}…{sha256_text(text)[:8]}"


def decimal_text(value: Fraction) -> str:
    """A decimal fraction without zeros at its end: "-5.5", "1450"."""
    places = 0
    while value.denominator != 1:
        value, places = value * 10, places + 1
    digits = str(abs(value.numerator)).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


def delimited(answer: str) -> str:
    r"""`answer` in `$...$`, so that math-verify reads all of it as LaTeX.

    Left alone: what has delimiters already, and prose (no markup, but a word), in which
    math-verify looks for a number. Without delimiters it would read `2^{10}` as 2.
    """
    has_delimiters = answer.count("$") > 1 or any(
        mark in answer for mark in (r"\[", r"\(", r"\boxed")
    )
    has_markup = any(mark in answer for mark in "\\^_{}=<>")
    if has_delimiters or (not has_markup and _WORD.search(answer)):
        return answer
    return f"${answer}$"
