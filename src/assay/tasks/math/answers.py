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
    r"(?:[,;$&/.\\ \t，；、。]|\\[()\[\]]|\n(?!\s*\n)|\bor\b|\band\b|[或和与]|\\q?quad"
    r"|\\text\s*\{\s*(?:or|and)\s*\})*"
)
"""What may stand between boxes that are one answer together."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_NAMED = re.compile(r"([A-Za-z](?:_\{?\w+\}?|\([A-Za-z]\))?)\s*=(?:[^\n=$]{0,80}=)?\s*$")
"""What names the content of a box: `x_1=`, `E(X)=6\times\frac13=`."""
_COMMAND = re.compile(r"\\[A-Za-z]+")
_LONGEST_BARE = 80
_LONGEST_READ = 10_000
"""Characters of an answer whose writing is looked at for facts."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_STATEMENT = re.compile(
    r"(?:(?:so|thus|hence|therefore|then)\b\s*,?\s*)?"
    r"(?:(?:the|my|our)\s+)?(?:final\s+|correct\s+)?answer"
    r"\s*(?:is\s*:?|=)\s*(?P<stated>.+?)\.?"
    r"|(?:所以|因此|故)?[，,]?\s*(?:最终|最后|正确)?答案\s*[是为]\s*[：:]?\s*(?P<in_chinese>.+?)。?",
    re.IGNORECASE,
)
"""A sentence that says what the answer is and nothing else: no condition, doubt or unit."""
_LABEL = re.compile(
    r"(?:(?:so|thus|hence|therefore)\b\s*,?\s*)?(?:the\s+)?"
    r"(?:final\s+|correct\s+)?answer\s*(?::|\.\s|：)\s*(?P<stated>.+?)\.?"
    r"|(?:.*[。，,])?(?:最终|最后|正确)?(?:答案|答)\s*[：:]\s*(?P<in_chinese>.+?)。?"
    r"|(?:.*[。，,；;])?\s*(?:故|因此|所以)?(?:应|本题)?选(?:择)?\s*"
    r"[：:]?\s*(?P<choice>[A-HＡ-Ｈ](?:[、,，和]?[A-HＡ-Ｈ])*)\s*[.。．]?",
    re.IGNORECASE,
)
"""A line with the mark of an answer and the answer."""
_TAGGED = re.compile(
    r"<answer>([^<]*)</answer>|\"(?:final_)?answer\"\s*:\s*(?:\"([^\"\n]*)\"|([-+]?[\d.]+))"
)
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_DOUBT = re.compile(
    r"\b(?:not|never|isn't|about|approximately|maybe"
    r"|perhaps|possibly|either|if|doubt|than)\b|不|约|可能|如果|或",
    re.IGNORECASE,
)
_LONGEST_STATEMENT = 120
_LONGEST_LINE = 400
_OPEN_END = re.compile(r"\?|(?<![A-Za-z])(?:or|and)(?![A-Za-z])|[\u4e00-\u9fff]")
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


def stated_answer(text: str) -> str | None:
    r"""The answer that a text without box and `####` is, or states as its answer at its end.

    That is, after `</think>`: all of it, where it is a plain number; what stands in `<answer>`, or
    as "answer" in JSON; on the last line, what follows "Answer:", the one bold phrase, or the
    expression of which the last sentence says "The answer is" and nothing else. The last number of
    a text is not enough: "6 and 7 make 42" has no final answer.
    """
    if "####" in text or _BOX.search(text):
        return None
    said = text.rpartition(_END_OF_REASONING)[2].strip()
    if number(said) is not None:
        return said
    tagged = [next(filter(None, match.groups()), "") for match in _TAGGED.finditer(said)]
    if tagged:
        return tagged[-1].strip() or None
    line = said.rpartition("\n")[2].strip()
    if len(line) > _LONGEST_LINE:
        return None
    label = _LABEL.fullmatch(line.replace("*", "").strip())
    if label:
        return next(filter(None, label.groups())).strip()
    bold = list(_BOLD.finditer(line))
    if bold:
        sure = len(bold) == 1 and not _DOUBT.search(line[: bold[0].start()])
        return bold[0][1].strip() if sure else None
    last = next((piece for piece in reversed(_SENTENCE_END.split(line)) if piece), "")
    found = _STATEMENT.fullmatch(last) if len(last) <= _LONGEST_STATEMENT else None
    stated = (found["stated"] or found["in_chinese"]) if found else ""
    sure = is_bare(stated) and re.search(r"\w", stated) and not _OPEN_END.search(stated)
    return stated if sure else None


def last_boxed(text: str) -> tuple[str | None, int]:
    r"""What the last closed boxes that belong together hold and where they end; else (None, -1).

    `\boxed 42` is a box too, and `\fbox{42}`.
    Braces nest to any depth; `\{` and `\}` are text. A box inside a box is part of the outer one.
    """
    together: list[tuple[str, str]] = []
    last = -1
    for match in _BOX.finditer(text):
        if match.start() < last:
            continue
        end = match.end() if match["bare"] else _closing_brace(text, match.end())
        if end < 0:
            break  # every later box lies inside this unclosed one
        named = _NAMED.search(text, max(last, match.start() - 120, 0), match.start())
        between_end = named.start() if named and together and together[-1][0] else match.start()
        if last < 0 or not _JOINED.fullmatch(text, last, between_end):
            together = []
        name = named[1] if named else ""
        together.append((name, match["bare"] or text[match.end() : end].strip()))
        last = end if match["bare"] else end + 1
    if len(together) > 1 and all(name and said for name, said in together):
        return ", ".join(f"{name}={said}" for name, said in together), last
    return ", ".join(dict.fromkeys(said for _, said in together if said)) or None, last


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
