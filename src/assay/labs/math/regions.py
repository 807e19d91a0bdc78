r"""Sets of real numbers, however they are written: intervals, unions, inequalities, `\mathbb{R}`.

Texts are in the spelling of `written.plain`. `(1,\infty)`, `x>1`, `1<x`, `\{x \mid x>1\}` and
`\mathbb{R} \setminus (-\infty,1]` are one set of sympy's, whose bounds are rounded to ten digits.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from sympy import Complement, FiniteSet, Intersection, Interval, Reals, Union, oo

from assay.labs.math import units, written
from assay.labs.math.expressions import expression

_SIGNS = units.WORDS["relations"]
_RELATION = re.compile(r"\\(?:lt|gt|leq|geq|le|ge|neq)(?![a-zA-Z])|[<>=]")
_EITHER = re.compile(r",?\s*(?:\\(?:lor|vee|cup)(?![a-zA-Z])|(?<![a-zA-Z\\])or(?![a-zA-Z]))")
_BOTH = re.compile(
    r",?\s*(?:\\text\s*\{\s*(?:with|but)\s*\}|\\(?:land|wedge|cap)(?![a-zA-Z])"
    r"|(?<![a-zA-Z\\])(?:and|with)(?![a-zA-Z])|且)"
)
_COMMA = re.compile(r"[,;]")
_WITHOUT = re.compile(
    r"\\(?:setminus|backslash)(?![a-zA-Z])|\\text\s*\{\s*(?:except|excluding)\s*\}"
    r"|(?<=[)\]}])\s*(?:-|\\)\s*(?=\\\{)"
)
_BUILDER = re.compile(r"\s*[a-zA-Z]\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?[|:]")
_MEMBER = re.compile(r"\s*(\\?[a-zA-Z]+)\s*\\in(?![a-zA-Z])\s*")
_REALS = re.compile(r"\\mathbb\s*\{?\s*R\s*\}?|\\R(?![a-zA-Z])|\\Reals")
_EMPTY = re.compile(r"\\emptyset(?![a-zA-Z])|\\\{\s*\\\}")
_VARIABLE = re.compile(
    r"(?:[a-zA-Z]|[fg]\([a-z]\)|\\(?:theta|alpha|beta"
    r"|lambda|mu|omega|varphi|phi|gamma))(?:_\{?\w+\}?)?"
)
_CLEAR = re.compile(
    r"\\(?:cup|cap|setminus|backslash|leq?|geq?|neq|lt|gt|infty|mathbb|(?:not)?in)(?![a-zA-Z])|[<>]"
)
_ABSOLUTE = re.compile(r"\|([^|]+)\|\s*([<>]|\\[gl](?:t|e|eq))(?![a-zA-Z])\s*([^<>|]+)")


@dataclass(frozen=True, slots=True)
class Region:
    """A set of real numbers."""

    numbers: Any
    names: frozenset[str] = frozenset()
    """Of the variable, where it is named."""


def is_region(text: str) -> bool:
    """Whether a text is clearly a set of numbers or an inequality, and no tuple."""
    clear = _CLEAR.search(text) or _EMPTY.fullmatch(text.strip())
    return clear is not None or written.brackets(text)[0] in ("[)", "(]")


def region(text: str) -> Region | None:
    """The set that a text is; None where it is none, or one of more variables."""
    value = _any(text.strip())
    return value if value is not None and len(value.names) <= 1 else None


def equal(one: Region, other: Region) -> bool:
    """Whether both hold the same numbers, of the same variable where both name it."""
    if one.names and other.names and one.names != other.names:
        return False
    return one.numbers.symmetric_difference(other.numbers) == sympy.S.EmptySet


def _joined(regions: Sequence[Region | None], join: Callable[..., Any]) -> Region | None:
    known = [each for each in regions if each is not None]
    if len(known) < len(regions):
        return None
    names = frozenset[str]().union(*(each.names for each in known))
    return Region(join(*(each.numbers for each in known)), names)


def _any(text: str) -> Region | None:
    return _joined([_all(piece) for piece in written.split(text, _EITHER)], Union)


def _all(text: str) -> Region | None:
    pieces = written.split(text, _BOTH)
    # "on (0,1) and (2,3)" names two intervals; "x>1 and x<3" is one.
    intervals = "cap" not in text and all(written.brackets(piece)[0] for piece in pieces)
    return _joined([_listed(piece) for piece in pieces], Union if intervals else Intersection)


def _listed(text: str) -> Region | None:
    """Conditions with commas between: all of them, or any where no number meets all."""
    pieces = [piece for piece in written.split(text, _COMMA) if piece]
    sets = [_without(piece) for piece in pieces]
    both = _joined(sets, Intersection)
    intervals = all(written.brackets(piece)[0] for piece in pieces)
    if both is None or (len(pieces) < 2 or not (intervals or both.numbers.is_empty)):
        return both
    return _joined(sets, Union)


def _without(text: str) -> Region | None:
    pieces = written.split(text, _WITHOUT)
    sets = [_piece(piece) for piece in pieces]
    return _joined(sets, lambda first, *others: Complement(first, Union(*others)))


def _piece(text: str) -> Region | None:
    text = text.strip()
    if text.count(r"\pm") == 1 and re.search(r"=|\\neq(?![a-zA-Z])", text):
        both = [_piece(text.replace(r"\pm", sign)) for sign in "+-"]
        return _joined(both, Union if "=" in text else Intersection)
    absolute = _ABSOLUTE.fullmatch(text)
    if absolute:
        inner, sign, bound = absolute.groups()
        sides = f"{inner} {sign} {bound}", f"-({bound}) {sign} {inner}"
        join = Union if _SIGNS[sign][0] == ">" else Intersection
        return _joined([_inequality(side) for side in sides], join)
    member = _MEMBER.match(text)
    if member:
        value = _any(text[member.end() :])
        return value and Region(value.numbers, value.names | {member[1]})
    if _REALS.fullmatch(text) or _EMPTY.fullmatch(text):
        return Region(Reals if _REALS.fullmatch(text) else sympy.S.EmptySet)
    kind, inner = written.brackets(text)
    if kind == "{}":
        builder = _BUILDER.match(inner)
        if builder:
            return _any(inner[builder.end() :])
        points = [_number(part) for part in written.split(inner, _COMMA)]
        return None if None in points else Region(FiniteSet(*points))
    if kind and len(parts := written.split(inner, _COMMA)) == 2:
        low, high = map(_number, parts)
        if low is None or high is None or low > high or (low == high and kind != "[]"):
            return None
        return Region(Interval(low, high, kind[0] != "[", kind[1] != "]"))
    return _inequality(text)


def _half(bound: Any, sign: str) -> Any:
    if sign in ("=", "!="):
        return FiniteSet(bound) if sign == "=" else Complement(Reals, FiniteSet(bound))
    ends = (-oo, bound) if sign[0] == "<" else (bound, oo)
    return Interval(*ends, left_open=sign == ">", right_open=sign == "<")


def _inequality(text: str) -> Region | None:
    r"""A chain such as `1 < x \le 3`: one side is a variable or holds several, the others
    are numbers."""
    sides = written.split(text, _RELATION)
    signs = [_SIGNS[match] for match in written.separators(text, _RELATION)]
    named = [n for n, side in enumerate(sides) if _VARIABLE.fullmatch(side) and side not in "ei"]
    named = named or [
        n for n, side in enumerate(sides) if len(getattr(expression(side), "free_symbols", ())) > 1
    ]
    if not signs or len(named) != 1 or len(sides) != len(signs) + 1:
        return None
    at, sets = named[0], []
    for n, sign in enumerate(signs):
        bound = _number(sides[n + 1 if at == n else n]) if at in (n, n + 1) else None
        if bound is None:
            return None
        sets.append(_half(bound, sign if at == n else sign.translate(str.maketrans("<>", "><"))))
    return Region(Intersection(*sets), frozenset({sides[at]}))


def _number(text: str) -> Any:
    r"""The real number that a text is, symbols other than the variable at places of their own."""
    number = expression(re.sub(r"^\+", "", text.strip()))
    if number is None or number in (oo, -oo):
        return number
    places = {
        name: sympy.Rational(1 + sum(map(ord, str(name))) % 97, 89) for name in number.free_symbols
    }
    value = number.subs(places).evalf(20)
    return sympy.Rational(f"{float(value):.10g}") if value.is_real and value.is_finite else None
