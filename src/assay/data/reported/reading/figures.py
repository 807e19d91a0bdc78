"""Parses numbers as logs print them: percentages, shares, counts of a total, intervals, repeats.

What a number measures is not known here.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

NUMBER = r"\d+(?:,\d{3})+(?:\.\d+)?|\d*\.?\d+(?:[eE][-+]?\d+)?"
PERCENT = r"\s*[%％]"
WHOLE = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+"
OF = r"(?:/|／|\bout of\b|\bof\b)"
SPREAD = re.compile(
    rf"\s*(?:(?:±|\+/-|\+-|\\pm)\s*(?:{NUMBER})(?:{PERCENT})?"
    rf"|[\[(（【]\s*(?:±|95\s*%\s*(?:CI|置信区间)?:?)?\s*-?(?:{NUMBER})(?:{PERCENT})?"
    rf"\s*(?:[,，;~–—-]|to|至)\s*-?(?:{NUMBER})(?:{PERCENT})?\s*[\])）】]"
    rf"|[(（]\s*(?:±|sd|se|std)\s*(?:{NUMBER})(?:{PERCENT})?\s*[)）])",
    re.I,
)
"""What says how exact a score is: `± 2.1`, `[40.1, 48.9]`, `(40.1–48.9)`."""
ASIDE = re.compile(r"\s*[(（][^()（）]*[)）]\s*$")
CHANGE_ASIDE = re.compile(
    rf"\s*[(（]\s*([+−-]\s*(?:{NUMBER}))(?:{PERCENT}|\s*(?:pp|pts?))?\s*[)）]"
)
COUNTS = re.compile(
    rf"(?<![\d./])({WHOLE})\s*{OF}\s*(?:the\s+)?({WHOLE})(?![\d/]|\.\d|\s*[%％])", re.I
)
SIZE = re.compile(r"[,，]?\s*[(（]?\s*(?<![A-Za-z])n\s*=\s*(\d[\d,]*)\s*[)）]?", re.I)
VALUE = re.compile(rf"^(?:~|≈|约)?\s*({NUMBER})({PERCENT})?")
SIGNED = re.compile(
    rf"^([+−–-]?)\s*[$¥€£]?\s*({NUMBER})({PERCENT})?\s*(?:pp|pts?|points?|个?百分?点)?$", re.I
)
REPEATS = re.compile(
    rf"^(?:{NUMBER})(?:{PERCENT})?(?:\s*[/,;，、；|]\s*(?:{NUMBER})(?:{PERCENT})?){{2,}}$"
)
MARKS = re.compile(
    r"[\u2190\u2191\u2193-\u21ff\u2600-\u27bf\u2b00-\u2bff\U0001f300-\U0001faff\ufe0f†‡§*^]"
    r"|\[\d{1,2}\](?=$|\s)"
)
"""Arrows, stars, footnote signs and emoji beside a number or a name."""

OPEN = re.compile(
    r"^(?:[?？]+|…|\.{3}|tbd|tba|to-?do|pending|running|in progress|待填充?|待补充?|待跑"
    r"|待测|未完成|进行中)$",
    re.I,
)
"""A cell that is to be filled in."""
ABSENT = re.compile(
    r"^(?:|[-–—/]+|n\.?/?a\.?|null|none|nan|not (?:run|measured|evaluated|tested|applicable)"
    r"|skipped"
    r"|oom|crashed|failed|无|未测|未跑|缺失|不适用)$",
    re.I,
)
"""A cell that says that nothing was measured; never 0."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What one cell prints: a number, repeats of it, or a count of a total."""

    values: tuple[Decimal, ...] = ()
    """As printed; empty where only counts are."""
    percent: bool = False
    """Whether a percent sign stands with it."""
    count: int | None = None
    total: int | None = None
    spread: bool = False
    """Whether an interval or a deviation stands beside it."""
    change: Decimal | None = None
    """A signed number in parentheses after it."""

    @property
    def rated(self) -> bool:
        """Whether the cell itself says that it is a share of something."""
        return self.percent or self.total is not None


def decimal(text: str) -> Decimal:
    """A number as printed; separators of thousands and a typographic minus are understood."""
    return Decimal(re.sub(r"[,\s]", "", text).replace("−", "-").replace("–", "-"))


def clean(text: str) -> str:
    """A cell or name without marks that mean nothing to a reader of numbers."""
    return re.sub(r"\s+", " ", MARKS.sub("", text)).strip()


def missing(text: str) -> bool:
    """Whether a cell is open or says that nothing was measured."""
    shown = clean(text)
    bare = ASIDE.sub("", shown) or shown
    return bool(OPEN.match(shown) or ABSENT.match(bare))


def figure(text: str) -> Figure | None:
    """The score-like number that a cell prints; None for anything else, negative ones too."""
    shown = clean(text)
    size = SIZE.search(shown)
    shown = SIZE.sub("", shown) if size else shown
    if REPEATS.match(shown) and not re.fullmatch(r"\d+(?:[/,]\d+)+", shown):
        parts = re.split(r"\s*[/,;，、；|]\s*", shown)
        values = tuple(decimal(part.rstrip("%％ ")) for part in parts)
        return Figure(values, "%" in shown or "％" in shown)
    counts = COUNTS.search(shown)
    count, total = (int(decimal(n)) for n in counts.groups()) if counts else (None, None)
    total = int(decimal(size[1])) if size and total is None else total
    if total == 0 or (count is not None and total is not None and count > total):
        return None
    rest = COUNTS.sub(" ", shown, count=1) if counts else shown
    change = CHANGE_ASIDE.search(rest)
    rest = CHANGE_ASIDE.sub("", rest)
    spread = SPREAD.search(rest)
    rest = re.sub(r"[()（）=≈]|correct|right|题|条|答对|正确", " ", SPREAD.sub("", rest)).strip()
    value = VALUE.match(rest)
    if value is None and (counts is None or rest):
        return None
    if value is not None and rest[value.end() :].strip(" ,，;；"):
        return None
    return Figure(
        values=(decimal(value[1]),) if value else (),
        percent=bool(value and value[2]),
        count=count,
        total=total,
        spread=spread is not None,
        change=decimal(change[1]) if change else None,
    )


def signed(text: str) -> tuple[Decimal, bool] | None:
    """A number, signed or not, and whether it has a percent sign; None for anything else."""
    match = SIGNED.match(clean(text))
    if match is None:
        return None
    return decimal(match[1] + match[2]), bool(match[3])


def whole(text: str) -> int | None:
    """A whole number such as `1,319`, `n=200` or `400 题`; None for anything else."""
    shown = clean(text)
    match = re.fullmatch(
        r"(?:n\s*=\s*)?(\d[\d,]*)\s*(?:items?|questions?|problems?|samples?|题|条|个)?", shown, re.I
    )
    return int(decimal(match[1])) if match else None
