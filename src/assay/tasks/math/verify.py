"""Whether two mathematical answers are equal, by math-verify alone; `judging` has the rules around.

math-verify's own timeouts rest on SIGALRM, which fails off the main thread, so they are off here;
the worker's deadline takes their place. Never called in the lab's own process.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

EXTRACTORS = {
    # Priority 0: a boxed expression is taken before any other.
    "latex": LatexExtractionConfig(boxed_match_priority=0),
    "expr": ExprExtractionConfig(),
}


def compare(
    gold: str,
    answer: str,
    match_types: Sequence[str] = ("latex", "expr"),
    precision: int = 6,
    strict: bool = True,
    allow_set_relation_comp: bool = False,
) -> dict[str, Any]:
    """{"equal", "gold_read", "answer_read"}: the verdict, and whether each text held an answer.

    `match_types` names what is looked for; the other options are math-verify's. Not symmetric: the
    gold answer comes first. Raises whatever math-verify raises when no reading of the two is equal
    and some comparison broke off, for then it is not known that they differ.
    """
    targets = [EXTRACTORS[name] for name in match_types]
    golds = parse(gold, targets, parsing_timeout=None, raise_on_error=True)  # type: ignore[arg-type]
    answers = parse(answer, targets, parsing_timeout=None, raise_on_error=True)  # type: ignore[arg-type]
    options = {
        "float_rounding": precision,
        "strict": strict,
        "allow_set_relation_comp": allow_set_relation_comp,
    }
    equal = _any_equal(golds, answers, options)
    return {"equal": equal, "gold_read": bool(golds), "answer_read": bool(answers)}


def both_orders(gold: str, answer: str) -> tuple[bool | None, bool | None]:
    """The verdict with the arguments as math-verify has them, (gold, answer), and with them
    swapped; None where the gold cannot be read or all comparisons of that order broke off."""
    targets = list(EXTRACTORS.values())
    golds = parse(gold, targets, parsing_timeout=None, raise_on_error=True)  # type: ignore[arg-type]
    answers = parse(answer, targets, parsing_timeout=None, raise_on_error=True)  # type: ignore[arg-type]
    if not golds:
        return None, None
    return _verdict(golds, answers), _verdict(answers, golds)


def _verdict(golds: list[Any], answers: list[Any]) -> bool | None:
    try:
        return _any_equal(golds, answers, {})
    except Exception:
        return None


def expression(text: str) -> Any:
    """What math-verify reads a text as, its first reading; None where that is nothing."""
    targets = list(EXTRACTORS.values())
    found = parse(text, targets, parsing_timeout=None, raise_on_error=True)  # type: ignore[arg-type]
    return found[0] if found and not isinstance(found[0], str) else None


def is_read(text: str) -> bool:
    """Whether math-verify reads anything in a text, be it as a text."""
    targets = list(EXTRACTORS.values())
    return bool(parse(text, targets, parsing_timeout=None, raise_on_error=True))  # type: ignore[arg-type]


def _any_equal(golds: list[Any], answers: list[Any], options: dict[str, Any]) -> bool:
    broken: Exception | None = None
    for one, other in product(golds, answers):
        try:
            if verify(one, other, timeout_seconds=None, raise_on_error=True, **options):
                return True
        except Exception as error:
            broken = broken or error
    if broken is not None:
        raise broken
    return False


# Compiles math-verify's patterns and builds its grammar once in the worker, not in every call.
compare(r"$\frac{1}{2}$", r"\boxed{0.5}")
