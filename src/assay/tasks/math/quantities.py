"""Whether two single values are equal: numbers with units or percent, and expressions.

Neither is a list, an equation or a set; `judging` has taken those apart.
"""

import math
import re
from dataclasses import dataclass, replace
from typing import Any

import sympy

from assay.tasks.math import special_forms, units, written
from assay.tasks.math.answers import number
from assay.tasks.math.expressions import constant_gap, expression, identical

LONGEST, MOST = 400, 12
_SIGN = re.compile(r"[+-]")
_TIMES = re.compile(r"(?:\\(?:cdot|times)(?![a-zA-Z])|\*)\s*$")
_MATRIX = re.compile(
    r"\\begin\s*\{([pbvBV]?matrix|array)\}(?:\s*\{[^{}]*\})?((?:(?!\\begin).)*?)\\end\s*\{\1\}"
)


@dataclass(frozen=True, slots=True)
class Vector:
    """Components in order, with their brackets; `whole` says that they were written as such."""

    kind: str
    parts: list[str]
    whole: bool = True


def vector(text: str) -> Vector | None:
    """The tuple, vector or matrix that a text is, multiplied and added out; None where it is none.

    Its kind is the brackets, "column" or "matrix of 2 rows"."""
    found = _matrix(text)
    if found is not None or len(text) > LONGEST or "@" in text:
        return found
    if r"\vec{" in text:
        return _of_units(text)
    kind, inner = written.brackets(text)
    parts = written.listed(inner)
    return Vector(kind, parts) if kind and len(parts) > 1 else _sum(text)


def _matrix(text: str) -> Vector | None:
    rows = written.matrix(text) or special_forms.nested_rows(text)
    if rows is None:
        return None
    kind = "column" if all(len(row) == 1 for row in rows) else f"matrix of {len(rows)} rows"
    return Vector(kind, [cell for row in rows for cell in row])


def _of_units(text: str) -> Vector | None:
    r"""The vector of a sum of unit vectors such as `\vec{i}-2\vec{j}`."""
    found = expression(text)
    if found is None:
        return None
    names = [sympy.Symbol(rf"\vec{{{letter}}}") for letter in "ijk"]
    parts = [found.expand().coeff(name) for name in names]
    rest = found.expand() - sum(part * name for part, name in zip(parts, names, strict=True))
    kept = parts if names[2] in found.free_symbols else parts[:2]
    return Vector("⟨⟩", [sympy.latex(part) for part in kept]) if rest == 0 else None


def _sum(text: str) -> Vector | None:
    """The vector that a sum of multiples of vectors is."""
    matrices = [match[0] for match in _MATRIX.finditer(text)]
    short = _MATRIX.sub("@", text)
    terms, signs = written.split(short, _SIGN), ["+", *written.separators(short, _SIGN)]
    if not 0 < len(terms) <= MOST:
        return None
    if not terms[0]:
        terms, signs = terms[1:], signs[1:]
    total: list[Any] | None = None
    kind = ""
    for sign, term in zip(signs, terms, strict=True):
        found = _multiple(term, matrices)
        if found is None or (
            total is not None and (found[0] != kind or len(found[1]) != len(total))
        ):
            return None
        kind, values = found[0], [-v for v in found[1]] if sign == "-" else found[1]
        total = [a + b for a, b in zip(total, values, strict=True)] if total else values
    return Vector(kind, [sympy.latex(value) for value in total], False) if total else None


def _multiple(term: str, matrices: list[str]) -> tuple[str, list[Any]] | None:
    """The brackets and components of a vector with a factor before it."""
    for at, sign in enumerate(term):
        if sign == "@" and matrices and at == len(term) - 1:
            found = _matrix(matrices.pop(0))
        elif sign in "([⟨":
            kind, inner = written.brackets(term[at:])
            found = (
                Vector(kind, parts) if len(parts := written.listed(inner)) > 1 and kind else None
            )
        else:
            continue
        scalar = _TIMES.sub("", term[:at]).strip()
        values = [expression(part) for part in found.parts] if found else [None]
        factor = expression(scalar) if scalar else sympy.Integer(1)
        if found is not None and factor is not None and None not in values:
            return found.kind, [factor * value for value in values]
    return None


def same_line(one: Vector, other: Vector) -> bool:
    """Whether two vectors with a parameter each go through the same points, on a straight line."""
    lines = _line(one), _line(other)
    if None in lines or len(one.parts) != len(other.parts):
        return False
    (start, along), (begin, direction) = lines  # type: ignore[misc]
    return all(sympy.Matrix([along, each]).rank() == 1 for each in (direction, begin - start))


def _line(of: Vector) -> tuple[Any, Any] | None:
    """A point and the direction."""
    values = [expression(part) for part in of.parts]
    symbols = set().union(*(value.free_symbols for value in values if value is not None))
    if any(value is None for value in values) or len(symbols) != 1:
        return None
    parts, symbol = sympy.Matrix([values]), symbols.pop()
    along = sympy.Matrix([[sympy.expand(value.diff(symbol)) for value in values]])
    return None if along.free_symbols else (parts.subs(symbol, 0), along)


APPROXIMATE, WHOLE = 1.05e-6, 1e-9
"""Relative tolerances: of decimals; of decimals where the gold is whole. 0.333333 is 1e-6 from a
third."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether two answers are equal, and by which rule."""

    equal: bool
    rule: str
    read: bool = True
    """Whether the answer could be read as anything."""


def compound(gold: str, answer: str) -> Ruling | None:
    """Quantities in several units, such as "2 feet 3 inches"."""
    one, other = units.parts(gold), units.parts(answer)
    if one is None and other is None:
        return None
    sums = [_total(text, found) for text, found in ((gold, one), (answer, other))]
    if None in sums:
        return None
    (left, dimension), (right, another) = sums  # type: ignore[misc]
    return Ruling(dimension == another and constant_gap(left, right)[0] == 0, "unit")


def _total(text: str, found: Any) -> tuple[Any, str] | None:
    quantities: Any = found or [units.measured(text, single=True)]
    if any(unit is None or not unit.dimension for _, unit in quantities):
        return None
    values = [(expression(value), unit) for value, unit in quantities]
    if any(value is None for value, _ in values):
        return None
    total = sum(value * sympy.Rational(unit.factor) for value, unit in values)
    return total, quantities[0][1].dimension


def is_number(text: str) -> bool:
    """Whether a text is a number, be it with a unit."""
    return number_of(text) is not None


def number_of(text: str) -> Any:
    """The number that a text is, its unit and percent apart; None where it is none."""
    value = written.without_percent(units.measured(text)[0])[0]
    return value_of(expression(written.as_latex(value)))


def value_of(found: Any) -> Any:
    """The number to 50 digits that an expression is; None where it is none."""
    if found is None or found.free_symbols:
        return None
    value = found.evalf(50)
    return value if value.is_number and value.is_finite else None


def single(gold: str, answer: str) -> Ruling:
    """Two single values: words around a number, units and percent are looked at, then compared."""
    if written.alternatives(answer) and not written.alternatives(gold):
        return Ruling(False, "list")
    (wanted, unit), (given, other) = units.measured(gold), units.measured(answer)
    if unit and not other:
        given, other = units.measured(answer, single=bool(unit.dimension))
    elif other and not unit:
        wanted, unit = units.measured(gold, single=bool(other.dimension))
    if unit and other and not unit.same_kind(other):
        return Ruling(False, "unit")
    bases = special_forms.base_number(wanted), special_forms.base_number(given)
    if bases != (None, None):
        one, two = (base or (text, "") for base, text in zip(bases, (wanted, given), strict=True))
        return Ruling(one[0] == two[0] and (one[1] == two[1] or "" in (one[1], two[1])), "base")
    if (
        unit and other and unit.dimension == other.dimension and unit.factor != other.factor
    ) or _radians(unit, other, wanted, given):
        return _in_one_unit(wanted, unit, given, other)
    return _percentages(wanted, given)


def _radians(unit: units.Unit | None, other: units.Unit | None, wanted: str, given: str) -> bool:
    angle = unit or other
    if not angle or (unit and other) or angle.dimension != units.ANGLE:
        return False
    return r"\pi" in (given if unit else wanted)


def _in_one_unit(
    wanted: str, unit: units.Unit | None, given: str, other: units.Unit | None
) -> Ruling:
    values = [expression(written.as_latex(text)) for text in (wanted, given)]
    if None in values:
        return Ruling(False, "unit", read=values[1] is not None)
    one, two = (value * _factor(of) for value, of in zip(values, (unit, other), strict=True))
    gap, most = constant_gap(one, two) if not (one.free_symbols | two.free_symbols) else (1, 0)
    return Ruling(bool(gap <= (WHOLE * most if "." in wanted + given else 0)), "unit")


def _factor(unit: units.Unit | None) -> Any:
    if unit is None:
        return sympy.Integer(1)
    if unit.dimension == units.ANGLE:
        return (
            sympy.nsimplify(float(unit.factor) / math.pi, rational=True, tolerance=1e-9) * sympy.pi
        )
    return sympy.Rational(unit.factor)


def _percentages(gold: str, answer: str) -> Ruling:
    """Two values of which each may be in percent."""
    (wanted, gold_percent), (given, percent) = map(written.without_percent, (gold, answer))
    found = _values(wanted, given)
    if percent == gold_percent:
        return replace(found, rule="percent") if percent else found
    value = number_of(wanted)
    fraction = percent and value is not None and value.is_real and 0 < abs(value) < 1
    if found.equal and not fraction:
        return replace(found, rule="percent")
    plain = number(given)
    if gold_percent and plain is not None and plain <= 1:
        return Ruling(False, "percent")
    hundredth = rf"\frac{{{given if percent else wanted}}}{{100}}"
    pair = (wanted, hundredth) if percent else (hundredth, given)
    return replace(_values(*pair), rule="percent")


def _values(gold: str, answer: str) -> Ruling:
    """Two expressions without units."""
    gold, answer = written.as_latex(gold), written.as_latex(answer)
    one, other = expression(gold), expression(answer)
    if one is None or other is None:
        same = written.words(gold) == written.words(answer) and len(written.words(gold)) > 1
        signs = [re.sub(r"[\w\s,.{}]|\\text", "", text) for text in (gold, answer)]
        return Ruling(same and signs[0] == signs[1], "words", read=other is not None)
    if one.free_symbols or other.free_symbols or not (one.is_finite and other.is_finite):
        return Ruling(identical(one, other), "expression")
    gap, most = constant_gap(one, other)
    if "." not in gold + answer:
        return Ruling(bool(gap == 0), "number")
    if one.is_Integer:
        return Ruling(bool(gap <= WHOLE * most), "number")
    places = [place for place in map(written.last_place, (gold, answer)) if place is not None]
    bound = min(APPROXIMATE * most, max(places, default=math.inf))
    return Ruling(bool(gap <= bound), "number")
