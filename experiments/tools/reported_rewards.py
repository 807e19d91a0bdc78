"""The rewards of report 000 with its comparison and parser, thoughts included.

Blocks that do not decode are compared as text, values as frozen sets, so that [[1, 2], [3]] is
[[3], [2, 1]] and 1 is true. Rows whose gold answer calls nothing never score. `tools.fine_grained`
and its like are the same rewards without these faults.

Source: hardtry, src/hardtry/rl (reward_fn.py, reward_fn_grpo.py, reward_fn_egpo.py).
"""

from collections import Counter
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.labs.tools import rewards
from assay.labs.tools.parsing import blocks, decode


def fine_grained(row: Row, completion: Completion) -> Reward:
    """0, 0.1 or 1.1."""
    return rewards.fine_grained(row, completion, judge)


def strict_binary(row: Row, completion: Completion) -> Reward:
    """0 or 1."""
    return rewards.strict_binary(row, completion, judge)


def strict_binary_think(row: Row, completion: Completion) -> Reward:
    """0 or 1, by what follows the reasoning."""
    return rewards.strict_binary_think(row, completion, judge)


fine_grained.maximum = 1.0 + rewards.FORMAT_BONUS  # pyright: ignore[reportFunctionMemberAccess]


def judge(row: Row, text: str) -> tuple[bool, bool]:
    """Format and calls as the report's rewards judge them."""
    answer, gold = decoded(text), decoded(rewards.gold_text(row))
    alike = Counter(map(frozen, answer)) == Counter(map(frozen, gold))
    return rewards.both_tags(text), bool(answer) and alike


def decoded(text: str) -> list[Any]:
    """The blocks of a text; one that does not decode is kept as text."""
    return [decoded_or_text(body) for body in blocks(text)[0]]


def decoded_or_text(body: str) -> Any:
    """What a block holds, or its text."""
    try:
        return decode(body)
    except ValueError:
        return body


def frozen(value: Any) -> Any:
    """Dicts and lists as frozen sets (`compare_parsed_content`)."""
    if isinstance(value, dict):
        return frozenset((key, frozen(item)) for key, item in value.items())
    return frozenset(map(frozen, value)) if isinstance(value, list) else value
