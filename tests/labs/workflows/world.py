"""Runs programs in the world that the sandbox gives them, without the sandbox: for tests only.

    python -m tests.labs.workflows.world < programs.json

Reads a list of [source, entry point] and prints the list of results. The executor says "7", and
False where a verdict is asked for. The process is not fit for anything else afterwards.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from assay.labs.workflows.inside import OperatorError, run_workflow
from assay.labs.workflows.programs.operators import OPERATORS, checked_arguments, described


async def ask(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A result with all keys, or the failure of wrong arguments."""
    operator = OPERATORS[name]
    try:
        checked_arguments(operator, arguments)
    except OperatorError as failed:
        return {"error": failed.kind, "why": failed.why, "usage": {}}
    result = {key: False if kind == "bool" else "7" for key, kind in operator.returns.items()}
    return {"result": result, "usage": {}}


if __name__ == "__main__":
    results = [
        run_workflow(ask, source, "What?", entry_point, described())
        for source, entry_point in json.load(sys.stdin)
    ]
    print(json.dumps(results))
