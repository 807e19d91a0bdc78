r"""Whether an answer is the gold answer: the rules around math-verify; the function workers run.

math-verify compares expressions. What an answer *says* is settled here first, since math-verify
credits any side of `41=42`, the number in "not 42" and the set {1, 2} for the pair (1, 2):

  text        equal texts are equal; answers of words, and letters of choices, are compared as such
  hedge       an answer that denies or bounds its number ("not 42") is not that number
  chain       the sides of a chain of equalities that are numbers are equal; then the last counts
  list        as many parts as the gold answer has, each equal to one of them; brackets of one kind
  number      exact values are equal; a decimal is within 1e-6 of the gold, relatively, and within
              one unit in the last place; within 1e-9 of a whole number
  percent     42 % is 42 where the gold is written in percent, or is whole or above 1, else 0.42
  math-verify everything else

Never called in the lab's own process: what is compared may take for ever.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import sympy

from assay.tasks.math import written
from assay.tasks.math.answers import delimited, number
from assay.tasks.math.verify import both_orders, compare, expression, is_read

EXACT, APPROXIMATE, WHOLE = 1e-15, 1.05e-6, 1e-9
"""Relative tolerances: of exact values worked out to 50 digits; of decimals; of decimals where the
gold is whole. 0.333333 is 1e-6 from a third."""
LONGEST_LIST = 40
UNITS = {
    "cm": "centimeter centimetre",
    "mm": "millimeter millimetre",
    "km": "kilometer kilometre",
    "m": "meter metre",
    "in": "inch inches",
    "ft": "foot feet",
    "mi": "mile",
    "kg": "kilogram",
    "g": "gram",
    "h": "hour hr",
    "min": "minute",
    "s": "second sec",
    "day": "day",
    "degree": "degree deg",
    "dollar": "dollar usd",
    "cent": "cent",
}
"""Units that exclude each other, by their other names."""
UNIT_OF = {name: unit for unit, names in UNITS.items() for name in (unit, *names.split())}


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether two answers are equal, and by which rule."""

    equal: bool
    rule: str
    read: bool = True
    """Whether the answer could be read as anything."""


def judge(gold: str, answer: str) -> dict[str, Any]:
    """{"equal", "rule", "gold_read", "answer_read", "math_verify", "swapped"}.

    The last two are math-verify's own verdict on the two texts, in its order and swapped; None
    where it comes to none. Raises what math-verify raises where no rule decides without it.
    """
    wanted, given = plain_pair(gold, answer)
    words = written.is_words(wanted) or written.choice(wanted) is not None
    if not words and not readable(gold, wanted):
        return verdict(Ruling(False, "text"), gold_read=False)
    if not given:
        return verdict(Ruling(False, "text", read=False))
    if written.same_text(wanted, given):
        return verdict(Ruling(True, "text"))
    return verdict(rule(wanted, given, gold, answer), *own_verdicts(gold, answer))


def readable(gold: str, wanted: str) -> bool:
    """Whether math-verify reads the gold answer, or the last side of its equation.

    Its value is worked out too: where that takes for ever, no answer to it can be judged.
    """
    _value(expression(delimited(wanted)))
    texts = (gold, written.links(wanted)[-1])
    return any(is_read(delimited(text)) for text in texts if text)


def plain_pair(gold: str, answer: str) -> tuple[str, str]:
    """Both as plain texts; 100,200,300 is a list where the other is one."""
    wanted, given = written.plain(gold), written.plain(answer)
    if len(written.listed(given)) > 1:
        wanted = written.plain(gold, thousands=False)
    elif len(written.listed(wanted)) > 1:
        given = written.plain(answer, thousands=False)
    return wanted, given


def verdict(
    ruling: Ruling, own: bool | None = None, swapped: bool | None = None, gold_read: bool = True
) -> dict[str, Any]:
    """What a judge returns, as JSON."""
    return {
        "equal": ruling.equal,
        "rule": ruling.rule,
        "gold_read": gold_read,
        "answer_read": ruling.read,
        "math_verify": own,
        "swapped": swapped,
    }


def own_verdicts(gold: str, answer: str) -> tuple[bool | None, bool | None]:
    """math-verify's own verdicts in both orders; None where it raises, or cannot read the gold:
    that is none."""
    try:
        return both_orders(delimited(gold), delimited(answer))
    except Exception:
        return None, None


def rule(gold: str, answer: str, whole_gold: str = "", whole_answer: str = "") -> Ruling:
    """The ruling on two plain texts; the whole ones are as they were given."""
    whole_gold, whole_answer = whole_gold or gold, whole_answer or answer
    if written.same_text(gold, answer):
        return Ruling(True, "text")
    if written.is_words(gold):
        return Ruling(written.same_text(gold, written.links(answer)[-1]), "text")
    letter, chosen = written.choice(gold), written.chosen(answer)
    if letter is not None and chosen is not None:
        return Ruling(letter == chosen, "text")
    if written.hedges(answer) - written.hedges(gold):
        return Ruling(False, "hedge")
    return _by_form(gold, answer, whole_gold, whole_answer)


def _by_form(gold: str, answer: str, whole_gold: str, whole_answer: str) -> Ruling:
    """The ruling by what the two are: lists, chains, relations, or single values."""
    gold, answer = written.members(gold), written.members(answer)
    signs = "\\pm" in gold + answer or "\\mp" in gold + answer
    wanted, given = written.listed(gold), written.listed(answer)
    if not signs and (len(wanted) > 1 or len(given) > 1):
        return _lists(wanted, given, gold, answer)
    kind, inner = written.brackets(gold)
    other, within = written.brackets(answer)
    several = len(written.listed(inner)) > 1 or len(written.listed(within)) > 1
    if kind and other and several and not signs:
        return _bracketed((kind, inner), (other, within))
    sides, known = written.links(answer), written.links(gold)
    if len(sides) > 1 or len(known) > 1:
        return _chains(known, sides, whole_gold, whole_answer)
    if written.relational(answer) and not written.relational(gold) and not _interval(gold):
        return Ruling(False, "relation")
    found = _single(gold, answer)
    if found.rule == "math-verify" and not found.equal and whole_answer != answer:
        return _by_math_verify(whole_gold, whole_answer)
    return found


def _interval(gold: str) -> bool:
    return bool(written.brackets(gold)[0]) or "\\infty" in gold or "\\cup" in gold


def _lists(wanted: list[str], given: list[str], gold: str, answer: str) -> Ruling:
    """Lists without brackets, of which one may have brackets around it."""
    if len(wanted) == 1 and len(given) > 1:
        kind, inner = written.brackets(gold)
        within = written.listed(inner)
        if kind and len(within) > 1:
            return _matched(within, given, ordered=kind != "{}")
        # Boxes that all say the same are one answer.
        return Ruling(len(given) <= 3 and all(rule(gold, part).equal for part in given), "list")
    if len(given) == 1 and len(wanted) > 1:
        kind, inner = written.brackets(answer)
        return _matched(wanted, written.listed(inner), ordered=kind not in ("", "{}"))
    return _matched(wanted, given, ordered=False)


def _bracketed(gold: tuple[str, str], answer: tuple[str, str]) -> Ruling:
    """Tuples, intervals and sets."""
    (kind, inner), (other, within) = gold, answer
    if kind != other:
        return Ruling(False, "brackets")
    parts = written.listed(inner), written.listed(within)
    return _matched(*parts, ordered=kind != "{}", name="brackets")


def _matched(wanted: list[str], given: list[str], ordered: bool, name: str = "list") -> Ruling:
    """Whether every part has its equal, in order or in any order."""
    if len(wanted) != len(given) or len(wanted) > LONGEST_LIST:
        return Ruling(False, name)
    if ordered:
        pairs = zip(wanted, given, strict=True)
        return Ruling(all(rule(one, other).equal for one, other in pairs), name)
    left = list(given)
    for one in wanted:
        found = next((n for n, other in enumerate(left) if rule(one, other).equal), None)
        if found is None:
            return Ruling(False, name)
        del left[found]
    return Ruling(True, name)


def _chains(known: list[str], sides: list[str], whole_gold: str, whole_answer: str) -> Ruling:
    """Equations: an answer counts by its last side, where every link of it holds."""
    if not _holds(sides):
        return Ruling(False, "chain")
    if len(known) == 1:
        turned = len(sides) == 2 and written.is_name(sides[1]) and not written.is_name(sides[0])
        last = sides[0] if turned else sides[-1]
        found = rule(known[0], last)
        return Ruling(found.equal, "chain", found.read)
    if len(sides) == 1 and written.is_name(known[0]):
        return rule(known[-1], sides[0])
    same = written.same_text(_unbraced(known[0]), _unbraced(sides[0]))
    if len(sides) > 1 and written.is_name(known[0]) and same:
        return rule(known[-1], sides[-1])
    return _by_math_verify(whole_gold, whole_answer)


def _unbraced(text: str) -> str:
    return text.replace("{", "").replace("}", "")


def _holds(sides: list[str]) -> bool:
    """Whether a chain is true as far as it can be told: its sides that are numbers are equal."""
    numbers = [side for side in sides if side and not written.is_name(side) and _is_number(side)]
    return all(rule(numbers[-1], other).equal for other in numbers[:-1])


def _is_number(text: str) -> bool:
    return _constant(expression(delimited(written.without_unit(text)[0])))


def _constant(value: Any) -> bool:
    """Whether an expression is a number once it is worked out: `41+0x` is one."""
    if not isinstance(value, sympy.Expr):
        return False
    return not value.doit().free_symbols


def _single(gold: str, answer: str) -> Ruling:
    """Two single values: words around a number, units and percent are looked at, then compared."""
    figures = written.figures_in_words(answer) if not written.figures_in_words(gold) else None
    (wanted, unit), (given, other) = written.without_unit(gold), written.without_unit(answer)
    if written.alternatives(answer) and not written.alternatives(gold):
        return Ruling(False, "list")
    if figures is not None and not other:
        if len(figures) != 1:
            return Ruling(False, "words", read=bool(figures))
        given = figures[0].replace("$", "")
    units = {unit_of(unit), unit_of(other)} - {""}
    if len(units) > 1:
        return Ruling(False, "unit")
    bases = written.base(wanted), written.base(given)
    if None not in bases and bases[0] != bases[1]:
        return Ruling(False, "base")
    return _percentages(wanted, given)


def unit_of(text: str) -> str:
    """The unit that a text names, "" where it is none that excludes others."""
    word = text.lower().strip(". ")
    return UNIT_OF.get(word) or UNIT_OF.get(word.rstrip("s"), "")


def _percentages(gold: str, answer: str) -> Ruling:
    """Two values of which each may be in percent: the gold's own unit is the one that counts."""
    (wanted, gold_percent), (given, percent) = map(written.without_percent, (gold, answer))
    if percent and not gold_percent:
        value = _value(expression(delimited(written.as_latex(wanted))))
        if value is not None and 0 < abs(value) < 1:
            given = rf"\frac{{{given}}}{{100}}" if number(given) is None else f"{given}/100"
    found = _values(wanted, given)
    return replace(found, rule="percent") if percent or gold_percent else found


def _values(gold: str, answer: str) -> Ruling:
    """Two expressions without units: numbers by their values, the rest by math-verify."""
    gold, answer = written.as_latex(gold), written.as_latex(answer)
    one, other = expression(delimited(gold)), expression(delimited(answer))
    wanted, given = _value(one), _value(other)
    if wanted is None or given is None:
        return _by_math_verify(gold, answer)
    gap, most = abs(given - wanted), abs(wanted)
    if "." not in gold + answer:
        return Ruling(bool(gap <= EXACT * most), "number")
    if float(wanted - sympy.floor(wanted)) == 0.0:  # a Float never equals an Integer
        return Ruling(bool(gap <= WHOLE * most), "number")
    places = [place for place in map(written.last_place, (gold, answer)) if place is not None]
    bound = min(APPROXIMATE * most, max(places, default=math.inf))
    return Ruling(bool(gap <= bound), "number")


def _value(found: Any) -> Any:
    """The real number to 50 digits that an expression is; None where it is none."""
    if not isinstance(found, sympy.Expr) or found.free_symbols:
        return None
    value = found.doit().evalf(50)
    return value if value.is_Number and value.is_finite else None


def _by_math_verify(gold: str, answer: str) -> Ruling:
    found = compare(delimited(gold), delimited(answer))
    return Ruling(found["equal"], "math-verify", found["answer_read"])


# Loads in the worker, once, what the first comparison of each kind would load in every call.
judge(r"x = \frac{1}{2} = \sqrt{0.25}", r"\{0.5, \pi, 50\%\}")
judge(r"\frac{1}{2}", r"\frac{2}{4} = 0.5")
