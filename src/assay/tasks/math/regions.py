r"""Sets of real numbers, however they are written: intervals, unions, inequalities, `\mathbb{R}`.

`(1,\infty)`, `x>1`, `1<x`, `\{x \mid x>1\}` and `\mathbb{R} \setminus (-\infty,1]` are one thing: a
test of whether a number belongs. Two sets are equal where the tests agree at every bound of either
and between them.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import sympy

from assay.tasks.math import written
from assay.tasks.math.expressions import expression

LONGEST = 400
CLOSE = 1e-9
_SIGNS = {
    "<": "<", r"\lt": "<", ">": ">", r"\gt": ">", "≤": "<=", r"\le": "<=", r"\leq": "<=",
    r"\leqslant": "<=", "≥": ">=", r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=", "<=": "<=",
    ">=": ">=", "=": "=", "≠": "!=", r"\ne": "!=", r"\neq": "!=",
}  # fmt: skip
_RELATION = re.compile(
    r"\\(?:lt|gt|leqslant|geqslant|leq|geq|le|ge|neq|ne)(?![a-zA-Z])|[<>]=?|[≤≥≠=]"
)
_EITHER = re.compile(
    r",?\s*(?:\\text\s*\{\s*or\s*\}|\\(?:lor|vee|cup)(?![a-zA-Z])|(?<![a-zA-Z\\])or(?![a-zA-Z])|∪)"
)
_BOTH = re.compile(
    r",?\s*(?:\\text\s*\{\s*(?:and|with|but)\s*\}|\\(?:land|wedge|cap)(?![a-zA-Z])"
    r"|(?<![a-zA-Z\\])(?:and|with)(?![a-zA-Z])|且|∩)"
)
_COMMA = re.compile(r"[,;]")
_WITHOUT = re.compile(
    r"\\(?:setminus|backslash)(?![a-zA-Z])|\\text\s*\{\s*(?:except|excluding)\s*\}"
    r"|(?<=[)\]}])\s*(?:-|\\)\s*(?=\\\{)"
)
_BUILDER = re.compile(
    r"\s*(?:[a-zA-Z]\s*(?:\\in\s*(?:\\mathbb\s*\{?R\}?|R)\s*)?)(?:\||:|\\mid|\\vert)"
)
_MEMBER = re.compile(
    r"\s*(\\?[a-zA-Z]+)\s*(?:\\in(?![a-zA-Z])|(?P<not>"
    r"\\notin(?![a-zA-Z])|\\not\s*\\in(?![a-zA-Z])))\s*"
)
_REALS = re.compile(r"\\mathbb\s*\{?\s*R\s*\}?|\\R(?![a-zA-Z])|ℝ|\\Reals")
_EMPTY = re.compile(r"\\(?:emptyset|varnothing)(?![a-zA-Z])|∅|\\\{\s*\\\}")
_VARIABLE = re.compile(
    r"(?:[a-zA-Z]|[fg]\([a-z]\)|\\(?:theta|alpha|beta"
    r"|lambda|mu|omega|varphi|phi|gamma))(?:_\{?\w+\}?)?"
)
_CLEAR = re.compile(
    r"\\(?:cup|cap|setminus|backslash|leq?|geq?"
    r"|leqslant|geqslant|neq?|lt|gt|infty|mathbb)(?![a-zA-Z])"
    r"|[<>≤≥≠∪∩]|\\(?:not)?in(?![a-zA-Z])"
)

_ABSOLUTE = re.compile(r"\|([^|]+)\|\s*([<>≤≥]|\\[gl](?:t|e|eq|eqslant))(?![a-zA-Z])\s*([^<>≤≥|]+)")

Test = Callable[[float], bool]


@dataclass(frozen=True, slots=True)
class Region:
    """A set of real numbers."""

    test: Test
    bounds: tuple[float, ...] = ()
    names: frozenset[str] = frozenset()
    """Of the variable, where it is named."""


_NOWHERE = Region(lambda _: False)
_EVERYWHERE = Region(lambda _: True)


def is_region(text: str) -> bool:
    """Whether a text is clearly a set of numbers or an inequality, and no tuple."""
    kind = written.brackets(text)[0]
    return bool(_CLEAR.search(text) or _EMPTY.fullmatch(text.strip())) or kind in ("[)", "(]")


def region(text: str) -> Region | None:
    """The set that a text is; None where it is none, or one of more variables."""
    if len(text) > LONGEST:
        return None
    found = _any(text.strip())
    return found if found is not None and len(found.names) <= 1 else None


def equal(one: Region, other: Region) -> bool:
    """Whether both hold the same numbers, of the same variable where both name it."""
    if one.names and other.names and one.names != other.names:
        return False
    return _alike(one.test, other.test, (*one.bounds, *other.bounds))


def _alike(one: Test, other: Test, bounds: Sequence[float]) -> bool:
    return all(one(place) == other(place) for place in places(bounds))


def places(bounds: Sequence[float]) -> list[float]:
    """All bounds, a place between each two and one beyond each end."""
    found: list[float] = []
    for bound in sorted(bounds):
        if not found or not _near(found[-1], bound):
            found.append(bound)
    if not found:
        return [0.0]
    between = [(a + b) / 2 for a, b in pairwise(found)]
    return [*found, *between, found[0] - 1 - abs(found[0]), found[-1] + 1 + abs(found[-1])]


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= CLOSE * max(1e-3, abs(one), abs(other))


def _joined(regions: Sequence[Region | None], every: bool) -> Region | None:
    known = [each for each in regions if each is not None]
    if len(known) < len(regions):
        return None
    tests = [each.test for each in known]
    test = (lambda x: all(t(x) for t in tests)) if every else (lambda x: any(t(x) for t in tests))
    bounds = tuple(bound for each in known for bound in each.bounds)
    return Region(test, bounds, frozenset().union(*(each.names for each in known)))


def _any(text: str) -> Region | None:
    pieces = written.split(text, _EITHER)
    if len(pieces) > 1:
        return _joined([_all(piece) for piece in pieces], every=False)
    return _all(text)


def _all(text: str) -> Region | None:
    pieces = written.split(text, _BOTH)
    if len(pieces) > 1:
        found = [_listed(piece) for piece in pieces]
        # "on (0,1) and (2,3)" names two intervals; "x>1 and x<3" is one.
        intervals = "cap" not in text and all(written.brackets(piece)[0] for piece in pieces)
        return _joined(found, every=not intervals)
    return _listed(text)


def _listed(text: str) -> Region | None:
    """Conditions with commas between: all of them, or any where no number meets all."""
    pieces = [piece for piece in written.split(text, _COMMA) if piece]
    if len(pieces) < 2:
        return _without(text)
    found = [_without(piece) for piece in pieces]
    if any(each is None for each in found):
        return None
    both = _joined(found, every=True)
    intervals = all(written.brackets(piece)[0] for piece in pieces)
    some = both is not None and any(map(both.test, places(both.bounds)))
    return both if some and not intervals else _joined(found, every=False)


def _without(text: str) -> Region | None:
    pieces = written.split(text, _WITHOUT)
    if len(pieces) == 1:
        return _piece(text)
    found, left = _piece(pieces[0]), _joined([_piece(piece) for piece in pieces[1:]], every=False)
    if found is None or left is None:
        return None
    kept = Region(lambda x: not left.test(x), left.bounds, left.names)
    return _joined([found, kept], every=True)


def _piece(text: str) -> Region | None:
    text = text.strip()
    if text.count(r"\pm") == 1 and re.search(r"=|\\neq?(?![a-zA-Z])", text):
        both = [_piece(text.replace(r"\pm", sign)) for sign in "+-"]
        return _joined(both, every="=" not in text)
    absolute = _ABSOLUTE.fullmatch(text)
    if absolute:
        inner, sign, bound = absolute.groups()
        beyond = _SIGNS[sign][0] == ">"
        sides = f"{inner} {sign} {bound}", f"-({bound}) {sign} {inner}"
        return _joined([_inequality(side) for side in sides], every=not beyond)
    member = _MEMBER.match(text)
    if member:
        found = _any(text[member.end() :])
        if found is None:
            return None
        test = (lambda x: not found.test(x)) if member["not"] else found.test
        return Region(test, found.bounds, found.names | {member[1]})
    if _REALS.fullmatch(text):
        return _EVERYWHERE
    if _EMPTY.fullmatch(text):
        return _NOWHERE
    kind, inner = written.brackets(text)
    if kind == "{}":
        builder = _BUILDER.match(inner)
        return _any(inner[builder.end() :]) if builder else _points(inner)
    if kind and len(parts := written.split(inner, _COMMA)) == 2:
        return _interval(kind, parts)
    if kind == "()" and _CLEAR.search(inner):
        return _any(inner)
    return _inequality(text)


def _points(text: str) -> Region | None:
    values = [_number(part) for part in written.split(text, _COMMA)]
    if any(value is None for value in values):
        return None
    known = tuple(value for value in values if value is not None)
    return Region(lambda x: any(_near(x, value) for value in known), known)


def _interval(kind: str, parts: Sequence[str]) -> Region | None:
    low, high = map(_number, parts)
    if low is None or high is None or low > high or (low == high and kind != "[]"):
        return None
    return _joined(
        [_half(low, ">=" if kind[0] == "[" else ">"), _half(high, "<=" if kind[1] == "]" else "<")],
        every=True,
    )


def _half(bound: float, sign: str) -> Region:
    tests: dict[str, Test] = {
        "<": lambda x: x < bound and not _near(x, bound),
        ">": lambda x: x > bound and not _near(x, bound),
        "<=": lambda x: x < bound or _near(x, bound),
        ">=": lambda x: x > bound or _near(x, bound),
        "=": lambda x: _near(x, bound),
        "!=": lambda x: not _near(x, bound),
    }
    if abs(bound) == float("inf"):
        return Region(lambda _: (bound > 0) == (sign[0] == "<"))
    return Region(tests[sign], (bound,))


_WHOLE = re.compile(
    r"[,;(\s]{0,9}(?:\\text\s*\{\s*(?:and|where|,)?\s*\})?\s*[a-z]"
    r"\s*\\in\s*(?:\\mathbb\s*\{?\s*Z\s*\}?|Z|\\text\{Z\})\s*\)?$"
)


def whole_numbers(text: str) -> list[int] | None:
    r"""The whole numbers of `-3 \le x \le 3, x \in \mathbb{Z}`; None where the text is not that."""
    match = _WHOLE.search(text)
    found = region(text[: match.start()]) if match and match.start() else None
    if found is None or not found.bounds or max(map(abs, found.bounds)) > 100:
        return None
    low, high = min(found.bounds), max(found.bounds)
    if found.test(low - 1) or found.test(high + 1):
        return None
    return [n for n in range(int(low) - 1, int(high) + 2) if found.test(float(n))]


def _inequality(text: str) -> Region | None:
    r"""A chain such as `1 < 2x \le 3`: one side is a variable, or linear in one, the others are
    numbers."""
    sides = written.split(text, _RELATION)
    signs = [_SIGNS[match] for match in written.separators(text, _RELATION)]
    linear = [_linear(side) for side in sides]
    named = [n for n, found in enumerate(linear) if found]
    if len(named) > 1:
        named = [n for n in named if _VARIABLE.fullmatch(sides[n])]
    if not signs or len(named) != 1 or len(sides) != len(signs) + 1:
        return None
    at, found = named[0], []
    name, slope, start = linear[at] or ("", 1.0, 0.0)
    for n, sign in enumerate(signs):
        if at not in (n, n + 1):
            return None
        bound = _number(sides[n + 1 if at == n else n])
        if bound is None:
            return None
        upright = (at == n) == (slope > 0)
        found.append(_half((bound - start) / slope, sign if upright else _mirrored(sign)))
    region = _joined(found, every=True)
    return region and Region(region.test, region.bounds, frozenset({name}))


def _linear(text: str) -> tuple[str, float, float] | None:
    """Variable, slope and value at 0 of a side of an inequality; None where it is not linear."""
    if _VARIABLE.fullmatch(text):
        return None if text in "ei" else (text, 1.0, 0.0)
    found = expression(text)
    if found is None or len(found.free_symbols) != 1 or not found.is_polynomial():
        return None
    symbol = next(iter(found.free_symbols))
    slope = found.diff(symbol)
    if slope.free_symbols or not slope.is_real or not found.subs(symbol, 0).is_real:
        return None
    return str(symbol), float(slope), float(found.subs(symbol, 0))


def bounded(text: str) -> Region | None:
    r"""The values that `-3 \le x+2y \le 3` or `x+2y \in [-3,3]` allows its expression."""
    sides = re.split(r"\\in(?![a-zA-Z])", text) if len(text) <= LONGEST else []
    if len(sides) == 2:
        return region(sides[1]) if _symbols(sides[0]) else None
    sides = written.split(text, _RELATION)
    named = [n for n, side in enumerate(sides) if _symbols(side)]
    if len(sides) < 2 or len(named) != 1:
        return None
    marks = [*written.separators(text, _RELATION), ""]
    sides[named[0]] = "x"
    found = _inequality(" ".join(f"{a} {b}" for a, b in zip(sides, marks, strict=True)).strip())
    return found and Region(found.test, found.bounds)


def _symbols(text: str) -> bool:
    found = expression(text)
    return found is not None and bool(found.free_symbols)


def _mirrored(sign: str) -> str:
    return sign.translate(str.maketrans("<>", "><"))


def _number(text: str) -> float | None:
    r"""The real number that a text is, symbols other than the variable at places of their own."""
    found = expression(re.sub(r"^\+", "", text.strip()))
    if found is None:
        return None
    if found in (sympy.oo, -sympy.oo):
        return float(found)
    at = {name: _place(str(name)) for name in found.free_symbols}
    value: Any = found.subs(at).evalf(20)
    return float(value) if value.is_real and value.is_finite else None


def at_places(found: Any, but: Any) -> Any:
    """An expression with its symbols but one at places of their own."""
    return found.subs({name: 1 + _place(str(name)) for name in found.free_symbols - {but}})


def _place(name: str) -> Any:
    return sympy.Rational(1 + sum(map(ord, name)) % 97, 89)


def difference(text: str) -> tuple[str, Any] | None:
    """("<" or "<=", left minus right) of an inequality in any variables; None where it is none."""
    sides = written.split(text, _RELATION)
    signs = [_SIGNS[match] for match in written.separators(text, _RELATION)]
    if len(sides) != 2 or len(signs) != 1 or signs[0] in ("=",):
        return None
    left, right = map(expression, sides)
    if left is None or right is None:
        return None
    return (signs[0], left - right) if signs[0][0] != ">" else (_mirrored(signs[0]), right - left)
