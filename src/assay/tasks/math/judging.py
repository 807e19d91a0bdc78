r"""Whether an answer is the gold answer: both are read as one kind of value; workers run this.

  sentence   what it says: the value behind "is" or the only one, a value for each name of the gold
             answer, yes or no to the question; bounds and denials that the question does not name
             make it none
  text       words, yes and no, letters of choices, times of the day: equal as such
  hedge      an answer that denies, bounds or blurs its number ("not 42", "about 42") is not it
  set        intervals, unions and inequalities: the same numbers
  statement  for all or some: of the same set, the same is said
  list       as many parts as the gold answer has, each equal to one of them, or to that of its name
  brackets   tuples, vectors and matrices: of one kind, with equal parts in order, worked out; lines
             with a parameter that go through the same points
  equation   names and their values; a chain whose sides that are numbers are equal, by its last;
             two equations whose differences are proportional
  unit       quantities of one dimension are equal in one unit; an omitted unit is the other's
  percent    42 % is 42 where the gold is in percent, or above 1, and 0.42
  number     exact values are equal; a decimal is within 1e-6 of the gold, relatively, and within
             one unit in the last place; within 1e-9 of a whole number
  expression equal for all values of its symbols

What is not understood is equal to the same text alone: no word and no sign is nothing. math-verify
reads integrals and limits, and gives a verdict of its own beside this one. Never called in the
lab's own process: what is compared may take for ever.
"""

import re
from collections.abc import Sequence
from typing import Any

import sympy

from assay.tasks.math import families, regions, sentences, special_forms, units, written
from assay.tasks.math.answers import delimited
from assay.tasks.math.asked import Asked, asked, in_form
from assay.tasks.math.expressions import expression, identical, proportional
from assay.tasks.math.quantities import (
    Ruling,
    Vector,
    compound,
    is_number,
    number_of,
    same_line,
    single,
    value_of,
    vector,
)
from assay.tasks.math.verify import both_orders

LONGEST_LIST = 40
POLAR = (written.meaning("yes"), written.meaning("no"))
VECTORS = {"()": ("()", "⟨⟩", "column"), "⟨⟩": ("⟨⟩", "()", "column")}
"""The brackets that an answer may have beside its own, by those of the gold answer."""


Item = tuple[str, str]
"""The name of a value, "" where it has none, and the value."""


def judge(gold: str, answer: str, question: str = "") -> dict[str, Any]:
    """{"equal", "rule", "gold_read", "answer_read", "math_verify", "swapped"}.

    The last two are math-verify's own verdict on the two texts, in its order and swapped; None
    where it comes to none. The question tells what the letters of a choice stand for, and whether
    it asks for an order or a form.
    """
    wanted, given = plain_pair(gold, answer)
    if not wanted:
        return verdict(Ruling(False, "text"), gold_read=False)
    # Where that takes for ever, nothing can be judged.
    value_of(expression(written.as_latex(wanted)))
    if not given:
        return verdict(Ruling(False, "text", read=False))
    if written.same_text(wanted, given):
        return verdict(Ruling(True, "text"))
    found = _as_asked(wanted, given, asked(question))
    if not found.equal:
        found = _sentence(wanted, given, question) or found
    return verdict(found, *own_verdicts(gold, answer))


def _sentence(gold: str, answer: str, question: str) -> Ruling | None:
    """The ruling on what a sentence says; a bound that the question names is none of the answer."""
    if written.affirmation(gold) is not None:
        affirms = sentences.affirms(answer, question)
        return None if affirms is None else Ruling(affirms == written.affirmation(gold), "text")
    percent = "%" in answer and gold.isdigit() and not re.search("%|percent|百分", question)
    if percent or sentences.compares_otherwise(answer, question):
        return None
    if sentences.only_name(gold, answer):
        return Ruling(True, "text")
    allowed = written.hedges(question) - written.DENIALS | {"≈"}
    if written.hedges(answer) - written.hedges(gold) - allowed and not regions.is_region(gold):
        return None
    if sentences.ends_with(gold, answer):
        return Ruling(True, "text")
    pairs = sentences.named_values(gold, answer)
    if pairs is not None:
        return Ruling(all(rule(*pair).equal for pair in pairs), "list")
    for said in (sentences.value_in(answer), written.without_lead_words(answer)):
        if said and said != answer and (found := _as_asked(gold, said, asked(question))).equal:
            return found
    return None


def _as_asked(gold: str, answer: str, of: Asked) -> Ruling:
    """The ruling by the value, the options of the question and the form that it asks for."""
    if of.solutions:
        gold, answer = written.member(gold), written.member(answer)
    letter = written.choice(gold) if not gold.islower() else None
    chosen = written.choice(answer)
    if letter is None and chosen in of.options and not written.chosen(gold):
        return rule(gold, of.options[chosen or ""])
    found = rule(gold, answer)
    if not found.equal and letter in of.options and not chosen and not written.chosen(answer):
        return rule(of.options[letter or ""], answer)
    if not found.equal:
        return found
    if not in_form(of.form, gold, answer):
        return Ruling(False, of.form)
    parts = written.listed(gold), written.listed(answer)
    if of.ordered and len(parts[0]) == len(parts[1]) > 1 and not _names_all(gold):
        return _matched(*parts, ordered=True)
    return found


def _names_all(text: str) -> bool:
    return all(name for name, _ in _items(text, False))


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


def rule(gold: str, answer: str) -> Ruling:
    """The ruling on two plain texts."""
    if written.same_text(gold, answer):
        return Ruling(True, "text")
    gold, answer = families.without_quantifier(gold), families.without_quantifier(answer)
    for read in (_statements, _domains, _special, _texts, _choices, _conditions, _sets):
        found = read(gold, answer)
        if found is not None:
            return found
    if written.is_words(written.links(answer)[-1]):
        return Ruling(False, "text", read=False)
    answer, blurred = _exact_side(written.signed_change(answer) if gold.startswith("-") else answer)
    if _hedged(gold, answer, blurred):
        return Ruling(False, "hedge")
    return _by_form(gold, answer)


def _statements(gold: str, answer: str) -> Ruling | None:
    """Statements for all numbers of a set, or of one that there is."""
    one, other = special_forms.statement(gold), special_forms.statement(answer)
    if one is None or other is None:
        return None
    same = (one[0] == other[0] and one[1] == other[1]) or rule(one[1], other[1]).equal
    return Ruling(one[0] == other[0] and same and rule(one[2], other[2]).equal, "statement")


def _domains(gold: str, answer: str) -> Ruling | None:
    """Functions of which one says where it is defined."""
    one, other = families.with_domain(gold), families.with_domain(answer)
    if one[1] and other[1]:
        known = regions.region(one[1]), regions.region(other[1])
        same = None not in known and regions.equal(*known)  # type: ignore[arg-type]
        same = same or one[1] == other[1]
    elif one[1] or other[1]:
        same = families.natural_domain(*(one if one[1] else other))
    else:
        return None
    return rule(one[0], other[0]) if same else Ruling(False, "set")


def _texts(gold: str, answer: str) -> Ruling | None:
    """Answers of words."""
    said = written.links(answer)[-1]
    meanings = written.meaning(gold), written.meaning(said)
    polar = written.polarity(said)
    if polar is not None and meanings[0] in POLAR:
        return Ruling(polar == meanings[0], "text")
    if None not in meanings:
        return Ruling(meanings[0] == meanings[1], "text")
    if not written.is_words(gold):
        return None
    if (meanings[0] is not None and regions.region(said) is not None) or _condition(gold):
        return None
    wanted = written.words(gold)
    same = (
        wanted == written.words(said) or written.words(written.without_lead_words(said)) == wanted
    )
    return Ruling(same or _same_names(gold, said), "text")


def _same_names(gold: str, answer: str) -> bool:
    """Whether both join the same names by "and", in any order."""
    gold, answer = written.unwrapped(gold), written.unwrapped(answer)
    one, other = (sorted(map(written.fold, written.listed(text))) for text in (gold, answer))
    return len(one) > 1 and one == other and "," not in gold.replace(", and", " and")


def _choices(gold: str, answer: str) -> Ruling | None:
    """Letters of choices, with what they stand for or without."""
    letter = written.choice(gold) if not gold.strip().islower() else None
    chosen, given = written.choice(answer), written.chosen(answer)
    wanted = written.chosen(gold)
    if letter and (chosen or given):
        return Ruling(letter == (chosen or given[0]), "choice")  # type: ignore[index]
    if wanted and chosen:
        return Ruling(wanted[0] == chosen, "choice")
    if wanted and given:
        return Ruling(wanted[0] == given[0] and rule(wanted[1], given[1]).equal, "choice")
    if wanted or given:
        return rule(wanted[1] if wanted else gold, given[1] if given else answer)
    several = written.letters(gold), written.letters(answer)
    return Ruling(several[0] == several[1], "choice") if None not in several else None


def _special(gold: str, answer: str) -> Ruling | None:
    """Times, dates, remainders, signs, ratios, bases and chains of order."""
    one, other = (units.clock(special_forms.spoken_time(text)) for text in (gold, answer))
    if one and other:
        return Ruling(units.same_time(one, other), "time")
    dates = special_forms.date(gold), special_forms.date(answer)
    if dates[0] and dates[1]:
        return Ruling(special_forms.same_date(*dates), "time")  # type: ignore[arg-type]
    divisions = special_forms.division(gold), special_forms.division(answer)
    if None not in divisions:
        return Ruling(divisions[0] == divisions[1], "text")
    sign = special_forms.sign(gold)
    if sign:
        given = special_forms.sign(answer) or special_forms.only_sign(answer)
        return Ruling(sign == given, "text") if given else None
    ratios = special_forms.ratio(gold), special_forms.ratio(answer)
    if ratios[0] and ratios[1]:
        return _matched(ratios[0], ratios[1], ordered=True, name="ratio")
    if ratios[0] and len(ratios[0]) == 2 and ("/" in answer or r"\frac" in answer):
        return rule(f"({ratios[0][0]})/({ratios[0][1]})", answer)
    orders = special_forms.order(gold), special_forms.order(answer)
    if orders[0] or orders[1]:
        parts = [
            order or written.listed(text)
            for order, text in zip(orders, (gold, answer), strict=True)
        ]
        return _matched(*parts, ordered=True)
    return None


def _conditions(gold: str, answer: str) -> Ruling | None:
    """Functions in cases, solutions with a whole parameter, and conditions on whole numbers."""
    pieces = families.cases(gold), families.cases(answer)
    if pieces[0] or pieces[1]:
        same = None not in pieces and families.same_cases(*pieces)  # type: ignore[arg-type]
        return Ruling(same, "cases")
    found = [families.family(text, _alternatives) for text in (gold, answer)]
    if found[0] or found[1]:
        both = [
            each or families.constant_list(text, _alternatives)
            for each, text in zip(found, (gold, answer), strict=True)
        ]
        if None not in both:
            return Ruling(families.same_family(*both), "set")  # type: ignore[arg-type]
    conditions = [_condition(text) for text in (gold, answer)]
    if any(conditions) and not all(conditions):
        conditions = [
            each or _condition(text, True)
            for each, text in zip(conditions, (gold, answer), strict=True)
        ]
    if None not in conditions:
        return Ruling(conditions[0] == conditions[1], "set")
    whole = regions.whole_numbers(gold), regions.whole_numbers(answer)
    if whole[0] or whole[1]:
        texts = [
            text if each is None else ",".join(map(str, each))
            for each, text in zip(whole, (gold, answer), strict=True)
        ]
        return _by_form(*texts)
    return None


def _condition(text: str, certain: bool = False) -> frozenset[int] | None:
    r"""The whole numbers that a condition allows; `certain` says that the text is one, so that
    `n = 1, n \ge 6` is read as one too."""
    found = families.whole_numbers(text, _alternatives)
    parts = written.listed(text)
    if found is None and (certain or len(parts) > 1) and len(parts) <= LONGEST_LIST:
        pieces = [families.whole_numbers(part, _alternatives) for part in parts]
        numbers = [_whole(part) for part in parts]
        each = [a if a is not None else b for a, b in zip(pieces, numbers, strict=True)]
        if (certain or any(piece is not None for piece in pieces)) and None not in each:
            return frozenset().union(*each)  # type: ignore[arg-type]
    return found


def _whole(text: str) -> frozenset[int] | None:
    r"""The whole numbers of `n=1` or `n \ge 6`."""
    value = written.links(text)[-1]
    if value.isdigit():
        return frozenset({int(value)})
    found = regions.region(text)
    if found is None:
        return None
    return frozenset(n for n in range(1, families.LARGEST + 1) if found.test(n))


def _alternatives(text: str) -> list[Item]:
    return _items(written.members(text), True)


def _sets(gold: str, answer: str) -> Ruling | None:
    """Intervals, unions and inequalities, where one of the two is clearly one of these."""
    clear = regions.is_region(gold), regions.is_region(answer)
    if not any(clear):
        return None
    one, other = (regions.region(_as_set(text)) for text in (gold, answer))
    if one is not None and other is not None:
        return Ruling(regions.equal(one, other), "set")
    left, right = regions.difference(gold), regions.difference(answer)
    if left and right:
        return Ruling(left[0] == right[0] and _positive_multiple(left[1], right[1]), "set")
    bounded = regions.bounded(answer) if one else regions.bounded(gold)
    if bounded and (one or other) and not (one or other).names:  # type: ignore[union-attr]
        return Ruling(regions.equal(bounded, one or other), "set")  # type: ignore[arg-type]
    if all(clear) or not written.relational(answer):
        return None
    return None if written.members(answer) != answer else Ruling(False, "relation")


def _as_set(text: str) -> str:
    if written.meaning(text) == written.meaning(r"\mathbb{R}"):
        return r"\mathbb{R}"
    return families.greater_than(text)


def _positive_multiple(one: Any, other: Any) -> bool:
    if not proportional(one, other):
        return False
    at = dict.fromkeys(one.free_symbols, sympy.Rational(3, 7))
    ratio = (other / one).subs(at).evalf()
    return bool(ratio.is_positive)


_APPROXIMATELY = re.compile(r"\\approx(?![a-zA-Z])")


def _exact_side(answer: str) -> tuple[str, bool]:
    r"""`\frac{22}{7}` of `\frac{22}{7} \approx 3.14`, where that is so; and whether the answer is
    an approximation alone, then without the sign of it."""
    sides = written.split(answer, _APPROXIMATELY)
    if len(sides) != 2:
        return answer, False
    left, right = sides
    exact, rounded = (number_of(written.links(side)[-1]) for side in sides)
    if not left or written.is_name(left):
        return right, True
    if exact is None or rounded is None:
        return answer, False
    place = written.last_place(units.measured(right)[0]) or 0
    return (left, False) if abs(exact - rounded) <= place else (answer, False)


def _hedged(gold: str, answer: str, blurred: bool) -> bool:
    wanted, given = written.hedges(gold), written.hedges(answer)
    if blurred and not (wanted & written.APPROXIMATE or "." in gold):
        return True
    return bool(given - wanted or wanted - given - written.APPROXIMATE)


def _by_form(gold: str, answer: str) -> Ruling:
    """The ruling by what the two are: lists, tuples, equations, or single values."""
    whole = compound(gold, answer)
    if whole is not None:
        return whole
    gold, answer = written.members(gold), written.members(answer)
    found: Ruling | None = None
    for apart in ((False, False), (True, False), (False, True)):
        wanted, given = _items(gold, apart[0]), _items(answer, apart[1])
        if len(wanted) > 1 or len(given) > 1:
            found = _lists(wanted, given, gold, answer)
            if found.equal or (gold + answer).count(r"\pm") < 2:
                return found
    if found is not None:
        return found
    sides, known = written.links(answer), written.links(gold)
    one, other = vector(known[-1]), vector(sides[-1])
    if one and other and (len(known) == len(sides) == 1 or not one.whole):
        return _vectors(one, other)
    if len(sides) > 1 or len(known) > 1:
        return _chains(known, sides)
    return single(gold, answer)


def _items(text: str, apart: bool) -> list[Item]:
    r"""The parts of a list or set, with two of each `\pm`; `apart` says that the signs of one part
    are independent."""
    sides = written.links(text)
    if len(sides) == 2 and written.is_name(sides[0]) and written.brackets(sides[1])[0] == "{}":
        text = sides[1]
    kind, inner = written.brackets(text)
    parts = written.listed(inner if kind == "{}" else text)
    found: list[Item] = []
    for part in parts:
        sides = written.links(part)
        names, values = (written.brackets(side) for side in (sides[0], sides[-1]))
        if len(sides) == 2 and names[0] == values[0] == "()":
            several = written.listed(names[1]), written.listed(values[1])
            if len(several[0]) == len(several[1]) > 1:
                named = list(zip(map(written.fold, several[0]), several[1], strict=True))
                found += named if len(parts) == 1 else [("", sides[-1])]
                continue
        if len(sides) > 2 and all(map(written.is_name, sides[:-1])) and len(parts) > 1:
            found.append(("", f"({','.join([sides[-1]] * (len(sides) - 1))})"))
            continue
        named = len(sides) > 1 and written.is_name(sides[0])
        name = written.fold(sides[0]) if named else ""
        value = sides[-1] if named and _holds(sides) else part
        found += [(name, one) for one in _signs(value, apart)]
    return found


def _signs(text: str, apart: bool) -> list[str]:
    if r"\pm" not in text and r"\mp" not in text:
        return [text]
    if not apart:
        pairs = ("+-", "-+")
        return [text.replace(r"\pm", one).replace(r"\mp", other) for one, other in pairs]
    if text.count(r"\pm") > 4:
        return [text]
    found = [text]
    while any(r"\pm" in each for each in found):
        found = [each.replace(r"\pm", sign, 1) for each in found for sign in "+-"]
    return found


def _lists(wanted: list[Item], given: list[Item], gold: str, answer: str) -> Ruling:
    """Lists, of which one may be a tuple, or name its values."""
    line = vector(written.links(gold)[-1]) if len(wanted) == 1 else None
    if line and not line.whole:
        return Ruling(same_line(line, Vector("", [value for _, value in given])), "brackets")
    for items, text, other, whole in ((wanted, gold, given, answer), (given, answer, wanted, gold)):
        kind, inner = written.brackets(text)
        parts = written.listed(inner)
        if len(items) == 1 and kind in ("()", "⟨⟩", "[]") and len(parts) > 1:
            if written.brackets(whole)[0] == "{}":
                return Ruling(False, "brackets")
            if len(other) == len(parts):
                values = [
                    value for _, value in sorted(other, key=lambda item: item[0].lstrip("\\"))
                ]
                return _matched(*((parts, values) if items is wanted else (values, parts)), True)
    if len(wanted) == 1 and len(given) > 1:
        # Boxes that all say the same are one answer.
        same = len(given) <= 3 and all(_same_item(wanted[0], item) for item in given)
        return Ruling(same, "list")
    names = [{name for name, _ in items} - {""} for items in (wanted, given)]
    indices = all(re.fullmatch(r"x_\d", name) for each in names for name in each)
    if all(len(each) > 1 for each in names) and names[0] == names[1] and not indices:
        return _matched_by_name(dict(wanted), dict(given))
    if (
        len(names[0] | names[1]) > 1
        and not indices
        and len({n[:1] for n in names[0] | names[1]}) > 1
    ):
        # Names on one side alone: the values are in their order.
        bare = [[value for _, value in items] for items in (wanted, given)]
        return _matched(*bare, ordered=True) if not all(names) else Ruling(False, "list")
    whole = [[f"{n}={v}" if n else v for n, v in items] for items in (wanted, given)]
    found = _matched([v for _, v in wanted], [v for _, v in given], ordered=False)
    return found if found.equal or not any(names) else _matched(*whole, ordered=False)


def _same_item(wanted: Item, given: Item) -> bool:
    return rule(wanted[1], given[1]).equal and given[0] in ("", wanted[0] or given[0])


def _matched_by_name(wanted: dict[str, str], given: dict[str, str]) -> Ruling:
    return Ruling(all(rule(value, given[name]).equal for name, value in wanted.items()), "list")


def _matched(
    wanted: Sequence[str], given: Sequence[str], ordered: bool, name: str = "list"
) -> Ruling:
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


def _vectors(gold: Vector, answer: Vector) -> Ruling:
    wanted, given = gold.parts, answer.parts
    if gold.kind == "⟨⟩" and len(wanted) == 3 and len(given) == 2 and not answer.whole:
        given = [*given, "0"]
    if answer.kind not in VECTORS.get(gold.kind, (gold.kind,)):
        return Ruling(False, "brackets")
    found = _matched(wanted, given, ordered=gold.kind != "{}", name="brackets")
    if not found.equal and not gold.whole:
        return Ruling(same_line(gold, answer), "brackets")
    return found


def _chains(known: list[str], sides: list[str]) -> Ruling:
    """Equations: an answer counts by its last side, where every link of it holds."""
    if not _holds(sides):
        return Ruling(False, "chain")
    heads = families.head(known[0]), families.head(sides[0])
    if len(sides) == 2 and heads[1] and len(known) <= 2 and (heads[0] or len(known) == 1):
        found = _functions(known, sides, heads[0], heads[1])
        if found is not None:
            return found
    if len(known) == 1:
        turned = len(sides) == 2 and written.is_name(sides[1]) and not written.is_name(sides[0])
        found = rule(known[0], sides[0] if turned else sides[-1])
        return Ruling(found.equal, "chain", found.read)
    if len(sides) == 1:
        if written.is_name(known[0]) or heads[0]:
            return rule(known[-1], sides[0])
        return Ruling(False, "equation")
    if written.is_name(known[0]) and written.fold(known[0]) == written.fold(sides[0]):
        found = rule(known[-1], sides[-1])
        if found.equal:
            return found
    differences = [_difference(each) for each in (known, sides)]
    return Ruling(None not in differences and proportional(*differences), "equation")


def _functions(
    known: list[str], sides: list[str], head: families.Head | None, other: families.Head
) -> Ruling | None:
    """Two functions by what they are equal to, whatever their argument is called."""
    one, two = expression(known[-1]), expression(sides[-1])
    if one is None or two is None:
        return None
    if head is None:
        if len(one.free_symbols) != 1 or sympy.Symbol(other[1]) not in two.free_symbols:
            return None
        head = (other[0], str(next(iter(one.free_symbols))))
    if head[0] != other[0] and "y" not in (head[0], other[0]):
        return Ruling(False, "equation")
    renamed = two.subs(sympy.Symbol(other[1]), sympy.Symbol(head[1]))
    equal = identical(one, renamed)
    return Ruling(equal, "equation") if equal or len(known) == 1 else None


def _difference(sides: list[str]) -> Any:
    """Left minus right of an equation; None where it is none, or one of names."""
    if len(sides) != 2:
        return None
    left, right = map(expression, sides)
    return None if left is None or right is None else left - right


def _holds(sides: list[str]) -> bool:
    """Whether a chain is true as far as it can be told: its sides that are numbers are equal."""
    numbers = [side for side in sides if side and not written.is_name(side) and is_number(side)]
    return all(rule(numbers[-1], other).equal for other in numbers[:-1])


# Loads in the worker, once, what the first comparison of each kind would load in every call.
judge(r"x = \frac{1}{2} = \sqrt{0.25}", r"\{0.5, \pi, 50\%\}")
judge(r"\frac{1}{2} \text{ cm}", r"\frac{2}{4} = 0.5")
