r"""Whether an answer to OlympiadBench is the gold answer: its rules, run by a worker.

After the rules of OpenBMB/OlympiadBench (eval/auto_scoring_judge.py), rewritten:

  several      as many answers as the gold has, in any order, each equal to one of them; `a \pm b`
               is two answers
  number       within the row's `error`, else within 1e-8; where `error` lists several, each answer
               has its own. With a percent sign on one side only, 60 % is 60 and 0.6
  unit         the unit that the question asks for may follow the answer; another one is wrong
  brackets     tuples, intervals and their unions have the same brackets and equal parts in order
  equation     left minus right is that of the gold times a number; where both begin with the same
               name, as in `f(x) = x`, or only one has a name, the other sides count
  expression   the difference of both simplifies to 0

What is none of these is up to the rules of `judging`. Unlike in the original, 200 is not 2 without
a percent sign, and a pair is no triple. Never called in the lab's own process.
"""

import re
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import sympy

from assay.labs.math import units, written
from assay.labs.math.expressions import expression, identical, is_read, proportional
from assay.labs.math.judging import (
    LONGEST_LIST,
    Ruling,
    own_verdicts,
    plain_pair,
    rule,
    signed,
    verdict,
)
from assay.labs.math.sentences import delimited

TOLERANCE = 1e-8
"""Absolute, where a row has no `error`."""
SLACK = 1.01
"""A difference of 0.001 in decimals may be a little more in binary."""
_UNION = re.compile(r"\\cup(?![a-zA-Z])")


def judge(
    gold: str,
    answer: str,
    tolerances: Sequence[float | None] = (),
    unit: str = "",
    several: bool = False,
) -> dict[str, Any]:
    """As `judging.judge`.

    `tolerances`: the absolute errors that are allowed, one for all answers or one for each; None is
    `TOLERANCE`. `unit`: the one that the question asks for. `several`: it asks for several answers,
    so that 1,200 is two.
    """
    wanted, given = plain_pair(gold, answer)
    if several:
        wanted, given = (written.plain(text, thousands=False) for text in (gold, answer))
    if not wanted:
        return verdict(Ruling(False, "text"), gold_read=False)
    if not given:
        return verdict(Ruling(False, "text", read=False))
    if written.same_text(wanted, given):
        return verdict(Ruling(True, "text"))
    equal = _equal(_stripped(wanted, unit), _stripped(given, unit), tolerances, unit)
    read = equal or is_read(delimited(answer))
    return verdict(Ruling(equal, "olympiadbench", read), *own_verdicts(gold, answer))


def _stripped(text: str, unit: str) -> str:
    r"""`text` without dollar signs, and without the asked unit, however it is typeset."""
    bare = re.sub(r"[\s{}$\\~]", "", written.unwrapped(unit))
    text = text.replace("$", "").strip()
    if not bare:
        return text
    spelled = r"[\s{}\\]*".join(map(re.escape, bare))
    found = re.search(rf"[\s\\{{]*{spelled}[\s}}]*$", written.unwrapped(text))
    return written.unwrapped(text)[: found.start()].strip() if found else text


def _equal(gold: str, answer: str, tolerances: Sequence[float | None], unit: str) -> bool:
    """Whether both hold the same answers, in any order."""
    if written.hedges(answer) - written.hedges(gold):
        return False
    wanted, given = _answers(gold), _answers(answer)
    if len(wanted) != len(given) or len(wanted) > LONGEST_LIST:
        return False
    allowed = _allowed(tolerances, len(wanted))
    fits = [
        [n for n, other in enumerate(given) if _same(one, other, bound, unit)]
        for one, bound in zip(wanted, allowed, strict=True)
    ]
    return all(fits) and _matching(fits)


def _answers(text: str) -> list[str]:
    r"""The answers in a text: the parts of its list or set, and two of each `\pm`."""
    kind, inner = written.brackets(text)
    parts = written.listed(inner if kind == "{}" else text)
    return [one for part in map(written.members, parts) for one in signed(part)]


def _allowed(tolerances: Sequence[float | None], count: int) -> list[float]:
    each = [*tolerances] * count if len(tolerances) == 1 else [*tolerances, *repeat(None, count)]
    return [TOLERANCE if bound is None else bound for bound in each[:count]]


def _matching(fits: Sequence[Sequence[int]]) -> bool:
    """Whether each gold answer can have an answer of its own (augmenting paths)."""
    taken: dict[int, int] = {}

    def place(one: int, seen: set[int]) -> bool:
        for other in fits[one]:
            if other not in seen:
                seen.add(other)
                if other not in taken or place(taken[other], seen):
                    taken[other] = one
                    return True
        return False

    return all(place(one, set()) for one in range(len(fits)))


def _same(gold: str, answer: str, tolerance: float, unit: str) -> bool:
    """One answer of each: by its form, else by the rules of `judging`."""
    if written.same_text(gold, answer):
        return True
    if written.brackets(gold)[0] or _UNION.search(gold):
        return _same_brackets(gold, answer, tolerance)
    known, sides = written.links(gold), written.links(answer)
    if max(len(known), len(sides)) == 2:
        found = _same_equation(known, sides, tolerance, unit)
    else:
        found = _same_number(gold, answer, tolerance, unit)
    if found is not None:
        return found
    one, other = expression(gold), expression(answer)
    if one is not None and other is not None and identical(one, other):
        return True
    return rule(gold, answer).equal


def _same_brackets(gold: str, answer: str, tolerance: float) -> bool:
    """Tuples, intervals and unions of them."""
    wanted, given = _UNION.split(gold), _UNION.split(answer)
    if len(wanted) > 1:
        return rule(gold, answer).equal or (
            len(wanted) == len(given)
            and all(
                _same_brackets(one.strip(), other.strip(), tolerance)
                for one, other in zip(wanted, given, strict=True)
            )
        )
    (kind, inner), (other, within) = written.brackets(gold), written.brackets(answer)
    parts = written.listed(inner), written.listed(within)
    if kind != other or len(parts[0]) != len(parts[1]):
        return len(parts[0]) == 1 and rule(gold, answer).equal
    return all(_same(*pair, tolerance, "") for pair in zip(*parts, strict=True))


def _same_equation(
    known: Sequence[str], sides: Sequence[str], tolerance: float, unit: str
) -> bool | None:
    """Two equations, or one whose left side is a name and what that is equal to; None where it is
    neither."""
    if len(known) == len(sides):
        if written.is_name(known[0]) and _spelled(known[0]) == _spelled(sides[0]):
            return _same(known[1], sides[1], tolerance, unit)
        return proportional(known, sides) or None
    two = known if len(known) == 2 else sides
    return _same(known[-1], sides[-1], tolerance, unit) if written.is_name(two[0]) else None


def _spelled(name: str) -> str:
    return re.sub(r"[\s{}]", "", name)


def _same_number(gold: str, answer: str, tolerance: float, unit: str) -> bool | None:
    """Two numbers; None where one is none."""
    (wanted, gold_unit), (given, other_unit) = map(units.measured, (gold, answer))
    asked = [units.unit(unit) if unit else None, gold_unit, other_unit]
    known = [each for each in asked if each is not None]
    if any(not one.same_kind(other) for one in known for other in known):
        return False
    if len({each.factor for each in known}) > 1:
        return False
    (wanted, gold_percent), (given, percent) = map(written.without_percent, (wanted, given))
    one, other = (expression(written.as_latex(text)) for text in (wanted, given))
    if one is None or other is None or one.free_symbols or other.free_symbols:
        return None
    hundred = sympy.Integer(100) ** (int(gold_percent) - int(percent))
    gaps = [abs((one - other * factor).evalf(30)) for factor in {sympy.S.One, hundred}]
    if not all(gap.is_number and gap.is_comparable for gap in gaps):
        return None
    return any(bool(gap <= tolerance * SLACK) for gap in gaps)
