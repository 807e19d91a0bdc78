r"""Whether an answer to OlympiadBench is the gold answer: its rules, run by a worker.

After the rules of OpenBMB/OlympiadBench (eval/auto_scoring_judge.py), rewritten:

  several      as many answers as the gold has, in any order, each equal to one of them; `a \pm b`
               is two answers
  number       within the row's `error`, else within 1e-8; where `error` lists several, each answer
               has its own. With a percent sign on one side only, 60 % is 60 and 0.6
  unit         the unit that the question asks for may follow the answer; another one is wrong
  brackets     tuples and intervals have the same brackets and equal parts in order

What is none of these is up to the rules of `judging`. Unlike in the original, 200 is not 2 without
a percent sign, and a pair is no triple. Never called in the lab's own process.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict
from itertools import repeat
from typing import Any

import sympy
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from assay.labs.math import units, written
from assay.labs.math.expressions import expression, is_read
from assay.labs.math.judging import (
    LONGEST_LIST,
    Ruling,
    as_text,
    plain_pair,
    rule,
    signed,
    with_own_verdict,
)
from assay.labs.math.sentences import delimited

TOLERANCE = 1e-8
"""Absolute, where a row has no `error`."""
SLACK = 1.01
"""A difference of 0.001 in decimals may be a little more in binary."""


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
    wanted, plain = plain_pair(gold, answer)
    if several:
        wanted, plain = (written.plain(text, thousands=False) for text in (gold, answer))
    ruling = as_text(wanted, plain)
    if ruling is not None:
        return asdict(ruling)
    equal = _equal(_stripped(wanted, unit), _stripped(plain, unit), tolerances, unit)
    read = equal or is_read(delimited(answer))
    return with_own_verdict(Ruling(equal, "olympiadbench", read), gold, answer)


def _stripped(text: str, unit: str) -> str:
    r"""`text` without dollar signs, and without the asked unit, however it is typeset."""
    bare = re.sub(r"[\s{}$\\~]", "", written.unwrapped(unit))
    text = text.replace("$", "").strip()
    if not bare:
        return text
    spelled = r"[\s{}\\]*".join(map(re.escape, bare))
    match = re.search(rf"[\s\\{{]*{spelled}[\s}}]*$", written.unwrapped(text))
    return written.unwrapped(text)[: match.start()].strip() if match else text


def _equal(gold: str, answer: str, tolerances: Sequence[float | None], unit: str) -> bool:
    """Whether both hold the same answers, in any order."""
    if written.hedges(answer) - written.hedges(gold):
        return False
    wanted, answers = _answers(gold), _answers(answer)
    if len(wanted) != len(answers) or len(wanted) > LONGEST_LIST:
        return False
    bounds = [*tolerances] * (len(wanted) if len(tolerances) == 1 else 1)
    # Each gold answer needs an answer of its own.
    fits = [
        [_same(one, other, bound or TOLERANCE, unit) for other in answers]
        for one, bound in zip(wanted, [*bounds, *repeat(None, len(wanted))], strict=False)
    ]
    return bool((maximum_bipartite_matching(csr_array(fits)) >= 0).all())


def _answers(text: str) -> list[str]:
    r"""The answers in a text: the parts of its list or set, and two of each `\pm`."""
    kind, inner = written.brackets(text)
    parts = written.listed(inner if kind == "{}" else text)
    return [one for part in map(written.members, parts) for one in signed(part)]


def _same(gold: str, answer: str, tolerance: float, unit: str) -> bool:
    """One answer of each: two numbers by the tolerance, parts in brackets by it too, all else by
    the rules of `judging`."""
    (kind, inner), (other, within) = written.brackets(gold), written.brackets(answer)
    parts = written.listed(inner), written.listed(within)
    if kind == other != "" and len(parts[0]) == len(parts[1]) > 1:
        return all(_same(*pair, tolerance, "") for pair in zip(*parts, strict=True))
    known, sides = written.links(gold), written.links(answer)
    if {len(known), len(sides)} == {1, 2} and written.is_name(max(known, sides, key=len)[0]):
        return _same(known[-1], sides[-1], tolerance, unit)
    same = _same_number(gold, answer, tolerance, unit)
    return rule(gold, answer).equal if same is None else same


def _same_number(gold: str, answer: str, tolerance: float, unit: str) -> bool | None:
    """Two numbers; None where one is none."""
    (wanted, gold_unit), (figure, other_unit) = map(units.measured, (gold, answer))
    known = [each for each in (units.unit(unit) if unit else None, gold_unit, other_unit) if each]
    alike = all(one.same_kind(other) for one in known for other in known)
    if not alike or len({each.factor for each in known}) > 1:
        return False
    (wanted, gold_percent), (figure, percent) = map(written.without_percent, (wanted, figure))
    one, other = (expression(written.as_latex(text)) for text in (wanted, figure))
    if one is None or other is None or one.free_symbols or other.free_symbols:
        return None
    hundred = sympy.Integer(100) ** (int(gold_percent) - int(percent))
    gaps = [abs((one - other * factor).evalf(30)) for factor in {sympy.S.One, hundred}]
    if not all(gap.is_number and gap.is_comparable for gap in gaps):
        return None
    return any(bool(gap <= tolerance * SLACK) for gap in gaps)
