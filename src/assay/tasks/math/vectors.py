r"""Tuples, vectors and matrices, and what is made of them: `\frac{1}{5}(3,-4)`, `(1,0)+t(2,1)`."""

import re
from dataclasses import dataclass
from typing import Any

import sympy

from assay.tasks.math import special_forms, written
from assay.tasks.math.expressions import expression

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
