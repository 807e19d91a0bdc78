r"""Answers with a parameter, functions in cases, and conditions on whole numbers.

`x = \frac{\pi}{6} + 2k\pi, k \in \mathbb{Z}`, `n = 4k` and `n \equiv 0 \pmod 4` are sets that are
compared by their members: those for small parameters of either are all among those of the other.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from assay.tasks.math import regions, written
from assay.tasks.math.expressions import constant_gap, expression
from assay.tasks.math.units import with_digits

NEAR, FAR = 6, 40
LONGEST_CONDITION = 160
LARGEST = 48
"""Conditions on whole numbers are compared from 1 to here."""
_WHERE = r"[,;(\s]{0,9}(?:\\text\s*\{\s*(?:where|for|with|,)?\s*\}|where|for|with)?\s*"
_PARAMETER = re.compile(
    _WHERE + r"(?P<name>[a-zA-Z])\s*\\in\s*(?:\\mathbb\s*\{?\s*"
    r"(?P<set>[ZN])\s*\}?|\\text\{(?P<b>[ZN])\}|(?P<c>[ZN]))"
    r"(?P<more>(?:[_^]\s*(?:\{[^{}]*\}|[+*\d]))*)\s*\)?"
)
_INTEGER = re.compile(
    _WHERE + r"(?:(?P<name>[a-zA-Z])\s*(?:\\text\{\s*)?(?:is |为|是)?\s*"
    r"(?:an |any )?(?:arbitrary )?(?P<natural>positive |正)?(?:integer|整数)s?\s*\}?\s*\)?"
    r"|(?:\\text\{\s*)?(?:where |for )?(?:any|all|every"
    r"|each|some) integers?\s*\}?\s*(?P<name2>[a-zA-Z])\s*\}?)"
)
_VALUES = re.compile(
    _WHERE + r"(?P<name>[a-zA-Z])\s*(?:=|\\in\s*\\\{)\s*(?P<values>\d+"
    r"(?:\s*,\s*\d+)+)(?P<on>\s*,?\s*\\ldots)?\s*(?:\\\})?\s*\)?"
)
_FROM = re.compile(_WHERE + r"(?P<name>[a-zA-Z])\s*(?:\\geq?|>=|\\geqslant)\s*(?P<low>\d+)\s*\)?")

Point = tuple[complex, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """Values that depend on a whole number."""

    values: Sequence[Sequence[Any]]
    """Of each alternative, the expressions of its coordinates."""
    name: sympy.Symbol
    near: Sequence[int]
    far: Sequence[int]

    def points(self, places: Sequence[int]) -> list[Point]:
        """The values at these whole numbers."""
        found = []
        for place in places:
            for value in self.values:
                at = [each.subs(self.name, place).evalf(20) for each in value]
                found.append(tuple(complex(each) for each in at))
        return found


def same_family(one: Family, other: Family) -> bool:
    """Whether the members of either for small parameters are all among those of the other."""
    return _within(one, other) and _within(other, one)


def _within(one: Family, other: Family) -> bool:
    many = other.points(other.far)
    return all(any(_close(point, each) for each in many) for point in one.points(one.near))


def _close(one: Point, other: Point) -> bool:
    return len(one) == len(other) and all(
        abs(a - b) < 1e-9 * max(1, abs(a)) for a, b in zip(one, other, strict=True)
    )


def family(text: str, items: Callable[[str], list[tuple[str, str]]]) -> Family | None:
    """The family that a text is, with the condition on its parameter at its end; `items` reads the
    alternatives before it. A list without parameter is a family too, of one member each."""
    for pattern in (_PARAMETER, _INTEGER, _VALUES, _FROM):
        ends = pattern.finditer(text, max(0, len(text) - LONGEST_CONDITION))
        match = next((m for m in ends if m.end() == len(text)), None)
        if match and match.start():
            near, far = _domain(match.groupdict())
            found = match.groupdict()
            name = found["name"] or found["name2"]
            return _family(items(text[: match.start()].strip(" ,;")), str(name), near, far)
    return None


def constant_list(text: str, items: Callable[[str], list[tuple[str, str]]]) -> Family | None:
    """A list of values as a family of one member each."""
    return _family(items(text), "k", (0,), (0,))


def _domain(found: dict[str, str | None]) -> tuple[Sequence[int], Sequence[int]]:
    if found.get("values"):
        values = [int(value) for value in str(found["values"]).split(",")]
        if found.get("on"):
            return range(values[0], values[0] + 2 * NEAR), range(values[0], values[0] + 2 * FAR)
        return values, values
    if found.get("low") is not None:
        low = int(found["low"] or 0)
        return range(low, low + 2 * NEAR), range(low, low + 2 * FAR)
    natural = (
        found.get("natural")
        or "N" in (found.get("set"), found.get("b"), found.get("c"))
        or found.get("more")
    )
    if natural:
        low = 0 if re.search(r"\\ge|0", found.get("more") or "") else 1
        return range(low, low + 2 * NEAR), range(low, low + 2 * FAR)
    return range(-NEAR, NEAR + 1), range(-FAR, FAR + 1)


def _family(
    items: Sequence[tuple[str, str]], name: str, near: Sequence[int], far: Sequence[int]
) -> Family | None:
    names = [item[0] for item in items]
    if len(set(names)) == len(names) > 1 and "" not in names:
        texts = [[value for _, value in sorted(items)]]
    else:
        texts = [_coordinates(value) for _, value in items]
    values = [[expression(each) for each in text] for text in texts]
    symbol = sympy.Symbol(name)
    if any(each is None or (len(near) < 2 and each.free_symbols) for v in values for each in v):
        return None
    if len(near) > 1 and not any(symbol in each.free_symbols for value in values for each in value):
        return None
    fixed = [[regions.at_places(each, symbol) for each in value] for value in values]
    return Family(fixed, symbol, near, far)


def _coordinates(text: str) -> list[str]:
    kind, inner = written.brackets(text)
    parts = written.listed(inner) if kind else [text]
    return [*parts, str(len(kind) and "()[]".find(kind))] if len(parts) > 1 else [text]


_CASES = re.compile(
    r"(?:(?P<head>[^=]+)=\s*)?(?:\\\{)?\s*\\begin\s*\{cases\}(?P<rows>.*)\\end\s*\{cases\}",
    re.DOTALL,
)
_FIRST = re.compile(
    r"([a-zA-Z])_\{?1\}?\s*=([^=,]+),\s*\1_\{?([a-z])\}?\s*=([^=,]+?)[,\s]*\(?(\3\s*(?:\\ge|≥|>)[^()=]+)\)?"
)
_CONDITION_WORDS = re.compile(
    r"\\text\s*\{\s*(?:if|when|for|当|其中|,)?\s*\}|\\?\bif\b|,?\s*时$|当"
)


def cases(text: str) -> list[tuple[Any, regions.Region | None]] | None:
    r"""The expressions of `\begin{cases} ... \end{cases}`, each with where it holds; the last may
    hold elsewhere (None)."""
    first = _FIRST.fullmatch(text.strip())
    if first:
        rows = rf"{first[2]}, & {first[3]}=1\\{first[4]}, & {first[5]}"
        text = rf"\begin{{cases}}{rows}\end{{cases}}"
    match = _CASES.fullmatch(text.strip())
    if match is None:
        return None
    found = []
    for row in filter(str.strip, re.split(r"\\\\", match["rows"])):
        value, _, condition = row.partition("&") if "&" in row else row.partition(",")
        condition = _CONDITION_WORDS.sub(" ", condition).strip(" ,;.()")
        known = expression(value.strip(" ,;"))
        other = re.search("otherwise|other|else|其他|其它", condition)
        where = None if other else regions.region(condition)
        if known is None or (where is None and not other):
            return None
        found.append((known, where))
    return found or None


def same_cases(one: list[Any], other: list[Any]) -> bool:
    """Whether two functions in cases have equal values at their bounds, between and beyond."""
    bounds = [bound for _, where in (*one, *other) if where for bound in where.bounds]
    names = {str(s) for value, _ in (*one, *other) for s in value.free_symbols}
    if len(names) > 1:
        return False
    whole = names <= set("nmk") and bool(names)
    places = [float(n) for n in range(1, 12)] if whole else regions.places(bounds)
    values = [[_value(each, place) for place in places] for each in (one, other)]
    return all(_equal(a, b) for a, b in zip(*values, strict=True))


def _value(pieces: list[Any], place: float) -> Any:
    for value, where in pieces:
        if where is None or where.test(place):
            return value.subs(
                dict.fromkeys(value.free_symbols, sympy.nsimplify(place, rational=True))
            )
    return None


def _equal(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return constant_gap(one, other)[0] <= 1e-9


_MODULUS = re.compile(
    r"(?:(?:p|n|m|x|k|a|N|all|primes|integers|numbers)\s*)?\\equiv\s*"
    r"(?P<rests>-?\d+(?:\s*,\s*-?\d+)*)\s*\(?\\(?:pmod|bmod|mod)\s*\{?(?P<m>\d+)\}?\)?"
)
_LEAD = (
    r"(?:(?:it is |is )?possible |if and only if |iff |exactly |when |for |all |any |every |each "
    r"|the |n ?(?:is |是 ?|为 ?)?|numbers |integers |positive |正 ?)*"
)
_END = r"(?: n| ?numbers| ?positive| ?integers|的?正?整数)*"
_WORDED = tuple(
    (re.compile(_LEAD + pattern + _END), holds)
    for pattern, holds in (
        (r"(?:not divisible by|not (?:a )?multiples? of) ?(\d+)", lambda n, m: n % m != 0),
        (r"(?:divisible by|(?:a )?multiples? of) ?(\d+)", lambda n, m: n % m == 0),
        (r"(\d+) ?(?:\\mid|\|) ?n", lambda n, m: n % m == 0),
        (r"(\d+) ?(?:\\nmid|∤) ?n", lambda n, m: n % m != 0),
        (r"(?:不是 ?(\d+) ?的倍数|不能被 ?(\d+) ?整除)", lambda n, m: n % m != 0),
        (r"(?:(\d+) ?的正?整?数?倍数?|能?被 ?(\d+) ?整除)", lambda n, m: n % m == 0),
        (r"(?:even|偶数)", lambda n, m: n % 2 == 0),
        (r"(?:odd|奇数)", lambda n, m: n % 2 == 1),
        (r"(?:powers of (?:2|two)|2\^\{?[km]\}?)", lambda n, m: n & (n - 1) == 0),
    )
)


def whole_numbers(
    text: str, items: Callable[[str], list[tuple[str, str]]]
) -> frozenset[int] | None:
    """The whole numbers from 1 to LARGEST that a condition allows; None where the text is none that
    nothing here reads."""
    said = " ".join(written.unwrapped(text).replace("$", "").split()).strip(" .")
    numbers = range(1, LARGEST + 1)
    excepted = re.fullmatch(
        r"(?:all )?positive integers?(?: n)? (?:except|other than|excluding) ((?:\d+[ ,and]*)+)",
        said,
    )
    if excepted:
        left = set(map(int, re.findall(r"\d+", excepted[1])))
        return frozenset(n for n in numbers if n not in left)
    if re.fullmatch(r"(?:all )?positive integers?(?: n)?|(?:全体|所有)?正整数", said):
        return frozenset(numbers)
    match = _MODULUS.fullmatch(said)
    if match:
        rests = {int(rest) % int(match["m"]) for rest in match["rests"].split(",")}
        return frozenset(n for n in numbers if n % int(match["m"]) in rests)
    for pattern, holds in _WORDED:
        worded = pattern.fullmatch(said)
        if worded:
            modulus = int(next(filter(None, worded.groups()), "1"))
            return frozenset(n for n in numbers if holds(n, modulus))
    found = family(text, items)
    if found is not None and all(len(value) == 1 for value in found.values):
        members = [point[0] for point in found.points(found.far)]
        whole = {round(m.real) for m in members if abs(m - round(m.real)) < 1e-9}
        return frozenset(n for n in numbers if n in whole)
    return None


def greater_than(text: str) -> str:
    """ "x > -4" of "all real numbers greater than -4"; the text where it says no such thing."""
    said = " ".join(written.unwrapped(text).split())
    excepted = re.fullmatch(
        r"(?:all )?(?:the )?(?:real numbers?|reals?(?: [a-z])?|\\mathbb\{R"
        r"\}) ?,? ?(?:except|other than|excluding)(?: for)? (.+)",
        said,
    )
    if excepted:
        bounds = written.listed(re.sub(r"^x ?= ?", "", excepted[1]))
        return ", ".join(rf"x \neq {bound.rpartition('=')[2]}" for bound in bounds)
    sign = re.fullmatch(
        r"(?:all |any )?(?:([a-z]) is )?(?:all |any )?(?:real )?"
        r"(positive|negative|non-?negative|non-?positive)(?: real)?(?: numbers?)?",
        said,
    )
    if sign:
        signs = {
            "positive": ">",
            "negative": "<",
            "non": r"\ge" if sign[2].endswith("negative") else r"\le",
        }
        return f"{sign[1] or 'x'} {signs.get(sign[2]) or signs['non']} 0"
    match = re.fullmatch(
        r"(?:all )?(?:the )?(?:real )?(?:numbers?|values?|x|reals)?"
        r"(?: of x)?(?: that are| which are| is| such that x is)? ?"
        r"(greater than or equal to|less than or equal to"
        r"|greater than|less than|at least|at most|more than) (.+)"
        r"|(?:x|所有|全体)?(?:的)?(不小于|不大于|大于或?等于|小于或?等于|大于|小于) ?(.+?)"
        r"(?:的(?:全体|所有)?(?:实数|数))?",
        said,
    )
    if match is None:
        return text
    word, bound = (match[1], match[2]) if match[1] else (match[3], match[4])
    signs = {
        "greater than or equal to": r"\ge", "at least": r"\ge", "不小于": r"\ge",
        "less than or equal to": r"\le", "at most": r"\le", "不大于": r"\le", "greater than": ">",
        "more than": ">", "大于": ">", "less than": "<", "小于": "<",
    }  # fmt: skip
    sign = signs.get(word) or (r"\ge" if word.startswith("大于") else r"\le")
    return f"x {sign} {with_digits(bound)}"


Head = tuple[str, str]
"""The name of a function and that of its argument."""
_HEAD = re.compile(r"([A-Za-z](?:_\{?\w+\}?|\^\{-1\}|')?)\s*\(\s*([a-z])\s*\)")
_FOR_ALL = re.compile(
    r"[,;]?\s*(?:\\text\s*\{\s*)?\(?(?:for (?:all|any"
    r"|every|each)|where) (?:real (?:numbers? )?)?\}?\s*"
    r"[a-z]\s*(?:\\in\s*\\mathbb\s*\{?R\}?)?\)?\s*\}?$|^"
    r"\\forall\s*[a-z]\s*\\in\s*\\mathbb\s*\{?\s*R\}?\s*,\s*"
)
_OF_ALL = re.compile(r"[,;]\s*(?:\\forall\s*)?[a-z]\s*\\in\s*\\mathbb\s*\{?[RQ]\s*\}?\)?$")
_OF_ANY = re.compile(r"(?<=C)[,;]\s*C\s*\\in\s*\\mathbb\s*\{?R\s*\}?$")
_CONSTANT = re.compile(
    r"\s*[,;(]?\s*(?:\\text\s*\{\s*)?(?:(?:where|for|with) )?(?:(?:any|some"
    r"|all|every) )?(?:(?:real|arbitrary) )?(?:constants?|numbers?)?\s*\}?\s*"
    r"([a-zA-Z])\s*(?:\\in\s*\\mathbb\s*\{?\s*R\s*\}?|(?:\\text\s*"
    r"\{\s*)?is (?:a |any )?(?:real )?(?:constant|number|real)\s*\}?)?\)?$"
)


_WHERE_DEFINED = re.compile(
    r"(?P<body>.*?[^,;(\s])\s*(?:[,;]\s*|\\text\s*\{[^{}]*\}\s*|(?<=[\s)}])(?=\()|\bfor\b|\bwhere\b)"
    r"\s*(?:\\forall\s*)?\(?\s*(?P<where>(?:[-\d.]+\s*(?:[<≤]|\\leq?)\s*)?(?P<name>[a-z])\s*"
    r"(?:\\(?:in|neq?|[gl](?:e|t|eq|eqslant))(?![a-zA-Z])|[<>≠≤≥])[^;=]*?)\s*(?<!\w\()\)?"
)
_SEQUENCE = re.compile(r"[A-Za-z]_\{?([a-z])\}?")


def with_domain(text: str) -> tuple[str, str, str]:
    r"""A function, where it is defined, and its argument: of `f(x)=\frac{1}{x} (x \neq 0)`."""
    match = _WHERE_DEFINED.fullmatch(text) if len(text) < 400 else None
    if match is None:
        return text, "", ""
    sides = written.links(match["body"])
    known, index = head(sides[0]), _SEQUENCE.fullmatch(sides[0].strip())
    name = known[1] if known else index[1] if index else ""
    if len(sides) == 1 and "\\neq" in match["where"]:
        name = match["name"]
    if name != match["name"] or not expression(sides[-1]):
        return text, "", ""
    where = match["where"]
    where += ")" * (where.count("(") > where.count(")"))
    return match["body"], where, name


def natural_domain(function: str, where: str, name: str) -> bool:
    """Whether a condition only leaves out what the function has no value at, or is that of all."""
    if re.fullmatch(
        rf"{name}\s*\\in\s*\\mathbb\s*\{{?[RQZN]\s*\}}?(?:\s*[_^]\{{?[+*\d]+\}}?)*", where
    ):
        return True
    found = regions.region(where)
    if found is None:
        return False
    if name in "nmk":
        return all(found.test(float(n)) for n in range(1, 8))
    value = expression(written.links(function)[-1])
    symbol = sympy.Symbol(name)
    outside = [place for place in regions.places(found.bounds) if not found.test(place)]
    values = [value.subs(symbol, sympy.nsimplify(place, rational=True)) for place in outside]
    return not any(each.is_real and each.is_finite for each in map(sympy.N, values))


def head(text: str) -> Head | None:
    """("f", "x") of `f(x)`; y is a function of x."""
    match = _HEAD.fullmatch(text.strip())
    return (match[1], match[2]) if match else (("y", "x") if text.strip() == "y" else None)


def without_quantifier(text: str) -> str:
    r"""`f(x)=x` of `f(x)=x \text{ for all } x \in \mathbb{R}`, and `f(x)=0` of `f \equiv 0`; a
    constant that is any number is called `c`."""
    text = _OF_ANY.sub("", text) if len(text) < 400 else text
    if len(text) > 400 or ("=" not in text and "\\equiv" not in text):
        return text
    text = re.sub(r"\b([fghP])\s*\\equiv\s*", r"\1(x)=", text)
    parts = [_FOR_ALL.sub("", part).strip() for part in re.split(r"(?<= )(?=or )", text)]
    text = " ".join(parts)
    match = _CONSTANT.search(text)
    if (
        match
        and match.start()
        and re.search(r"[,(]|text|\b(?:for|any|some|where)\b", match[0])
        and "Z" not in match[0]
    ):
        body = text[: match.start()].strip()
        if re.search(
            rf"(?<![a-zA-Z\\]){match[1]}(?![a-zA-Z])|{match[1]}[a-z]\b", body.partition("=")[2]
        ):
            return re.sub(rf"(?<![a-zA-Z\\{{]){match[1]}(?![a-zA-Z(]{{2}})", "c", body)
    return _OF_ALL.sub("", text)
