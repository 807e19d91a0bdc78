"""Whether two mathematical answers are equal, by math-verify alone; `judging` has the rules around.

math-verify's own timeouts rest on SIGALRM, which fails off the main thread, so they are off here;
the worker's deadline takes their place. Never called in the lab's own process.
"""

from itertools import product
from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

# Priority 0: a boxed expression is taken before any other.
EXTRACTORS = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())


def both_orders(gold: str, answer: str) -> tuple[bool | None, bool | None]:
    """The verdict with the arguments as math-verify has them, (gold, answer), and with them
    swapped; None where the gold cannot be read, or no reading of that order is equal and some
    comparison broke off, for then it is not known that they differ."""
    golds, answers = _read(gold), _read(answer)
    if not golds:
        return None, None
    return _verdict(golds, answers), _verdict(answers, golds)


def _verdict(golds: list[Any], answers: list[Any]) -> bool | None:
    broken = False
    for one, other in product(golds, answers):
        try:
            if verify(one, other, timeout_seconds=None, raise_on_error=True):
                return True
        except Exception:
            broken = True
    return None if broken else False


def _read(text: str) -> list[Any]:
    return parse(text, EXTRACTORS, parsing_timeout=None, raise_on_error=True)  # type: ignore[arg-type]


def is_read(text: str) -> bool:
    """Whether math-verify reads anything in a text, be it as a text."""
    return bool(_read(text))


# Compiles math-verify's patterns and builds its grammar once in the worker, not in every call.
both_orders(r"$\frac{1}{2}$", r"\boxed{0.5}")
