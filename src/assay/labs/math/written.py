r"""How a mathematical answer is written: one spelling of it, its parts, links, brackets and words.

Pure string work; what is equal is for `judging` to say. "Top level" means outside of all brackets
and braces.
"""

import re
from itertools import accumulate

from assay.labs.math.units import WORDS, numeral

_SPACES = re.compile(r"(?<!\\)\\[,;:! ]|\\q?quad\b|~|\s+|\\n(?![a-zA-Z])|\\(?:h|v)space\{[^{}]*\}")
_SIZES = re.compile(
    r"\\(?:left|right|middle|[bB]igg?[lrm]?"
    r"|displaystyle|textstyle|underline|limits|nolimits)(?![a-zA-Z])"
    r"|\\(?:text)?color\s*\{[^{}]*\}"
)
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
_FONT = re.compile(
    r"\\(?P<font>text(?:bf|it|rm|sf|tt|normal)?|math"
    r"(?:rm|bf|it|sf|tt|normal)|mbox|hbox|boxed|operatorname"
    r"|boldsymbol|bm)\s*\{(?P<said>(?:[^{}]|\{[^{}]*\})*)\}|\{\\(?:rm|bf|it)\s+(?P<old>[^{}]*)\}"
)
_FUNCTIONS = frozenset(WORDS["functions"].split())
_THOUSANDS = re.compile(
    r"(?<![\d.,(\[])(?<!\\\{)(\d{1,3})((?:(?:,|\{,\}|,?(?<!\\)\\[,!;: ] ?| )\d{3})+)(?!\d|\s*/)"
)
_POWER_OF_TEN = re.compile(r"(\d)\s*\\(?:mathrm|text)\s*\{\s*[eE]\s*\}\s*\{?([-+]?\d+)\}?")
_SIGNS = {chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | WORDS["signs"]
_ASCII = str.maketrans(_SIGNS)
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_RAISED_DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


_SPELLINGS = tuple((re.compile(pattern), other) for pattern, other in WORDS["spellings"])
_OPEN, _CLOSE = "([{⟨", ")]}⟩"
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)
_RELATION = re.compile(r"[<>]|\\(?:leq?|geq?|lt|gt|neq|not|in)(?![a-zA-Z])")
_MEMBER = re.compile(r"(?:[a-zA-Z]|\([a-z](?:\s*,\s*[a-z])+\))\s*\\in(?![a-zA-Z])\s*")
_WORDS = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}")
_NEGATION = re.compile(r"\?|≠|\\neq?(?![a-zA-Z])|\\not(?![a-zA-Z])|\\lnot|\\neg(?![a-zA-Z])")
_APPROXIMATION = re.compile(r"\\(?:approx|simeq|sim|cong)(?![a-zA-Z])|≈|∼")
_CHINESE_HEDGE = re.compile(
    r"不(?!等式|同的)|非|至少|至多|最多|最少|大约|约|超过|以上|以下|多于|少于|大于|小于|左右|可能|或许|近似|几乎|没有|无|除"
)
_NAME_MARKS = re.compile(
    r"_\{[^{}]*\}|_\w|(?<=[A-Za-z}])\([^()=]*\)|'|\\(?!frac"
    r"|dfrac|sqrt|int|sum|prod|lim|sin|cos|tan|log|ln|times"
    r"|cdot|div|pm|binom|infty|pi|circ|overline\{\d)[a-zA-Z]+(?: ?\([a-z](?:, ?[a-z])+\))?"
)
_NAME = re.compile(r"[A-Za-z|{}\s]+|[\u4e00-\u9fff]+")

_CHOICE = re.compile(
    r"(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\s*:?\s*)?(?:\(\s*([A-Ja-j])\s*\)|([A-Ja-j]))\s*[.):]?"
)
_CHOSEN = re.compile(r"(?:\(\s*([A-J])\s*\)\s*[.:]?|([A-J])\s*[.:)])\s*(\S.*)")
_LETTERS = re.compile(r"\(?[A-J]\)?(?:\s*(?:,|;|and|\s)\s*\(?[A-J]\)?|[A-J])+")

HEDGES = frozenset(WORDS["hedges"].split())
DENIALS = frozenset(WORDS["denials"].split())

_MEANING = {text: n for n, group in enumerate(WORDS["meanings"]) for text in group.split("|")}


def plain(text: str, thousands: bool = True) -> str:
    r"""One spelling of `text`: without delimiters, sizes, fonts, odd spaces and a final full stop.

    What is upright is `\text{...}` then, but for numbers and the names of numbers (`\mathrm{i}`).
    `thousands` says that 1,450,200 is one number and no list.
    """
    text = _RAISED.sub(lambda m: f"^{{{m[0].translate(_RAISED_DIGITS)}}}", text)
    text = re.sub(r"\s+", " ", text.translate(_ASCII)).strip().strip("。")
    text = text.replace(r"\%", "%").replace("**", "")
    if len(re.findall(r"(?<!\\)\$", text)) > 1:
        text = re.sub(r"(?<!\\)\$", "", text).strip()
    text = re.sub(r"(?<!\\)\\[()\[\]]", "", text).strip()
    if "begin" not in text:
        text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text)
    text = _POWER_OF_TEN.sub(r"\1e\2", text.replace(r"\$", "$"))
    text = _FONT.sub(_upright, text)
    for pattern, other in _SPELLINGS:
        text = pattern.sub(other, text)
    text = _SIZES.sub("", text)
    if thousands:
        text = _THOUSANDS.sub(lambda m: m[1] + re.sub(r"\D", "", m[2]), text)
    text = _SPACES.sub(" ", text).strip()
    text = re.sub(r"^<([^<>]*,[^<>]*)>$", r"⟨\1⟩", text)
    text = re.sub(r"(?:[.,;]|(?<!\\)\\)$", "", text).rstrip()
    return numeral(text) if len(text) < 200 else text


def _upright(match: re.Match[str]) -> str:
    """What a font says: a number or its name in italics, a function, or a text."""
    words = match["said"] if match["old"] is None else match["old"]
    if "{" in words:
        return words
    word, bold = words.strip(" ~"), match["font"] in ("mathbf", "boldsymbol", "bm", "mathit")
    if (match["font"] == "operatorname" or word in _FUNCTIONS) and word not in ("min", "max"):
        return rf"\{word} " if word.isalpha() else word
    if word in ("i", "e", "d") or (bold and len(word) == 1):
        return f" {word} "
    before = match.string[: match.start()].rstrip("{ ~\\,")[-1:]
    counts = re.search("[A-Z]", word) and (before.isalnum() or before in ("}", ")"))
    names = re.search(r"[a-z\u4e00-\u9fff]|[A-Z]{2}", word) or counts
    return rf"\text{{{words}}}" if names else words


def same_text(one: str, other: str) -> bool:
    """Whether two plain texts read the same, spaces, articles and the case of words apart."""
    return fold(one) == fold(other)


def fold(text: str) -> str:
    """A text such that texts that read the same are equal."""
    text = re.sub(r"^(?:[Tt]he|a|[Aa]n) ", "", unwrapped(text).strip())
    words = re.sub(
        r"(?<![\\A-Za-z])[A-Za-z]{2,}\b",
        lambda m: m[0].lower() if m[0] != m[0].upper() or len(m[0]) > 3 else m[0],
        text,
    )
    if re.search(r"[\d\\^_=+]", words):
        words = re.sub(
            r"(?<![A-Za-z])\s+(?!\d)|(?<![\dA-Za-z])\s+|(?<=[A-Za-z])\s+(?![A-Za-z])", "", words
        )
    return " ".join(words.split()).strip(" .")


def unwrapped(text: str) -> str:
    r"""`\text{...}` replaced by what it holds."""
    return _TEXT.sub(r"\1", text)


def meaning(text: str) -> int | None:
    """Which of the answers that many words stand for a text is: yes, no solution, odd, ..."""
    words = " ".join(unwrapped(text).lower().replace(r"\ ", " ").strip(" .!").split())
    if re.fullmatch(
        r"no such [a-z ]+ exists?|there (?:is|are) no such"
        r" [a-z ]+|no,? (?:it|they) (?:is|are|does|do) not",
        words,
    ):
        words = "no"
    return _MEANING.get(words)


def affirmation(text: str) -> bool | None:
    """Whether a text is, or begins with, yes or no: "No, it is not." """
    first = re.match(
        r"\s*(yes|no|true|false|是的?|否|对|错误?|不是|正确|不正确|存在|不存在|能|不能)\s*[,.;，。；!]",
        unwrapped(text).lower(),
    )
    word = meaning(first[1] if first else text)
    return word == 0 if word in (0, 1) else None


def is_words(text: str) -> bool:
    r"""Whether a text is words alone, such as `\text{Monday}` or Tom; `xy` is a product."""
    plain = unwrapped(text).strip()
    long = (
        plain != text.strip()
        or re.search(r"[^\W\d_]{4,}|[\u4e00-\u9fff]", plain) is not None
        or re.search(r"\b(?=[A-Za-z]*[aeiouy])[A-Za-z][a-z]{2}\b", plain) is not None
        or _MEANING.get(plain.lower()) is not None
    )
    return long and re.fullmatch(r"[^\W\d_]+(?:[ '’,.-]+[^\W\d_]+)*", plain) is not None


def words(text: str) -> list[str]:
    """The words of a text, in small letters, without articles."""
    tokens = re.findall(r"[a-z']+|[\u4e00-\u9fff]+|\d+", unwrapped(text).lower().replace("而", ""))
    tokens = [re.sub(r"^(converg|diverg|increas|decreas)\w*", r"\1", word) for word in tokens]
    return [word for word in tokens if word not in ("the", "a", "an")]


def choice(text: str) -> str | None:
    r"""The letter of a choice: "B" of `(B)`, `\textbf{(B)}`, `option B`; else None."""
    match = _CHOICE.fullmatch(unwrapped(text).strip())
    return (match[1] or match[2]).upper() if match else None


def chosen(text: str) -> tuple[str, str] | None:
    r"""The letter of a choice and what it stands for: ("B", "42") of `(B) 42`; else None."""
    match = _CHOSEN.fullmatch(re.sub(r"^\\text\s*\{([^{}]*)\}", r"\1", text).strip())
    return (match[1] or match[2], match[3]) if match else None


def letters(text: str) -> str | None:
    """The letters of several choices in order: "AC" of `A, C`; None where they are none."""
    plain = unwrapped(text).strip()
    if not _LETTERS.fullmatch(plain):
        return None
    capitals = re.findall("[A-J]", plain)
    return "".join(sorted(capitals)) if len(set(capitals)) == len(capitals) else None


def hedges(text: str) -> set[str]:
    """Words and signs that deny, bound or question the number beside them."""
    words = {word.lower() for word in _WORDS.findall(unwrapped(text))}
    hedging = (words & HEDGES) | set(_CHINESE_HEDGE.findall(text))
    signs = {"≠": _NEGATION, "≈": _APPROXIMATION}
    return hedging | {sign for sign, meant in signs.items() if meant.search(text)}


def alternatives(text: str) -> bool:
    """Whether the text says "or", be it in brackets."""
    return "or" in _WORDS.findall(unwrapped(text).lower())


def relational(text: str) -> bool:
    """Whether the text holds an inequality."""
    return _RELATION.search(text) is not None


def members(text: str) -> str:
    r"""The set alone of `x \in [1,2]`."""
    return _MEMBER.sub("", text, count=1) if _MEMBER.match(text) else text


def split(text: str, separator: re.Pattern[str]) -> list[str]:
    """The pieces between the separators that stand at the top level."""
    places = _places(text, separator)
    starts = [0, *(end for _, end in places)]
    ends = [*(start for start, _ in places), len(text)]
    return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def separators(text: str, separator: re.Pattern[str]) -> list[str]:
    """The separators at the top level."""
    return [text[start:end].strip() for start, end in _places(text, separator)]


def _places(text: str, separator: re.Pattern[str]) -> list[tuple[int, int]]:
    depth, places, index = 0, [], 0
    while index < len(text):
        match = separator.match(text, index) if depth == 0 else None
        if match and match.end() > index:
            places.append(match.span())
            index = match.end()
            continue
        token = _TOKEN.match(text, index)
        assert token is not None
        mark = token[0][-1] if token[0] in (r"\{", r"\}") else token[0]
        depth += (mark in _OPEN) - (mark in _CLOSE and depth > 0)
        index = token.end()
    return places


_LIST = re.compile(
    r",(?! ?\\ldots)|;|\\(?:lor|vee)(?![a-zA-Z])|(?<![a-zA-Z\\])(?:or|and)(?![a-zA-Z])"
)
_LINK = re.compile(r"=+")


def listed(text: str) -> list[str]:
    """The parts of a list without brackets, at least one; none of them empty."""
    return [part for part in split(text, _LIST) if part] or [text]


def links(text: str) -> list[str]:
    """The sides of a chain of equalities; the text alone where it has no plain `=`."""
    if relational(text) or ":=" in text:
        return [text]
    return split(text, _LINK)


def is_name(text: str) -> bool:
    r"""Whether it only names a quantity: `x`, `a_{n}`, `f(x)`, `\angle ABC`, `\text{Area}`."""
    marked = _NAME_MARKS.sub("", _TEXT.sub("", text.replace(":", " ")))
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
    marks = (token[-1] if token in (r"\{", r"\}") else token for token in _TOKEN.findall(text))
    depths = [*accumulate(((mark in _OPEN) - (mark in _CLOSE) for mark in marks), initial=0)]
    return min(depths) == depths[-1] == 0


_MATRIX = re.compile(
    r"\\begin\s*\{([pbvBV]?matrix|array)\}(?:\s*\{[^{}]*\})?(.*)\\end\s*\{\1\}", re.DOTALL
)


def matrix(text: str) -> list[list[str]] | None:
    """The rows of a matrix of texts, brackets of an array apart; None where the text is none."""
    body = text.strip()
    kind, inner = brackets(body)
    match = _MATRIX.fullmatch(inner.strip() if kind in ("()", "[]") else body)
    if match is None or "\\begin" in match[2]:
        return None
    rows = [row for row in re.split(r"\\\\", match[2]) if row.strip()]
    return [[cell.strip() for cell in row.split("&")] for row in rows]


_PERCENT = re.compile(r"\s*(?:%|\\?\\text\s*\{\s*(?:percent|%)\s*\}|percent|per cent|pct\.?)\s*$")


def without_percent(text: str) -> tuple[str, bool]:
    """The number before a sign of percent, and whether there was one."""
    value = _PERCENT.sub("", text)
    return value, value != text


_DECIMAL = re.compile(r"-?\d*\.(\d+)(?: ?\\(?:times|cdot) ?10\^\{?(-?\d{1,3})\}?)?")


def last_place(text: str) -> float | None:
    r"""One unit in the last place of a decimal: 0.01 of `3.14`, 10 of `1.23 \times 10^3`."""
    match = _DECIMAL.fullmatch(text)
    return 10.0 ** (int(match[2] or 0) - len(match[1])) if match else None


_MIXED = re.compile(r"([-+]?)\s*(\d+)\s+(\d+)\s*/\s*(\d+)")
_SCIENTIFIC = re.compile(r"([-+]?\d{1,40}(?:\.\d{1,40})?)[eE]([-+]?\d{1,3})")


def as_latex(text: str) -> str:
    """Mixed numbers and powers of ten in LaTeX; a letter at the end of "5." is none."""
    mixed = _MIXED.fullmatch(text)
    if mixed:
        sign, whole, top, bottom = mixed.groups()
        return rf"{sign}{whole}\frac{{{top}}}{{{bottom}}}"
    scientific = _SCIENTIFIC.fullmatch(text)
    if scientific:
        return rf"{scientific[1]} \times 10^{{{int(scientific[2])}}}"
    return text
