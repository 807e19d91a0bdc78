"""Finds the final answer in a text and settles the cheap comparisons of plain numbers.

Pure string work, safe on any text in linear time. What needs algebra goes to `verify`.
"""

import re
from fractions import Fraction

_NUMBER = re.compile(r"(?:\\?\$)?([+-]?)(?:\\?\$)?(\d{1,3}(?:,\d{3})+|\d{1,40})(\.\d{1,40})?\.?")
_BOX = re.compile(r"\\boxed\s*\{")
_WORD = re.compile(r"[^\W\d_]{3,}")


def final_answer(text: str) -> str | None:
    r"""The last `\boxed{...}` or the rest of the line after the last `####`, whichever is later."""
    box, box_end = last_boxed(text)
    marker = text.rfind("####")
    if marker > box_end:
        return text[marker + 4 :].lstrip("#").strip().partition("\n")[0].strip() or None
    return box


def last_boxed(text: str) -> tuple[str | None, int]:
    r"""The content of the last closed `\boxed{...}` and where it ends; (None, -1) without one.

    Braces nest to any depth; `\{` and `\}` are text. A box inside a box is part of the outer one.
    """
    found: tuple[str | None, int] = (None, -1)
    for match in _BOX.finditer(text):
        if match.start() < found[1]:
            continue
        end = _closing_brace(text, match.end())
        if end < 0:
            break  # every later box lies inside this unclosed one
        found = (text[match.end() : end].strip() or None, end)
    return found


def _closing_brace(text: str, start: int) -> int:
    """Where the brace that was opened before `start` closes, or -1."""
    depth, index = 1, start
    while index < len(text):
        if text[index] == "\\":
            index += 1  # the escaped character is text
        elif text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return index
        index += 1
    return -1


def number(text: str) -> Fraction | None:
    """A plain decimal number, with thousands commas, a dollar sign or a full stop; else None.

    "1,450" is one thousand four hundred and fifty, never a pair.
    """
    match = _NUMBER.fullmatch(text.strip().strip("$").strip())
    if match is None:
        return None
    sign, whole, decimals = match.groups()
    return Fraction(f"{sign}{whole.replace(',', '')}{decimals or ''}")


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
