r"""Answers that are neither numbers nor sets: remainders, signs, orders, statements, functions.

Each reader gives a value that is equal for equal answers, or None where the text is none of its
kind.
"""

import re
from itertools import pairwise
from typing import Any

from sympy import Rational

from assay.labs.math import units, written
from assay.labs.math.expressions import expression

_DIVISIONS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(\d+) ?(?:r|rem\.?|remainder|with (?:a )?remainder(?: of)?|余数?|\\ldots"
        r"|,? ?and (?:a )?remainder(?: of)?) ?(?:是|为)?(\d+)",
        r"(?:.{0,80}?\b)?quotient(?: is)?[ :=]*(\d+)[ ,;]*(?:and )?(?:the )?(?:with )?(?:a )?"
        r"remainder(?: is)?(?: of)?[ :=]*(\d+)",
        r".{0,80}?商 ?(?:是|为)?[ =]*(\d+)[ ,;]*余数? ?(?:是|为)?[ =]*(\d+)",
    )
)
_SIGNS = {"大于": ">", "小于": "<", "等于": "=", "greater than": ">", "less than": "<"} | {
    sign: {r"\lt": "<", r"\gt": ">"}.get(sign, sign)
    for sign in ("<", ">", "=", "+", "-", r"\lt", r"\gt", r"\le", r"\ge", r"\div", r"\times")
}
_OPERATION = re.compile(r"\\(?:div|times|lt|gt|le|ge)(?![a-zA-Z])|[-+<>=]")
_ORDER = re.compile(r"<|\\lt(?![a-zA-Z])|>|\\gt(?![a-zA-Z])")
_STATEMENT = re.compile(
    r"(?:(?P<all>\\forall|∀|(?:对于?)?(?:任意|所有|一切)的?|for (?:all|every|any))"
    r"|\\exists|∃|存在|there exists?)\s*(?:一个)?(?P<real>(?:实数|real(?: numbers?)?)\s*)?"
    r"(?P<name>[a-zA-Z](?:_\{?0\}?)?)\s*(?P<where>(?:\\in|[<>]|\\[gl]e|\\neq?)"
    r"(?:[(\[][^()\[\]]*[)\]]|[^:;,()\[\]])*?)?\s*"
    r"(?:(?:[,:;]|都有|使得?|恒有|均有|such that|with|\||s\.t\.)\s*)+(?P<claim>.+)"
)


def division(text: str) -> tuple[int, int] | None:
    """Quotient and remainder of "14 R 3", "quotient 14, remainder 3", 商是14，余数是3."""
    plain = " ".join(written.unwrapped(text).lower().split()).strip(" .")
    matches = (pattern.fullmatch(plain) for pattern in _DIVISIONS)
    return next(((int(match[1]), int(match[2])) for match in matches if match), None)


def sign(text: str) -> str | None:
    """The sign of a comparison or operation that a text is: ">" of 大于."""
    return _SIGNS.get(" ".join(written.unwrapped(text).lower().split()).strip(" ."))


def only_sign(text: str) -> str | None:
    r"""The only sign in `\frac{3}{5} > \frac{4}{7}`, between two things; an `=` beside another
    sign says no more than the result."""
    signs = [m[0] for m in _OPERATION.finditer(text) if text[: m.start()].strip()]
    others = [each for each in signs if each != "="] or signs
    if others and others[0] in (r"\div", r"\times", "+", "-") and "=" not in signs:
        return None
    return _SIGNS.get(others[0]) if len(others) == 1 else None


def order(text: str) -> list[str] | None:
    """The parts, the smallest first, of a chain such as `0.7 < \frac{3}{4} < 0.8`."""
    parts = written.split(text, _ORDER)
    signs = {"<" if sign in ("<", r"\lt") else ">" for sign in written.separators(text, _ORDER)}
    numbers = [expression(part) for part in parts] if len(parts) > 2 and len(signs) == 1 else [None]
    if any(number is None or number.free_symbols for number in numbers):
        return None
    return parts if signs == {"<"} else parts[::-1]


def statement(text: str) -> tuple[str, str, str] | None:
    r"""Quantifier, domain and what is said of `\forall x > 0, \ln x \le x`; the variable is x."""
    match = _STATEMENT.fullmatch(written.unwrapped(text)) if len(text) < 400 else None
    if match is None:
        return None
    where = match["where"] or (r"\in \mathbb{R}" if match["real"] else "")
    name = re.compile(rf"(?<![a-zA-Z\\]){re.escape(match['name'])}(?![a-zA-Z])")
    domain, claim = name.sub("x", f"x {where}".strip()), name.sub("x", match["claim"])
    return "all" if match["all"] else "some", domain, claim


_HEAD = re.compile(r"([A-Za-z](?:_\{?\w+\}?|\^\{-1\}|')?)\s*\(\s*([a-z])\s*\)")
_EVERYWHERE = re.compile(
    r"[,;]?\s*(?:\\text\s*\{\s*)?\(?\s*(?:(?:for (?:all|any|every|each)|where) "
    r"(?:real (?:numbers? )?)?\}?\s*[a-z]\s*(?:\\in\s*\\mathbb\s*\{?R\}?)?"
    r"|(?:(?<=[,;( ])|(?<=[,;(]))(?:\\forall\s*)?[a-z]\s*\\in\s*\\mathbb\s*\{?[RQZN]\s*\}?"
    r"(?:\s*[_^]\{?[+*\d]+\}?)*)\)?\s*\}?\s*$|^\\forall\s*[a-z]\s*\\in\s*\\mathbb\s*\{?\s*R\}?\s*,\s*"
)
_EXCEPT = re.compile(
    r"(?P<function>.*?[^,;(\s])\s*(?:[,;]\s*|(?=\())\(?(?P<name>[a-z])\s*\\neq\s*(?P<value>-?\d+)\)?"
)
"""A function that leaves out where it has no value."""
_CONSTANT = re.compile(
    r"\s*[,;(]?\s*(?:\\text\s*\{\s*)?(?:(?:where|for|with) )?(?:(?:any|some|all|every) )?"
    r"(?:(?:real|arbitrary) )?(?:constants?|numbers?)?\s*\}?\s*([a-zA-Z])\s*"
    r"(?:\\in\s*\\mathbb\s*\{?\s*R\s*\}?|(?:\\text\s*\{\s*)?is (?:a |any )?(?:real )?"
    r"(?:constant|number|real)\s*\}?)?\)?$"
)


def head(text: str) -> tuple[str, str] | None:
    """("f", "x") of `f(x)`; y is a function of x."""
    match = _HEAD.fullmatch(text.strip())
    return (match[1], match[2]) if match else (("y", "x") if text.strip() == "y" else None)


def without_quantifier(text: str) -> str:
    r"""`f(x)=x` of `f(x)=x \text{ for all } x \in \mathbb{R}`; a constant that is any number is
    called `c`."""
    if len(text) > 400 or not re.search(r"=|\\neq", text):
        return text
    match = _CONSTANT.search(text)
    if match and match.start() and re.search(r"[,(]|text|\b(?:for|any|some|where)\b", match[0]):
        name, body = match[1], text[: match.start()].strip()
        if re.search(rf"(?<![a-zA-Z\\]){name}(?![a-zA-Z])|{name}[a-z]\b", body.partition("=")[2]):
            return re.sub(rf"(?<![a-zA-Z\\{{]){name}(?![a-zA-Z(]{{2}})", "c", body)
    gap = _EXCEPT.fullmatch(text)
    function = expression(written.links(gap["function"])[-1]) if gap else None
    if gap and function and not function.subs(gap["name"], expression(gap["value"])).is_finite:
        return gap["function"]
    return " ".join(_EVERYWHERE.sub("", part).strip() for part in re.split(r"(?<= )(?=or )", text))


_PART = re.compile(
    r"(?:(?<=[a-z]\.)|(?<=[A-Za-z}\u4e00-\u9fff])(?<!frac))[\s,]*(?:(?:and|零|又)(?![a-z]))?\s*(?=\d)"
)


def total(text: str, alone: bool = False) -> tuple[Any, str] | None:
    """The sum and dimension of "2 feet 3 inches", "1 hour and 30 minutes", 3米5厘米: quantities of
    one dimension, each of a smaller unit than the one before; `alone` takes a single one also."""
    pieces = _PART.split(re.sub(r"\\text\s*\{\s*and\s*\}", " and ", text[: units.LONGEST]))
    if len(pieces) < 2 and not alone:
        return None
    parts = [units.measured(piece.strip(), single=True) for piece in pieces]
    known = [unit for _, unit in parts if unit and unit.dimension]
    values = [expression(value) for value, _ in parts]
    if len(known) < len(parts) or not all(value and value.is_Rational for value in values):
        return None
    smaller = all(one.factor > other.factor for one, other in pairwise(known))
    if not smaller or len({unit.dimension for unit in known}) > 1:
        return None
    pairs = zip(values, known, strict=True)
    return sum(value * Rational(unit.factor) for value, unit in pairs), known[0].dimension
