r"""How a mathematical answer is written: its parts, links, brackets, units and words.

Pure string work in linear time; what is equal is for `judging` to say. "Top level" means outside of
all brackets and braces.
"""

import re
from collections.abc import Sequence

_SPACES = re.compile(r"(?<!\\)\\[,;:! ]|\\q?quad\b|~|\s+|\\n(?![a-zA-Z])")
_SIZES = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|underline)(?![a-zA-Z])"
    r"|\\(?:text)?color\s*\{[^{}]*\}"
)
_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_THOUSANDS = re.compile(
    r"(?<![\d.,(\[])(?<!\\\{)(\d{1,3})((?:(?:,|\{,\}|,?(?<!\\)\\[,!;: ] ?| )\d{3})+)(?!\d|\s*/)"
)
_OPEN, _CLOSE = "([{", ")]}"
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)
_RELATION = re.compile(r"[<>≠≤≥]|\\(?:leq?|geq?|lt|gt|leqslant|geqslant|neq?|not|in)(?![a-zA-Z])")
_MEMBER = re.compile(r"[a-zA-Z]\s*\\in(?![a-zA-Z])\s*")
_WORDS = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}")
_NEGATION = re.compile(r"\?|≠|\\neq?(?![a-zA-Z])|\\not(?![a-zA-Z])|\\lnot|\\neg(?![a-zA-Z])")
_NAME_MARKS = re.compile(
    r"_\{[^{}]*\}|_\w|(?<=[A-Za-z}])\([^()=]*\)|'|\\(?!frac|dfrac|sqrt|int|sum|prod|lim|sin|cos|tan|log|ln|times"
    r"|cdot|div|pm|binom|infty|pi|circ)[a-zA-Z]+"
)
_NAME = re.compile(r"[A-Za-z|{}\s]+")
_SUBSCRIPT = re.compile(r"\d_\{?(\d+)\}?")

_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s*:?\s*)?(?:\(([A-Z])\)|([A-Z]))[.):]?", re.IGNORECASE
)
_CHOSEN = re.compile(r"\(([A-Z])\)\s*\S.*|([A-Z])[.:)]\s+\S.*")

_NUMERAL = re.compile(
    r"\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty"
    r"|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|half|third|quarter)s?\b",
    re.IGNORECASE,
)

HEDGES = frozenset(
    re.findall(
        r"\w+",
        "not no never none neither nor but except excluding without other isn wrong incorrect "
        "false unlike than less more greater fewer least most over under above below between "
        "cannot impossible instead hardly barely almost nearly maybe perhaps possibly either "
        "anything everything something nothing unknown",
    )
)
"""Words with which an answer does not say that it is the number beside them."""


def plain(text: str, thousands: bool = True) -> str:
    r"""`text` without delimiters, sizes, odd spaces and a final full stop; `thousands` says that
    1,450,200 is one number and no list."""
    text = text.strip().replace(r"\%", "%").replace("!=", r"\neq ")
    if len(re.findall(r"(?<!\\)\$", text)) > 1:
        text = re.sub(r"(?<!\\)\$", "", text).strip()
    for start, end in ((r"\(", r"\)"), (r"\[", r"\]")):
        if text.startswith(start) and text.endswith(end) and text.count(start) == 1:
            text = text[len(start) : -len(end)]
    text = _SIZES.sub("", text).replace("−", "-").replace(r"\dfrac", r"\frac")
    text = text.replace(r"\tfrac", r"\frac").replace(r"\$", "$")
    if thousands:
        text = _THOUSANDS.sub(lambda m: m[1] + re.sub(r"\D", "", m[2]), text)
    text = _SPACES.sub(" ", text).strip()
    return text[:-1].rstrip() if text.endswith(".") else text


def same_text(one: str, other: str) -> bool:
    """Whether two plain texts read the same, spaces, articles and the case of words apart."""
    return _folded(one) == _folded(other)


def _folded(text: str) -> str:
    text = re.sub(r"^(?:the|a|an) ", "", unwrapped(text).strip(), flags=re.IGNORECASE)
    words = re.sub(r"\b[A-Za-z]{2,}\b", lambda m: m[0].lower(), text)
    if re.search(r"[\d\\^_=+]", words):
        words = re.sub(r"\s+(?!\d)|(?<!\d)\s+", "", words)
    return " ".join(words.split()).strip(" .")


def unwrapped(text: str) -> str:
    r"""`\text{...}` and its like replaced by what they hold."""
    return _TEXT.sub(r"\1", text)


def is_words(text: str) -> bool:
    r"""Whether the text is made of words alone, such as `\text{Monday}`.

    `xy` is a product, and "forty two" a number that nothing here reads.
    """
    said = unwrapped(text).strip()
    if _NUMERAL.search(said):
        return False
    long = said != text.strip() or re.search(r"[^\W\d_]{4,}", said) is not None
    return long and re.fullmatch(r"[^\W\d_]{2,}(?:[ '’,-]+[^\W\d_]+)*", said) is not None


def choice(text: str) -> str | None:
    r"""The letter of a choice: "B" of `(B)`, `\textbf{(B)}`, `option B`; else None."""
    match = _CHOICE.fullmatch(unwrapped(text).strip())
    return (match[1] or match[2]).upper() if match else None


def chosen(text: str) -> str | None:
    r"""The letter of a choice, with what it stands for or without: "B" of `(B) 42`; else None."""
    match = _CHOSEN.fullmatch(unwrapped(text).strip())
    return (match[1] or match[2]) if match else choice(text)


def hedges(text: str) -> set[str]:
    """Words and signs that deny, bound or question the number beside them."""
    words = {word.lower() for word in _WORDS.findall(unwrapped(text))}
    return (words & HEDGES) | {"≠" for _ in _NEGATION.finditer(text)}


def alternatives(text: str) -> bool:
    """Whether the text says "or", be it in brackets."""
    return "or" in _WORDS.findall(unwrapped(text).lower())


def relational(text: str) -> bool:
    """Whether the text holds an inequality."""
    return _RELATION.search(text) is not None


def members(text: str) -> str:
    r"""The set alone of `x \in [1,2]`."""
    return _MEMBER.sub("", text, count=1) if _MEMBER.match(text) else text


def _split(text: str, separators: re.Pattern[str]) -> list[str]:
    """The pieces between the separators that stand at the top level."""
    depth, pieces, start, index = 0, [], 0, 0
    while index < len(text):
        found = separators.match(text, index) if depth == 0 else None
        if found and found.end() > index:
            pieces.append(text[start:index])
            start = index = found.end()
            continue
        token = _TOKEN.match(text, index)
        assert token is not None
        mark = token[0][-1] if token[0] in (r"\{", r"\}") else token[0]
        depth += (mark in _OPEN) - (mark in _CLOSE and depth > 0)
        index = token.end()
    return [piece.strip() for piece in (*pieces, text[start:])]


_LIST = re.compile(
    r",(?! ?\\ldots)|;|\\(?:text|mathrm)\s*\{\s*,?\s*(?:or|and)\s*\}|\\(?:lor|vee)(?![a-zA-Z])"
    r"|(?<![a-zA-Z\\])(?:or|and)(?![a-zA-Z])"
)
_LINK = re.compile(r"=+")


def listed(text: str) -> list[str]:
    """The parts of a list without brackets, at least one; none of them empty."""
    return [part for part in _split(text, _LIST) if part] or [text]


def links(text: str) -> list[str]:
    """The sides of a chain of equalities; the text alone where it has no plain `=`."""
    if relational(text) or ":=" in text:
        return [text]
    return _split(text, _LINK)


def is_name(text: str) -> bool:
    r"""Whether it only names a quantity: `x`, `a_{n}`, `f(x)`, `\angle ABC`, `\text{Area}`."""
    marked = _NAME_MARKS.sub("", _TEXT.sub("", text))
    return bool(text.strip()) and (not marked.strip() or _NAME.fullmatch(marked) is not None)


def brackets(text: str) -> tuple[str, str]:
    r"""The brackets around the whole text and what they hold: ("{}", "1,2") of `\{1,2\}`.

    ("", text) where there are none.
    """
    body = text.strip()
    start = 2 if body.startswith(r"\{") else 1
    end = 2 if body.endswith(r"\}") else 1
    opened, closed = body[:start][-1:], body[-1:]
    if len(body) <= start + end or opened not in _OPEN or closed not in _CLOSE:
        return "", text
    if opened == "{" and start == 1:
        return "", text
    inner = body[start:-end]
    return (opened + closed, inner) if _balanced(inner) else ("", text)


def _balanced(text: str) -> bool:
    depth = 0
    for token in _TOKEN.findall(text):
        mark = token[-1] if token in (r"\{", r"\}") else token
        depth += (mark in _OPEN) - (mark in _CLOSE)
        if depth < 0:
            return False
    return depth == 0


_DEGREE = re.compile(r"\^\s*\{?\s*\\circ\s*\}?|°|\\degree(?![a-zA-Z])")
_UNIT = re.compile(
    r"(?P<value>.*?[\w})%])\s*\\(?:text|textrm|textbf|textit|mathrm|mbox)\s*\{\s*(?P<unit>[^{}\d]*)\}"
    r"\s*(?:\^\s*\{?\s*-?\d\s*\}?)?"
)
_PLAIN_UNIT = re.compile(
    r"(?P<value>[-+$€£]*[\d.]+(?:\s*/\s*\d+)?)\s+(?P<unit>(?:cm|mm|km|kg|in|ft|mi|[A-Za-z]{3})"
    r"[A-Za-z .²³/^2-]*)"
)
_CURRENCY = re.compile(r"^([-+]?)\s*(?:[$€£])\s*|\s*(?:[$€£])$")


def without_unit(text: str) -> tuple[str, str]:
    r"""The value and its unit: ("42", "cm") of `42 \text{ cm}`; the unit is "" where there is none.

    Percent is no unit here.
    """
    found = _DEGREE.search(text)
    if found and not text[found.end() :].strip():
        return text[: found.start()].strip(), "degree"
    value = _CURRENCY.sub(r"\1", text)
    if value != text:
        return value, "dollar"
    match = _UNIT.fullmatch(text) or _PLAIN_UNIT.fullmatch(text)
    if match and not hedges(match["unit"]) and "percent" not in match["unit"]:
        return match["value"].strip(), match["unit"].strip()
    return text, ""


_PERCENT = re.compile(r"\s*(?:%|\\?\\text\s*\{\s*percent\s*\}|percent|per cent)\s*$")


def without_percent(text: str) -> tuple[str, bool]:
    """The number before a sign of percent, and whether there was one."""
    value = _PERCENT.sub("", text)
    return value, value != text


def base(text: str) -> str | None:
    """The base that a number is written in, such as "8" of `52_8`."""
    match = _SUBSCRIPT.search(text)
    return match[1] if match else None


_DECIMAL = re.compile(r"-?\d*\.(\d+)(?: ?\\(?:times|cdot) ?10\^\{?(-?\d{1,3})\}?)?")


def last_place(text: str) -> float | None:
    r"""One unit in the last place of a decimal: 0.01 of `3.14`, 10 of `1.23 \times 10^3`."""
    match = _DECIMAL.fullmatch(text)
    return 10.0 ** (int(match[2] or 0) - len(match[1])) if match else None


_MIXED = re.compile(r"([-+]?)\s*(\d+)\s+(\d+)\s*/\s*(\d+)")
_SCIENTIFIC = re.compile(r"([-+]?\d{1,40}(?:\.\d{1,40})?)[eE]([-+]?\d{1,3})")
_SAID = re.compile(r"[A-Za-z0-9 .,:;!?'\"()$%/-]+")
_FIGURE = re.compile(r"[-+]?\$?\d+(?:\.\d+)?(?:/\d+)?%?")


def as_latex(text: str) -> str:
    """Mixed numbers and powers of ten as math-verify reads them."""
    mixed = _MIXED.fullmatch(text)
    if mixed:
        sign, whole, top, bottom = mixed.groups()
        return rf"{sign}({whole}+\frac{{{top}}}{{{bottom}}})"
    scientific = _SCIENTIFIC.fullmatch(text)
    if scientific:
        return rf"{scientific[1]} \times 10^{{{int(scientific[2])}}}"
    return text


def figures_in_words(text: str) -> Sequence[str] | None:
    """The numbers in a phrase such as "the answer is 42"; None where the text is no phrase."""
    said = unwrapped(text)
    words = [word for word in _WORDS.findall(said) if len(word) > 2]
    if not words or not _SAID.fullmatch(said) or " " not in said:
        return None
    return _FIGURE.findall(said)
