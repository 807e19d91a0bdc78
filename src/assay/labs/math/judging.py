r"""Whether an answer is the gold answer: both are read as one kind of value; workers run this.

  sentence   the value that it says, behind "is" or the only one; bounds and denials that the
             question does not name make it none
  text       words, yes and no, letters of choices: equal as such
  hedge      an answer that denies, bounds or blurs its number ("not 42", "about 42") is not it
  set        intervals, unions and inequalities: the same numbers
  list       as many parts as the gold answer has, each equal to one of them, or to that of its name
  brackets   tuples, vectors and matrices: of one kind, with equal parts in order
  equation   names and their values; a chain whose sides that are numbers are equal, by its last;
             two equations whose differences are proportional
  unit       quantities of one dimension are equal in one unit; an omitted unit is the other's
  percent    42 % is 42 where the gold is in percent, or above 1, and 0.42
  number     exact values are equal; a decimal is within 1e-6 of the gold, relatively, and within
             one unit in the last place; within 1e-9 of a whole number
  expression equal for all values of its symbols

What is not understood is equal to the same text alone: no word and no sign is nothing. math-verify
gives a verdict of its own beside this one. Never called in the lab's own process: what is compared
may take for ever.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from typing import Any

import sympy
from sympy import Rational

from assay.labs.math import regions, sentences, units, written
from assay.labs.math.expressions import (
    constant_gap,
    expression,
    identical,
    own_verdict,
    proportional,
)
from assay.labs.math.sentences import delimited, number

LONGEST_LIST = 40
VECTORS = {"()": ("()", "⟨⟩", "column"), "⟨⟩": ("⟨⟩", "()", "column")}
"""The brackets that an answer may have beside its own, by those of the gold answer."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether two answers are equal, and by which rule."""

    equal: bool
    rule: str
    answer_read: bool = True
    """Whether it could be read as anything."""
    gold_read: bool = True
    math_verify: bool | None = None
    """math-verify's own verdict on the two texts; None where it comes to none."""


Vector = tuple[str, list[str]]
"""The brackets of components, "column" or "matrix of 2 rows", and the components."""
Item = tuple[str, str]
"""The name of a value, "" where it has none, and the value."""


def judge(gold: str, answer: str, question: str = "") -> dict[str, Any]:
    """A `Ruling` as JSON.

    The question tells what the letters of a choice stand for, and whether it asks for an order or a
    form.
    """
    wanted, plain = plain_pair(gold, answer)
    # Where that takes for ever, nothing can be judged.
    value_of(expression(written.as_latex(wanted)))
    ruling = as_text(wanted, plain)
    if ruling is not None:
        return asdict(ruling)
    ruling = _as_asked(wanted, plain, question)
    if not ruling.equal:
        ruling = _sentence(wanted, plain, question) or ruling
    return with_own_verdict(ruling, gold, answer)


def as_text(gold: str, answer: str) -> Ruling | None:
    """The ruling on two plain texts of which one is empty, or that read the same; else None."""
    if not gold or not answer:
        return Ruling(False, "text", answer_read=bool(answer), gold_read=bool(gold))
    return Ruling(True, "text") if written.same_text(gold, answer) else None


def _sentence(gold: str, answer: str, question: str) -> Ruling | None:
    """The ruling on what a sentence says; a bound that the question names is none of the answer."""
    allowed = written.hedges(question) - written.DENIALS | {"≈"}
    if written.hedges(answer) - written.hedges(gold) - allowed and not regions.is_region(gold):
        return None
    percent = "%" in answer and gold.isdigit() and not re.search("%|percent|百分", question)
    value = None if percent else sentences.value_in(answer)
    if not value or value == answer:
        return None
    ruling = _as_asked(gold, value, question)
    return ruling if ruling.equal else None


def _as_asked(gold: str, answer: str, question: str) -> Ruling:
    """The ruling by the value, the options of the question and the form that it asks for."""
    ruling = rule(gold, answer)
    if not ruling.equal:
        return ruling
    forms = (name for name, words in _FORMS.items() if re.search(words, question, re.IGNORECASE))
    form = next(forms, "")
    if not in_form(form, gold, answer):
        return Ruling(False, form)
    parts = written.listed(gold), written.listed(answer)
    unnamed = any(not name for name, _ in _items(gold))
    if len(parts[0]) == len(parts[1]) > 1 and unnamed and _ORDER.search(question):
        return _matched(*parts, ordered=True)
    return ruling


def plain_pair(gold: str, answer: str) -> tuple[str, str]:
    """Both as plain texts; 100,200,300 is a list where the other is one."""
    wanted, plain = written.plain(gold), written.plain(answer)
    if len(written.listed(plain)) > 1:
        wanted = written.plain(gold, thousands=False)
    elif len(written.listed(wanted)) > 1:
        plain = written.plain(answer, thousands=False)
    return wanted, plain


def with_own_verdict(ruling: Ruling, gold: str, answer: str) -> dict[str, Any]:
    """The ruling with math-verify's verdict beside it, as JSON; where it raises, it has none."""
    try:
        own = own_verdict(delimited(gold), delimited(answer))
    except Exception:
        own = None
    return asdict(replace(ruling, math_verify=own))


def rule(gold: str, answer: str) -> Ruling:
    """The ruling on two plain texts."""
    if written.same_text(gold, answer):
        return Ruling(True, "text")
    for read in (_texts, _choices, _sets):
        ruling = read(gold, answer)
        if ruling is not None:
            return ruling
    if written.hedges(gold) != written.hedges(answer):
        return Ruling(False, "hedge")
    return _by_form(gold, answer)


def _texts(gold: str, answer: str) -> Ruling | None:
    """Answers of words."""
    last = written.links(answer)[-1]
    meanings = written.meaning(gold), written.meaning(last)
    polar = written.affirmation(last)
    if polar is not None and meanings[0] in (0, 1):
        return Ruling(polar == (meanings[0] == 0), "text")
    if None not in meanings:
        return Ruling(meanings[0] == meanings[1], "text")
    if not written.is_words(gold):
        return None
    return Ruling(written.words(gold) == written.words(last), "text")


def _choices(gold: str, answer: str) -> Ruling | None:
    """Letters of choices, with what they stand for or without."""
    known = written.choice(gold) if not gold.strip().islower() else None
    wanted, choice = written.chosen(gold), written.chosen(answer)
    letters = known or (wanted and wanted[0]), written.choice(answer) or (choice and choice[0])
    if all(letters):
        meant = not (wanted and choice) or rule(wanted[1], choice[1]).equal
        return Ruling(letters[0] == letters[1] and meant, "choice")
    if wanted or choice:
        return rule(wanted[1] if wanted else gold, choice[1] if choice else answer)
    several = written.letters(gold), written.letters(answer)
    return Ruling(several[0] == several[1], "choice") if None not in several else None


def _sets(gold: str, answer: str) -> Ruling | None:
    """Intervals, unions and inequalities, where one of the two is clearly one of these."""
    clear = regions.is_region(gold), regions.is_region(answer)
    if not any(clear):
        return None
    reals = written.meaning(r"\mathbb{R}")
    sets = (r"\mathbb{R}" if written.meaning(t) == reals else t for t in (gold, answer))
    one, other = map(regions.region, sets)
    if one is not None and other is not None:
        return Ruling(regions.equal(one, other), "set")
    if all(clear) or not written.relational(answer):
        return None
    return None if written.members(answer) != answer else Ruling(False, "relation")


def _by_form(gold: str, answer: str) -> Ruling:
    """The ruling by what the two are: lists, tuples, equations, or single values."""
    gold, answer = written.members(gold), written.members(answer)
    wanted, items = _items(gold), _items(answer)
    if len(wanted) > 1 or len(items) > 1:
        return _lists(wanted, items, gold, answer)
    sides, known = written.links(answer), written.links(gold)
    one, other = vector(known[-1]), vector(sides[-1])
    if one and other and len(known) == len(sides) == 1:
        alike = other[0] in VECTORS.get(one[0], (one[0],))
        return Ruling(alike and _matched(one[1], other[1], ordered=True).equal, "brackets")
    if len(sides) > 1 or len(known) > 1:
        return _chains(known, sides)
    return single(gold, answer)


def _items(text: str) -> list[Item]:
    r"""The parts of a list or set, with two of each `\pm`."""
    sides = written.links(text)
    if len(sides) == 2 and written.is_name(sides[0]) and written.brackets(sides[1])[0] == "{}":
        text = sides[1]
    kind, inner = written.brackets(text)
    parts = written.listed(inner if kind == "{}" else text)
    items: list[Item] = []
    for part in parts:
        sides = written.links(part)
        names, values = (written.brackets(side) for side in (sides[0], sides[-1]))
        several = written.listed(names[1]), written.listed(values[1])
        if names[0] == values[0] == "()" and len(several[0]) == len(several[1]) > 1 < len(sides):
            named = list(zip(map(written.fold, several[0]), several[1], strict=True))
            items += named if len(parts) == 1 else [("", sides[-1])]
            continue
        named = len(sides) > 1 and written.is_name(sides[0])
        name = written.fold(sides[0]) if named else ""
        value = sides[-1] if named and _holds(sides) else part
        items += [(name, one) for one in signed(value)]
    return items


def signed(text: str) -> list[str]:
    r"""The two values of `a \pm b`; the text alone where it is none."""
    if r"\pm" not in text and r"\mp" not in text:
        return [text]
    pairs = ("+-", "-+")
    return [text.replace(r"\pm", one).replace(r"\mp", other) for one, other in pairs]


def _lists(wanted: list[Item], answers: list[Item], gold: str, answer: str) -> Ruling:
    """Lists, of which one may be a tuple, or name its values."""
    for (items, text), (other, whole) in permutations(((wanted, gold), (answers, answer))):
        kind, inner = written.brackets(text)
        parts = written.listed(inner)
        if len(items) == 1 and kind in ("()", "⟨⟩", "[]") and len(parts) > 1:
            if written.brackets(whole)[0] == "{}":
                return Ruling(False, "brackets")
            by_name = sorted(other, key=lambda item: item[0].lstrip("\\"))
            values = [value for _, value in by_name]
            return _matched(*((parts, values) if items is wanted else (values, parts)), True)
    bare = [[value for _, value in items] for items in (wanted, answers)]
    names = [{name for name, _ in items} - {""} for items in (wanted, answers)]
    indices = all(re.fullmatch(r"x_\d", name) for each in names for name in each)
    if all(len(each) > 1 for each in names) and names[0] == names[1] and not indices:
        pairs = ((value, dict(answers)[name]) for name, value in wanted)
        return Ruling(all(rule(*pair).equal for pair in pairs), "list")
    if len({name[:1] for name in names[0] | names[1]}) > 1:
        # Names on one side alone: the values are in their order.
        return _matched(*bare, ordered=True) if not all(names) else Ruling(False, "list")
    whole = [[f"{n}={v}" if n else v for n, v in items] for items in (wanted, answers)]
    ruling = _matched(*bare, ordered=False)
    return ruling if ruling.equal or not any(names) else _matched(*whole, ordered=False)


def _matched(wanted: Sequence[str], items: Sequence[str], ordered: bool) -> Ruling:
    """Whether every part has its equal, in order or in any order."""
    if len(wanted) != len(items) or len(wanted) > LONGEST_LIST:
        return Ruling(False, "list")
    left = list(items)
    for one in wanted:
        places = range(1 if ordered else len(left))
        match = next((n for n in places if rule(one, left[n]).equal), None)
        if match is None:
            return Ruling(False, "list")
        del left[match]
    return Ruling(True, "list")


def vector(text: str) -> Vector | None:
    """The tuple, vector or matrix that a text is; None where it is none."""
    rows = written.matrix(text)
    if rows is not None:
        kind = "column" if all(len(row) == 1 for row in rows) else f"matrix of {len(rows)} rows"
        return kind, [cell for row in rows for cell in row]
    kind, inner = written.brackets(text)
    if kind == "[]" and all(written.brackets(row)[0] == "[]" for row in written.listed(inner)):
        rows = [written.listed(written.brackets(row)[1]) for row in written.listed(inner)]
        return f"matrix of {len(rows)} rows", [cell for row in rows for cell in row]
    parts = written.listed(inner)
    return (kind, parts) if kind and len(parts) > 1 else None


def _chains(known: list[str], sides: list[str]) -> Ruling:
    """Equations: an answer counts by its last side, where every link of it holds."""
    if not _holds(sides):
        return Ruling(False, "chain")
    if len(known) == 1:
        turned = len(sides) == 2 and written.is_name(sides[1]) and not written.is_name(sides[0])
        ruling = rule(known[0], sides[0] if turned else sides[-1])
        return replace(ruling, rule="chain")
    if len(sides) == 1:
        return rule(known[-1], sides[0]) if written.is_name(known[0]) else Ruling(False, "equation")
    if written.is_name(known[0]) and written.fold(known[0]) == written.fold(sides[0]):
        ruling = rule(known[-1], sides[-1])
        if ruling.equal:
            return ruling
    return Ruling(proportional(known, sides), "equation")


def _holds(sides: list[str]) -> bool:
    """Whether a chain is true as far as it can be told: its sides that are numbers are equal."""
    numbers = [s for s in sides if not written.is_name(s) and number_of(s) is not None]
    return all(rule(numbers[-1], other).equal for other in numbers[:-1])


_ORDER = re.compile(
    r"\border\b(?!ed)|\barrange|in that order|\brespectively|least to greatest|greatest to least"
    r"|smallest to largest|largest to smallest|ascending|descending"
    r"|从小到大|从大到小|顺序|依次|分别",
    re.IGNORECASE,
)
_FORMS = {
    "primes": r"prime factori[sz]ation|product of primes|分解质因数|质因数",
    "scientific": r"scientific notation|standard form|科学[记计]数法",
    "factors": r"\bfactor(?:i[sz]e|ize|ise)?\b(?!s|ial)|因式分解|分解因式|分解",
    "lowest": r"simplest (?:form|terms)|lowest terms|reduced (?:fraction|form)|最简|约分",
}
"""A value may be right and its form not: `a(a^2-9)` is not factored, 35e3 no scientific notation.
Where the question asks for none of these, any form is right."""
_FRACTION = re.compile(r"-?(?:\\[dt]?frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+))")
_MANTISSA = re.compile(r"-?[1-9](?:\.\d+)?\s*\\(?:times|cdot)\s*10\s*\^.*")
_FACTOR_SIGN = re.compile(r"\\(?:cdot|times)(?![a-zA-Z])|\*")


def in_form(form: str, gold: str, answer: str) -> bool:
    """Whether an answer that is equal to the gold answer has the form that is asked for, as far as
    the gold answer has it."""
    last = written.links(answer)[-1]
    if form == "scientific":
        return bool(_MANTISSA.fullmatch(last)) or not _MANTISSA.fullmatch(gold)
    if form == "primes":
        return _primes(last) or not _primes(gold)
    if form == "lowest":
        parts = _FRACTION.fullmatch(last)
        return not parts or math.gcd(*(int(n) for n in parts.groups() if n)) == 1
    if form == "factors":
        return _factors(last) >= _factors(gold)
    return True


def _primes(text: str) -> bool:
    bases = [re.split(r"\^", part)[0].strip(" {}()") for part in written.split(text, _FACTOR_SIGN)]
    return all(base.isdigit() and len(base) < 20 and sympy.isprime(int(base)) for base in bases)


def _factors(text: str) -> int:
    """How many factors with symbols a product is written with, powers counted as often."""
    value = expression(text)
    if value is None:
        return 0
    count = 0
    for factor in sympy.Mul.make_args(value):
        base, power = factor.as_base_exp()
        if base.free_symbols:
            count += int(power) if power.is_Integer and 0 < power < 100 else 1
    return count


APPROXIMATE, WHOLE = 1.05e-6, 1e-9
"""Relative tolerances: of decimals; of decimals where the gold is whole. 0.333333 is 1e-6 from a
third."""


def number_of(text: str) -> Any:
    """The number that a text is, its unit and percent apart; None where it is none."""
    value = written.without_percent(units.measured(text)[0])[0]
    return value_of(expression(written.as_latex(value)))


def value_of(region: Any) -> Any:
    """The number to 50 digits that an expression is; None where it is none."""
    if region is None or region.free_symbols:
        return None
    value = region.evalf(50)
    return value if value.is_number and value.is_finite else None


def single(gold: str, answer: str) -> Ruling:
    """Two single values: words around a number, units and percent are looked at, then compared."""
    if written.alternatives(answer) and not written.alternatives(gold):
        return Ruling(False, "list")
    (wanted, unit), (figure, other) = units.measured(gold), units.measured(answer)
    if unit and other and not unit.same_kind(other):
        return Ruling(False, "unit")
    bases = base_number(wanted), base_number(figure)
    if bases != (None, None):
        one, two = (base or (text, "") for base, text in zip(bases, (wanted, figure), strict=True))
        return Ruling(one[0] == two[0] and (one[1] == two[1] or "" in (one[1], two[1])), "base")
    if unit and other and unit.dimension == other.dimension and unit.factor != other.factor:
        return _in_one_unit(wanted, unit, figure, other)
    angle = not (unit and other) and (unit or other)
    if angle and angle.dimension == units.ANGLE and r"\pi" in (figure if unit else wanted):
        return _values(gold, answer)  # degrees and radians
    return _percentages(wanted, figure)


def base_number(text: str) -> tuple[str, str] | None:
    r"""Digits and base of `52_8`, `(221)_{\text{three}}`, `1101_{(2)}`."""
    match = re.fullmatch(r"\(?([0-9A-F]+)\)?_\{?\(?(\d+|\\text\{\w+\})\)?\}?(?:\))?", text.strip())
    if match is None:
        return None
    return match[1], units.numeral(match[2].lower())


def _in_one_unit(wanted: str, unit: units.Unit, figure: str, other: units.Unit) -> Ruling:
    one, two = (expression(written.as_latex(text)) for text in (wanted, figure))
    if one is None or two is None or one.free_symbols | two.free_symbols:
        return Ruling(False, "unit", answer_read=two is not None)
    gap, most = constant_gap(one * Rational(unit.factor), two * Rational(other.factor))
    return Ruling(bool(gap <= (WHOLE * most if "." in wanted + figure else 0)), "unit")


def _percentages(gold: str, answer: str) -> Ruling:
    """Two values of which each may be in percent."""
    (wanted, gold_percent), (text, percent) = map(written.without_percent, (gold, answer))
    ruling = _values(wanted, text)
    if percent == gold_percent:
        return replace(ruling, rule="percent") if percent else ruling
    value = number_of(wanted)
    fraction = percent and value is not None and value.is_real and 0 < abs(value) < 1
    if ruling.equal and not fraction:
        return replace(ruling, rule="percent")
    plain = number(text)
    if gold_percent and plain is not None and plain <= 1:
        return Ruling(False, "percent")
    hundredth = rf"\frac{{{text if percent else wanted}}}{{100}}"
    pair = (wanted, hundredth) if percent else (hundredth, text)
    return replace(_values(*pair), rule="percent")


def _values(gold: str, answer: str) -> Ruling:
    """Two expressions without units."""
    gold, answer = written.as_latex(gold), written.as_latex(answer)
    one, other = expression(gold), expression(answer)
    if one is None or other is None:
        same = written.words(gold) == written.words(answer) and len(written.words(gold)) > 1
        signs = [re.sub(r"[\w\s,.{}]|\\text", "", text) for text in (gold, answer)]
        return Ruling(same and signs[0] == signs[1], "words", answer_read=other is not None)
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


# Loads in the worker, once, what the first comparison of each kind would load in every call.
judge(r"x = \frac{1}{2} = \sqrt{0.25}", r"\{0.5, \pi, 50\%\}")
judge(r"\frac{1}{2} \text{ cm}", r"\frac{2}{4} = 0.5")
