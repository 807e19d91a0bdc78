r"""What a question asks for beside the value: the options of a choice, an order, a form.

A value may be right and its form not: `a(a^2-9)` is not factored, `35 \times 10^3` no scientific
notation. Where the question does not say so, any form is right.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd

import sympy

from assay.tasks.math import written
from assay.tasks.math.expressions import expression

LONGEST = 4_000
_OPTION = re.compile(
    r"(?:\\text(?:bf|rm)?\s*\{\s*)?(?:\(([A-H])\)|(?<![A-Za-z])([A-H])\s*[.．、:：)])"
    r"\s*\}?\s*(?:\\ )?"
)
_ORDER = re.compile(
    r"\border\b(?!ed)|\barrange|in that order|\brespectively|least to greatest|greatest to least"
    r"|smallest to largest|largest to smallest|ascending|descending"
    r"|从小到大|从大到小|顺序|依次|分别",
    re.IGNORECASE,
)
_FACTOR = re.compile(
    r"\bfactor(?:i[sz]e|ize|ise)?\b(?!s|ial)|因式分解|分解因式|分解", re.IGNORECASE
)
_PRIMES = re.compile(r"prime factori[sz]ation|product of primes|分解质因数|质因数", re.IGNORECASE)
_SCIENTIFIC = re.compile(r"scientific notation|standard form|科学[记计]数法", re.IGNORECASE)
_SOLUTIONS = re.compile(
    r"\bsol(?:ve|ution|utions)\b|\broots?\b|\bvalues? of\b|解|方程|的值", re.IGNORECASE
)
_LOWEST = re.compile(
    r"simplest (?:form|terms)|lowest terms|reduced (?:fraction|form)|最简|约分", re.IGNORECASE
)
_FRACTION = re.compile(r"-?(?:\\[dt]?frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+))")
_MANTISSA = re.compile(r"-?[1-9](?:\.\d+)?\s*\\(?:times|cdot)\s*10\s*\^.*")
_FACTOR_SIGN = re.compile(r"\\(?:cdot|times)(?![a-zA-Z])|\*")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question asks for."""

    options: Mapping[str, str] = field(default_factory=dict)
    """What each letter of a choice stands for, as plain texts."""
    ordered: bool = False
    solutions: bool = False
    """Of an equation: the set of the only one is as good as that one."""
    form: str = ""
    """"factors", "primes", "scientific", "lowest" or none."""


@lru_cache(maxsize=64)
def asked(question: str) -> Asked:
    """Reads a question; an empty one asks for nothing but the value."""
    if not question or len(question) > LONGEST:
        return Asked()
    form = "primes" if _PRIMES.search(question) else ""
    form = form or ("scientific" if _SCIENTIFIC.search(question) else "")
    form = form or ("factors" if _FACTOR.search(question) else "")
    form = form or ("lowest" if _LOWEST.search(question) else "")
    solutions = _SOLUTIONS.search(question) is not None
    return Asked(_options(question), _ORDER.search(question) is not None, solutions, form)


def _options(question: str) -> dict[str, str]:
    marks = list(_OPTION.finditer(question))
    letters = [match[1] or match[2] for match in marks]
    first = next((n for n in range(len(letters)) if letters[n : n + 3] == ["A", "B", "C"]), None)
    if first is None:
        return {}
    found = {}
    for n in range(first, len(marks)):
        if letters[n] != chr(ord("A") + n - first):
            break
        end = marks[n + 1].start() if n + 1 < len(marks) else len(question)
        said = (
            question[marks[n].end() : end]
            .replace("\\qquad", " ")
            .replace("\\quad", " ")
            .strip(" \n;；,，$")
        )
        found[letters[n]] = written.plain(said)
    return found


def in_form(form: str, gold: str, answer: str) -> bool:
    """Whether an answer that is equal to the gold answer has the form that is asked for, as far as
    the gold answer has it."""
    said = written.links(answer)[-1]
    if form == "scientific":
        return bool(_MANTISSA.fullmatch(said)) or not _MANTISSA.fullmatch(gold)
    if form == "primes":
        return _primes(said) or not _primes(gold)
    if form == "lowest":
        parts = _FRACTION.fullmatch(said)
        return not parts or gcd(*(int(n) for n in parts.groups() if n)) == 1
    if form == "factors":
        return _factors(said) >= _factors(gold)
    return True


def _primes(text: str) -> bool:
    bases = [re.split(r"\^", part)[0].strip(" {}()") for part in written.split(text, _FACTOR_SIGN)]
    return all(base.isdigit() and len(base) < 20 and sympy.isprime(int(base)) for base in bases)


def _factors(text: str) -> int:
    """How many factors with symbols a product is written with, powers counted as often."""
    found = expression(text)
    if found is None:
        return 0
    count = 0
    for factor in sympy.Mul.make_args(found):
        base, power = factor.as_base_exp()
        if base.free_symbols:
            count += int(power) if power.is_Integer and 0 < power < 100 else 1
    return count
