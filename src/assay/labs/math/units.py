r"""Reads units, counted things and sums of money behind or before a number.

`pint` knows what a unit measures and how large it is; Chinese names are other words for the same.
What it does not know counts things: two such phrases are the same unit where the words of one are
among those of the other. A word is never dropped.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

WORDS: Mapping[str, Any] = tomllib.loads(
    files("assay.labs.math").joinpath("words.toml").read_text(encoding="utf-8")
)
_ONES, _TENS = (WORDS["numbers"][name].split() for name in ("ones", "tens"))
_SMALL = {word: n for n, word in enumerate(_ONES)} | {w: 10 * n for n, w in enumerate(_TENS, 2)}
_NUMBER = re.compile(
    rf"(?P<minus>(?:negative|minus)\s+)?(?P<tens>{'|'.join(_TENS)})?[- ]?"
    rf"(?P<ones>{'|'.join(_ONES)})?"
    r"(?![\w-]|\s*(?:and\b|hundred|thousand|million|billion|trillion|dozen|hal[fv]|quarter|third"
    r"|\w+ths?\b))"
)


def numeral(text: str) -> str:
    """A text with the spelt number below a hundred that it begins with in digits, be it typeset as
    text."""
    plain = re.sub(r"^\\text\s*\{([^{}]*)\}$", r"\1", text).strip()
    match = _NUMBER.match(plain.lower())
    words = [word for word in (match["tens"], match["ones"]) if word] if match else []
    if match is None or not words or (len(words) == 2 and not 0 < _SMALL[words[1]] < 10):
        return text
    sign, value = "-" if match["minus"] else "", sum(map(_SMALL.__getitem__, words))
    return f"{sign}{value}{plain[match.end() :]}"


LONGEST = 300

_CHINESE, _ABBREVIATIONS = WORDS["units"]["chinese"], WORDS["units"]["abbreviations"]
_CHINESE_WORD = re.compile("|".join(sorted(map(re.escape, _CHINESE), key=len, reverse=True)))
_SYMBOLS = {"$": "dollar", "€": "euro", "£": "sterling", "¥": "yuan"}
_PREFIXES = {"", "kilo", "centi", "milli", "deci", "mega", "giga", "micro", "nano"}
_METRIC, _NOT_UNITS, FILLERS = (
    frozenset(WORDS["units"][name].split()) for name in ("metric", "none", "fillers")
)
_POWERS = {"square": 2, "cubic": 3}
_AFTER = {"squared": 2, "cubed": 3}
_UNIT_TOKEN = re.compile(
    r"[A-Za-zµμΩ_']+|\^\s*-?\d|(?<=[a-z])[23]|[²³/*·()-]|[\u4e00-\u9fff]+|[$€£¥¢]"
)

_FUNCTIONS = r"(?!(?:sin|cos|tan|cot|log|ln|lg|sqrt|exp|pi|mod|gcd|lcm|and|or|if)\b)"
_START = (
    r"\\text\s*\{[^{}]*\}|\^\s*\{?\s*\\circ\s*\}?|\\degree(?![a-zA-Z])|[°¢€£¥$]|[\u4e00-\u9fff]+"
    rf"|(?<![A-Za-z\\]){_FUNCTIONS}(?P<word>[A-Za-z]{{2,}})(?:[23](?!\d)|\.)?"
)
_REST = (
    r"(?:\\text\s*\{[^{}]*\}|\^\s*\{?\s*(?:\\circ|-?\d)\s*\}?"
    r"|[°¢€£¥$²³]|[\u4e00-\u9fff]++|[A-Za-z.']++(?:[23](?!\d))?"
    r"|[-/·\s,()]|\\cdot(?![a-zA-Z])|\\times(?![a-zA-Z]))*+"
)
_MEASURED = re.compile(rf"(?P<value>.*?[\w)}}%\]!])(?P<space>\s*)(?P<unit>(?:{_START}){_REST})")
_MONEY = re.compile(r"([-+]?)\s*(?:US|U\.S\.)?\s*([$€£¥])\s*([-+]?[\d.\\].*)")
_OPERATOR_END = re.compile(r"(?:[-+*/^_=(,{]|\\(?:cdot|times|div|pm|mp|frac|sqrt))\s*$")
_ANGLE_OF = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")
_VOWEL = re.compile(r"[aeiouyAEIOUY]")


@dataclass(frozen=True, slots=True)
class Unit:
    """What a number counts: so many of a dimension, or things of a name."""

    factor: Fraction = Fraction(1)
    dimension: str = ""
    """As pint writes it; "" for things that are counted."""
    things: frozenset[str] = frozenset()

    def same_kind(self, other: "Unit") -> bool:
        """Whether numbers of the two can be compared, after their factors."""
        if self.dimension == other.dimension == "":
            one, two = sorted((self.things, other.things), key=len)
            return all(any(_same_thing(a, b) for b in two) for a in one)
        return self.dimension == other.dimension


def _same_thing(one: str, other: str) -> bool:
    """Whether two words are one; 9颗 is 9颗糖 and 9个 is 9个苹果."""
    chinese = not one.isascii() and not other.isascii()
    return one == other or (chinese and (one.startswith(other) or other.startswith(one)))


ANGLE = "angle"


@cache
def registry() -> Any:
    """pint's registry with the definitions of `WORDS`; made when first asked, because reports read
    no units."""
    import pint

    made: Any = pint.UnitRegistry(non_int_type=Fraction)  # pyright: ignore[reportArgumentType]
    for line in WORDS["units"]["definitions"]:
        made.define(line)
    return made


@lru_cache(maxsize=512)
def _known(word: str) -> str | None:
    """pint's name of a unit that a word means, in the plural or not; None where it means none."""
    word = _ABBREVIATIONS.get(word, word)
    for spelt in (word, word.lower()):
        if spelt in _NOT_UNITS:
            return None
        for prefix, name, _ in registry().parse_unit_name(spelt):
            if prefix in _PREFIXES and (not prefix or name in _METRIC):
                return prefix + name
    return None


@lru_cache(maxsize=512)
def unit(text: str) -> Unit | None:
    """The unit that a text without its number names; None where it names nothing."""
    spelt = _CHINESE_WORD.sub(lambda m: f" {_CHINESE[m[0]]} ", _spelt(text))
    spelt = re.sub(r"\b(?:in )?(?:all|total)\b", "", spelt)
    for word, longer in _ABBREVIATIONS.items():
        if not longer.isidentifier():
            spelt = re.sub(rf"(?<![A-Za-z]){word}(?![A-Za-z])", longer, spelt)
    known = _product(_UNIT_TOKEN.findall(spelt))
    if known is not None:
        return known
    words = re.findall(r"[A-Za-z]+|[\u4e00-\u9fff]+", _spelt(text))
    things = frozenset(
        re.sub(r"(?<=[a-z]{2}[a-rt-z])s$", "", word.lower())
        for word in words
        if word.lower() not in FILLERS
    )
    return Unit(things=things) if things else None


def _spelt(text: str) -> str:
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text)
    text = re.sub(r"\^\s*\{?\s*\\circ\s*\}?|°|\\degree", " degree ", text)
    text = re.sub(r"\bdegrees?\s+(C|F)(?![a-z])", r"deg\1", text)
    text = re.sub(r"\bdegrees?\s+(?=[Cc]els|[Ff]ahr)", "", text)
    return re.sub(r"\\cdot|\\times", "*", text).replace("{", "").replace("}", "")


def _product(tokens: Sequence[str]) -> Unit | None:
    """The unit of tokens that pint knows all of."""
    powers: Counter[str] = Counter()
    sign, power, last = 1, 1, None
    for token in tokens:
        word = _ABBREVIATIONS.get(token.lower(), token.lower())
        if token in ("/", "per") or (word in ("per", "a", "an") and last is not None):
            sign = -1
        elif token in "*·-()" or word in FILLERS:
            continue
        elif word in _POWERS:
            power = _POWERS[word]
        elif token in "²³23" or token[0] == "^" or word in _AFTER:
            if last is None:
                return None
            raised = _AFTER.get(word) or {"²": 2, "³": 3}.get(token) or int(token.strip("^ "))
            powers[last[0]] += last[1] * (raised - 1)
            last = (last[0], 0)
        else:
            name = _known(_SYMBOLS.get(token, token))
            if name is None:
                return None
            last = f"delta_{name}" if name.startswith("degree_") else name, sign
            powers[last[0]] += sign * power
            power = 1
    if last is None:
        return None
    degrees = [name for name, power in powers.items() if "delta_" in name and power]
    if degrees:  # Celsius and Fahrenheit are not converted
        return Unit(Fraction(1), " ".join(degrees))
    root = registry().Quantity(Fraction(1), registry().UnitsContainer(powers)).to_root_units()
    sizes = sorted((str(name), power) for name, power in root.dimensionality.items())
    dimension = " ".join(f"{name}^{power}" for name, power in sizes if power)
    return Unit(Fraction(root.magnitude).limit_denominator(10**15), dimension or ANGLE)


def measured(text: str) -> tuple[str, Unit | None]:
    r"""The number of a text and its unit: ("42", centimetres) of `42 \text{ cm}`.

    None for the unit where there is none; then the number is the text.
    """
    if len(text) > LONGEST:
        return text, None
    value, named = _split(text)
    return value, unit(named) if named else None


def _split(text: str) -> tuple[str, str]:
    """The number and the words of its unit."""
    money = _MONEY.fullmatch(text)
    if money:
        value, more = _split(money[3])
        return money[1] + value, f"{money[2]} {more}"
    match = _MEASURED.fullmatch(text)
    if match and _is_tail(match):
        return match["value"].strip(), match["unit"]
    return text, ""


def _is_tail(match: re.Match[str]) -> bool:
    """Whether what looks like a unit behind a number is one, and no product of variables."""
    if _OPERATOR_END.search(match["value"]) or "\\text" in match["value"]:
        return False
    if _ANGLE_OF.search(match["value"]) and re.match(r"\^|°|\\degree", match["unit"]):
        return False
    word = match["word"]
    if word is None or _known(word) or word in ("sq", "cu"):
        return True
    if word in ("st", "nd", "rd", "th"):
        return match["space"] == ""
    return bool(match["space"]) and len(word) > 2 and _VOWEL.search(word) is not None
