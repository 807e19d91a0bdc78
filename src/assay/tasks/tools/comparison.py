"""Two ways to compare lists of calls: by JSON value, and as the published rewards do.

Both ignore the order of the calls and the order of keys, and count how often a call occurs.

  values      strict (`same_calls`)   as reported (`same_as_reported`)
  1, 1.0      differ                  equal
  1, True     differ                  equal
  1, "1"      differ                  differ
  [1, 2],[2, 1]  differ               equal
  [1, 1],[1]  differ                  equal
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from assay.data.row import ToolCall
from assay.tasks.tools.parsing import NotACallError, blocks, decode


def same_calls(first: Iterable[ToolCall], second: Iterable[ToolCall]) -> bool:
    """Whether both hold the same calls: equal names and equal JSON values of equal types."""
    return Counter(map(_canonical, first)) == Counter(map(_canonical, second))


def same_as_reported(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether two lists of decoded blocks are equal once dicts and lists are frozen sets.

    Source: hardtry, src/hardtry/rl/reward_fn.py, compare_parsed_content.
    """
    return Counter(map(_frozen, first)) == Counter(map(_frozen, second))


def reported_blocks(text: str) -> list[Any]:
    """The blocks of `text` decoded; one that does not decode is kept as text (same source)."""
    return [_decoded_or_text(body) for body in blocks(text)[0]]


def _canonical(call: ToolCall) -> str:
    return json.dumps([call.name, dict(call.arguments)], sort_keys=True)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((key, _frozen(item)) for key, item in value.items())
    return frozenset(map(_frozen, value)) if isinstance(value, list) else value


def _decoded_or_text(body: str) -> Any:
    try:
        return decode(body)
    except NotACallError:
        return body
