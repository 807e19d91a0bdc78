"""A program: what AFlow's own operators give for scripted replies of a model.

    python upstream_aflow.py < {"folder": FOLDER, "cases": [...]}

FOLDER is a checkout of FoundationAgents/AFlow at 364399e. A case is {"operator", "arguments",
"replies", "tests"}; for each a line of {"result", "raised", "prompts"} is printed as one list. What
AFlow imports and does not need here (openai, tree_sitter, tenacity's waits) is replaced. Of the
order of MdEnsemble's solutions nothing is left to chance: they are not shuffled. Its Programmer
reads the key "code" of a reply whose code its own formatter calls "response", so that it always
says "No code generated"; here the reply has both. Its log, which fails where it refuses an import,
is silent.
"""

import asyncio
import contextlib
import io
import json
import os
import sys
import tempfile
from importlib import import_module
from types import ModuleType
from typing import Any


def replace_modules() -> None:
    """Stand-ins for what AFlow imports."""
    for name, attributes in {
        "openai": {"AsyncOpenAI": object},
        "tree_sitter": {"Node": object},
        "tenacity": {
            "retry": lambda **_: lambda function: function,
            "stop_after_attempt": lambda _: None,
            "wait_fixed": lambda _: None,
        },
    }.items():
        module = ModuleType(name)
        module.__dict__.update(attributes)
        sys.modules[name] = module


async def outcome(case: dict[str, Any]) -> dict[str, Any]:
    """What one operator call gives."""
    aflow: Any = import_module("scripts.operators")
    llm = import_module("scripts.async_llm").AsyncLLM
    prompts: list[str] = []

    class Scripted(llm):
        """Answers by the script."""

        def __init__(self) -> None:
            pass

        async def __call__(self, prompt: str) -> str:
            prompts.append(prompt)
            return case["replies"][len(prompts) - 1]

    class Programmer(aflow.Programmer):
        """With the code under its own key."""

        async def _fill_node(self, *given: Any, **named: Any) -> dict[str, Any]:
            found = await super()._fill_node(*given, **named)
            return {**found, "code": found.get("response")}

    aflow.logger.info = lambda *_: None
    aflow.random.shuffle = lambda _: None
    aflow.extract_test_cases_from_jsonl = lambda _: case["tests"]
    kind = Programmer if case["operator"] == "Programmer" else getattr(aflow, case["operator"])
    try:
        result = await kind(Scripted())(**case["arguments"])
    except Exception as error:
        return {"result": None, "raised": type(error).__name__, "prompts": prompts}
    return {"result": result, "raised": "", "prompts": prompts}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    replace_modules()
    sys.path.insert(0, asked["folder"])
    os.chdir(tempfile.mkdtemp())  # it writes tester.txt and logs where it runs
    with contextlib.redirect_stdout(io.StringIO()):
        found = [asyncio.run(outcome(case)) for case in asked["cases"]]
    print(json.dumps(found))
