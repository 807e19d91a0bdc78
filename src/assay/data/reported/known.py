"""What is known of common benchmarks, for logs that do not print how many items they have."""

import re
from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Known:
    """A benchmark: its items, the categories that its overall score averages, one item's step."""

    name: str
    items: int | None
    categories: int | None = None
    step: Decimal = Decimal(1)


KNOWN: tuple[tuple[re.Pattern[str], Known], ...] = (
    (
        re.compile(r"bfcl.{0,16}mu\w+[ _-]?turn[ _-]?base", re.I),
        Known("bfcl/multi_turn_base", 200, 4),
    ),
    (re.compile(r"gsm-?8k", re.I), Known("gsm8k", 1319)),
    (re.compile(r"math-?500", re.I), Known("math500", 500)),
    (re.compile(r"amc-?(?:20)?23", re.I), Known("amc23", 40)),
    (re.compile(r"aime-?(?:20)?2[45]", re.I), Known("aime", 30)),
    (re.compile(r"olympiad-?bench", re.I), Known("olympiadbench", 675)),
    (re.compile(r"(?:ok-?|text)?vqa(?:v2)?", re.I), Known("vqa", None, step=Decimal("0.1"))),
    (re.compile(r"human-?eval(?!\+)", re.I), Known("humaneval", 164)),
)
"""Sizes of the test sets as their authors publish them; VQA accuracy is 0, 0.3, 0.6, 0.9 or 1."""


def known(text: str) -> list[Known]:
    """The benchmarks that a text names, each once."""
    return list(dict.fromkeys(entry for pattern, entry in KNOWN if pattern.search(text)))
