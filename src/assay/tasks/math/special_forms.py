r"""Answers that are neither numbers nor sets: dates, remainders, ratios, orders, signs, statements.

Each reader gives a value that is equal for equal answers, or None where the text is none of its
kind.
"""

import re

from assay.tasks.math import written
from assay.tasks.math.expressions import expression
from assay.tasks.math.units import with_digits

_MONTHS = "january february march april may june july august september october november december"
_MONTH = {name: n for n, name in enumerate(_MONTHS.split(), 1)}
_MONTH |= {name[:3]: n for name, n in _MONTH.items()} | {"sept": 9}
_NAMES = "|".join(sorted(_MONTH, key=len, reverse=True))
_WEEKDAY = r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day,?\s*)?"
_DATES = tuple(
    re.compile(_WEEKDAY + pattern)
    for pattern in (
        rf"(?P<m>{_NAMES})\.?\s*(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s*(?P<y>\d{{4}}))?",
        rf"(?:the\s+)?(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\s*"
        rf"(?:of\s+)?(?P<m>{_NAMES})\.?(?:,?\s*(?P<y>\d{{4}}))?",
        r"(?:(?P<y>\d{4})年)?(?P<m>\d{1,2})月(?P<d>\d{1,2})[日号]",
        r"(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})",
    )
)
_DIVISIONS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(\d+) ?(?:r|rem\.?|remainder|with (?:a )?remainder(?: of)?"
        r"|余数?|\\ldots|,? ?and (?:a )?remainder(?: of)?) ?(?:是|为)?(\d+)",
        r"(?:.{0,80}?\b)?quotient(?: is)?[ :=]*(\d+)[ ,;]*(?:and )?"
        r"(?:the )?(?:with )?(?:a )?remainder(?: is)?(?: of)?[ :=]*(\d+)",
        r".{0,80}?商 ?(?:是|为)?[ =]*(\d+)[ ,;]*余数? ?(?:是|为)?[ =]*(\d+)",
    )
)
_PAST = re.compile(r"(half|(?:a )?quarter|\d+(?: minutes)?) (past|after|to|before) (\d+)")
_RATIO = re.compile(r"[^:]+(?::[^:]+)+")
_SIGNS = {
    "大于": ">", "小于": "<", "等于": "=", "greater than": ">", "less than": "<", "equal to": "=",
    r"\lt": "<", r"\gt": ">", r"\div": r"\div", r"\times": r"\times", "+": "+", "-": "-", "<": "<",
    ">": ">", "=": "=", r"\le": r"\le", r"\ge": r"\ge",
}  # fmt: skip
_OPERATION = re.compile(r"\\(?:div|times|lt|gt|le|ge)(?![a-zA-Z])|[-+<>=]")
_ORDER = re.compile(r"<|\\lt(?![a-zA-Z])|>|\\gt(?![a-zA-Z])")


def _said(text: str) -> str:
    return " ".join(written.unwrapped(text).lower().split()).strip(" .")


def date(text: str) -> tuple[str, int, int] | None:
    """(year or "", month, day) of "January 6, 2022", "6 January" or 1月6日."""
    for pattern in _DATES:
        match = pattern.fullmatch(_said(text))
        if match:
            month = match["m"]
            return match["y"] or "", _MONTH.get(month) or int(month), int(match["d"])
    return None


def same_date(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    """Whether two dates are one, of which one may leave out its year."""
    return one[1:] == other[1:] and (one[0] == other[0] or "" in (one[0], other[0]))


def division(text: str) -> tuple[int, int] | None:
    """Quotient and remainder of "14 R 3", "quotient 14, remainder 3", 商是14，余数是3."""
    for pattern in _DIVISIONS:
        match = pattern.fullmatch(_said(text))
        if match:
            return int(match[1]), int(match[2])
    return None


def spoken_time(text: str) -> str:
    """ "3:30" of "half past three"; the text where it is no time that is spoken so."""
    said = _said(text).removesuffix(" o'clock").replace("1/2", "half").replace("1/4", "quarter")
    said = re.sub(r"[a-z]+$", lambda m: with_digits(m[0]), said)
    said = re.sub(r"^(?:a )?(?!half|quarter)[a-z-]+", lambda m: with_digits(m[0]), said)
    match = _PAST.fullmatch(said)
    if match is None:
        return text
    minutes = {"half": 30, "quarter": 15, "a quarter": 15}.get(match[1])
    minutes = int(re.sub(r"\D", "", match[1])) if minutes is None else minutes
    hour = int(match[3])
    if match[2] in ("to", "before"):
        hour, minutes = (hour - 2) % 12 + 1, 60 - minutes
    return f"{hour}:{minutes:02d}"


def sign(text: str) -> str | None:
    """The sign of a comparison or operation that a text is: ">" of 大于."""
    return _SIGNS.get(_said(text))


def only_sign(text: str) -> str | None:
    r"""The only sign in `\frac{3}{5} > \frac{4}{7}`, between two things; an `=` beside another
    sign says no more than the result."""
    found = [m[0] for m in _OPERATION.finditer(text) if text[: m.start()].strip()]
    others = [each for each in found if each != "="] or found
    if others and others[0] in (r"\div", r"\times", "+", "-") and "=" not in found:
        return None
    return _SIGNS.get(others[0]) if len(others) == 1 else None


def ratio(text: str) -> list[str] | None:
    """The parts of 4:3 or 1:2:3."""
    if not _RATIO.fullmatch(text) or "\\text" in text or text[:1] == "{":
        return None
    parts = [part.strip() for part in text.split(":")]
    return parts if all(expression(part) is not None for part in parts) else None


def order(text: str) -> list[str] | None:
    """The parts, the smallest first, of a chain such as `0.7 < \frac{3}{4} < 0.8`."""
    parts = written.split(text, _ORDER)
    signs = {"<" if sign in ("<", r"\lt") else ">" for sign in written.separators(text, _ORDER)}
    if len(parts) < 3 or len(signs) != 1 or any(_free(part) for part in parts):
        return None
    return parts if signs == {"<"} else parts[::-1]


def _free(text: str) -> bool:
    found = expression(text)
    return found is None or bool(found.free_symbols)


def nested_rows(text: str) -> list[list[str]] | None:
    """The rows of a matrix written as [[2, 1], [4, 3]]."""
    kind, inner = written.brackets(text)
    rows = [written.brackets(row) for row in written.listed(inner)] if kind == "[]" else []
    if not rows or any(row[0] != "[]" for row in rows):
        return None
    return [written.listed(row[1]) for row in rows]


def base_number(text: str) -> tuple[str, str] | None:
    r"""Digits and base of `52_8`, `(221)_{\text{three}}`, `1101_{(2)}`."""
    match = re.fullmatch(r"\(?([0-9A-F]+)\)?_\{?\(?(\d+|\\text\{\w+\})\)?\}?(?:\))?", text.strip())
    if match is None:
        return None
    return match[1], with_digits(written.unwrapped(match[2]).lower())


_STATEMENT = re.compile(
    r"(?:(?P<all>\\forall|(?:对于?)?(?:任意|所有|一切)的?|for (?:all|every|any))"
    r"|\\exists|存在|there exists?)\s*(?:一个)?(?P<real>(?:实数|real(?: numbers?)?)\s*)?"
    r"(?P<name>[a-zA-Z](?:_\{?0\}?)?)\s*(?P<where>(?:\\in|[<>]|\\[gl]e|\\neq?)(?:[(\[][^()\[\]]*[)\]]|[^:;,()\[\]])*?)?\s*"
    r"(?:(?:[,:;]|都有|使得?|恒有|均有|such that|with|\||s\.t\.)\s*)+(?P<said>.+)"
)


def statement(text: str) -> tuple[str, str, str] | None:
    r"""Quantifier, domain and what is said of `\forall x > 0, \ln x \le x`; the variable is x."""
    match = _STATEMENT.fullmatch(written.unwrapped(text)) if len(text) < 400 else None
    if match is None:
        return None
    where = match["where"] or (r"\in \mathbb{R}" if match["real"] else "")
    name = re.compile(rf"(?<![a-zA-Z\\]){re.escape(match['name'])}(?![a-zA-Z])")
    domain, said = name.sub("x", f"x {where}".strip()), name.sub("x", match["said"])
    return "all" if match["all"] else "some", domain, said
