"""What the multi-turn tests run in a worker: many requests at once, and upstream's own executor.

Upstream's executor evaluates text, so it runs here, and only on upstream's own calls.
"""

import importlib
from collections.abc import Sequence
from typing import Any

from assay.labs.tools.simulators import World, is_long, judge

_utils = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils")


def judge_all(requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The verdict of each request, one after the other in this one process."""
    return [judge(**request) for request in requests]


def both_executors(
    worlds: Sequence[dict[str, Any]], calls: Sequence[list[str]]
) -> list[tuple[list[str], list[str]]]:
    """What upstream's executor says to the calls of each entry, and what ours says."""
    return [
        (_upstream(world["entry"], said), World(**world).execute(said))
        for world, said in zip(worlds, calls, strict=True)
    ]


def _upstream(entry: dict[str, Any], calls: list[str]) -> list[str]:
    results, _ = _utils.execute_multi_turn_func_call(
        calls,
        entry["initial_config"],
        entry["involved_classes"],
        "a-model",
        entry["id"],
        long_context=is_long(entry["id"]),
    )
    return results
