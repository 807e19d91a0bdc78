"""Finds the final answer in a text and settles the cheap comparisons of plain numbers.

Pure string work, safe on any text in linear time. What needs algebra goes to `verify`.
"""

import ast
import operator
import re
from fractions import Fraction

from assay.data.hashing import sha256_text
from assay.labs.math.written import plain

_NUMBER = re.compile(r"(?:\\?\$)?([+-]?)(?:\\?\$)?(\d{1,3}(?:,\d{3})+|\d{1,40})(\.\d{1,40})?\.?")
_BOX = re.compile(
    r"\\(?:boxed|fbox)\s*(?:\{|(?P<bare>[-+]?\d+(?:[.,/]\d+)*|(?<=\s)[A-Za-z](?![A-Za-z])))"
)
_MARKED = re.compile(r"#+\s*(.*)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_JOINED = re.compile(
    r"(?:[,;$&/.\\% \t，；、。①-⑨]|\\[()\[\]]|\n(?!\s*\n)|\bor\b|\band\b|[或和与]|\\q?quad"
    r"|\\text\s*\{\s*(?:or|and)\s*\})*"
)
"""What may stand between boxes that are one answer together."""
_WORD = re.compile(r"[^\W\d_]{3,}")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_LONGEST_BARE = 80
_LONGEST_READ = 10_000
"""Characters of an answer whose writing is looked at for facts."""
LONGEST_SUM = 100
"""Characters of a sum that is worked out."""
_SUM = re.compile(r"[\d.()+*/ -]+")
_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
LONGEST_FACT = 200
"""Characters of an answer in facts."""


def final_answer(text: str) -> str | None:
    r"""The last `\boxed{...}` or the rest of the line after the last `####`, whichever is later.

    Boxes with nothing but commas, "or" and "and" between them are one answer, a list: who gives
    several answers is not asked for the last.
    """
    return final_place(text)[0]


def final_place(text: str) -> tuple[str | None, int, int]:
    """The final answer, and where its boxes or its line begin and end."""
    box, start, box_end = last_boxed(text)
    marker = text.rfind("####")
    marked = _MARKED.match(text, marker) if marker > box_end else None
    if marked is None:
        return box, start, box_end
    return without_courtesy(marked[1]) or None, *marked.span()


_COURTESY = re.compile(
    r"(?:\n\s*-{3,}\s*|(?<=[.!?。！？*$)\]\n])\s*)[*_(]*"
    r"(?!.*\d)(?:(?:please )?(?:let (?:me|us) know|feel free|do(?:n't| not) hesitate)"
    r"|thanks?\b|good luck|(?:(?:I|we) )?(?:really )?hope (?:that )?(?:it|th|my)"
    r"(?!.*(?:\bnot\b|n't|wrong|incorrect))"
    r"|(?:if|do|would|should) you\b(?=.*(?:question|help|expl|clarif))"
    r"|(?:is there|any)\b(?=.*(?:else|question))"
    r"|希望(?=.*帮)|(?:如有|如果[你您]|请)(?=.*(?:问|告诉))|谢谢)[^\n.!?。！？]*[^\w$\\]*$",
    re.IGNORECASE,
)
"""A polite sentence at the end of a text, without the number of an answer."""


def without_courtesy(text: str) -> str:
    """A text without the polite sentences at its end, such as Minerva's "I hope it is correct"."""
    text = text.strip()
    while found := _COURTESY.search(text, max(0, len(text) - 300)):
        text = text[: found.start()].rstrip()
    return text


def last_boxed(text: str) -> tuple[str | None, int, int]:
    r"""What the last closed boxes that belong together hold, and their bounds; else (None, -1, -1).

    `\boxed 42` is a box too, and `\fbox{42}`.
    Braces nest to any depth; `\{` and `\}` are text. A box inside a box is what it holds.
    """
    together: list[str] = []
    first = last = -1
    for match in _BOX.finditer(text):
        if match.start() < last:
            continue
        end = match.end() if match["bare"] else _closing_brace(text, match.end())
        if end < 0:
            break  # every later box lies inside this unclosed one
        if last < 0 or not _JOINED.fullmatch(text, last, match.start()):
            together, first = [], match.start()
        together.append(match["bare"] or _unboxed(text[match.end() : end].strip()))
        last = end if match["bare"] else end + 1
    return ", ".join(dict.fromkeys(filter(None, together))) or None, first, last


def _unboxed(text: str) -> str:
    for _ in range(4):
        inner = _BOX.search(text)
        end = _closing_brace(text, inner.end()) if inner and not inner["bare"] else -1
        if inner is None or end < 0:
            break
        text = text[: inner.start()] + text[inner.end() : end].strip() + text[end + 1 :]
    return text


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


def worked_out(text: str) -> Fraction | None:
    """The value of decimal numbers between `+ - * /` and brackets, exactly; else None."""
    plain = text.replace(",", "").strip()
    if len(plain) > LONGEST_SUM or not _SUM.fullmatch(plain):
        return None
    try:
        return _value(ast.parse(plain, mode="eval").body)
    except (SyntaxError, ZeroDivisionError):
        return None


def _value(node: ast.expr) -> Fraction | None:
    match node:
        case ast.Constant(value=int() | float() as value):
            return Fraction(str(value))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _value(operand)
            return None if value is None else -value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            first, second = _value(left), _value(right)
            known = first is not None and second is not None
            return _OPERATIONS[type(op)](first, second) if known else None
        case _:
            return None


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
