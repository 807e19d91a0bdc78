"""The worker's side of `simulated`: runs the calls of generated tasks on BFCL's simulators."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from assay.labs.tools.simulators import World, judge

EMPTY = ("None", "{}", "[]", "")
ERROR = ("Error during execution", '{"error"', "[{'error'", "{'error'")


def prove_all(tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`prove` of each task; a task has `entry`, `functions` and `truth`."""
    return [prove(**task) for task in tasks]


def prove(
    entry: Mapping[str, Any], functions: Sequence[str], truth: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """The `results` of a task's calls by turn, and the `problem` with it; "" where there is none.

    Every call must either change a simulator's public state or have a result, and none may fail;
    the calls themselves must pass the checker, and no calls at all must not.
    """
    world = World(entry, functions)
    results: list[list[str]] = []
    problem = ""
    for turn in truth:
        found = []
        for call in turn:
            before = state(world)
            found += world.execute([call])
            problem = problem or fault(call, found[-1], before == state(world))
        results.append(found)
    right = judge(entry, functions, truth, [[[call] for call in turn] for turn in truth])
    silent = judge(entry, functions, truth, [[] for _ in truth])
    if not right["valid"]:
        problem = problem or f"its own calls fail the checker: {right['error_type']}"
    if silent["valid"]:
        problem = problem or "saying nothing passes the checker"
    return {"results": results, "problem": problem}


def fault(call: str, result: str, unchanged: bool) -> str:
    """What is wrong with one call and its result."""
    if result.startswith(ERROR):
        return f"{call} fails: {result}"
    if unchanged and result in EMPTY:
        return f"{call} does and says nothing"
    return ""


def state(world: World) -> dict[str, dict[str, Any]]:
    """The public attributes of every simulator, as the checker compares them."""
    return {
        name: {k: copy.deepcopy(v) for k, v in vars(instance).items() if not k.startswith("_")}
        for name, instance in world.instances.items()
    }
