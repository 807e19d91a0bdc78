"""The worker's side of BFCL's multi-turn entries: its simulators, and its checker over them.

Imported in worker processes only, which have the wheel on their path; the lab's side is
`simulation`. Every request brings the entry and all calls so far, and is answered on fresh
simulators, so nothing of one request can reach another. Upstream's executor, which evaluates text,
is never called: a call is read again by `parsing` and dispatched by name, and the checker runs
over this executor. Two consequences differ from upstream: a call that is no literal call is not
executed, and text inside an argument that looks like a call (`echo(content="see ls()")`) is left
alone, where upstream writes the simulator's name into it.
"""

import copy
import importlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from assay.labs.tools.parsing import read_call

_EVAL = "bfcl_eval.eval_checker.multi_turn_eval"
_config = importlib.import_module("bfcl_eval.constants.executable_backend_config")
_checker = importlib.import_module(f"{_EVAL}.multi_turn_checker")

CLASSES = {
    name: getattr(importlib.import_module(module), name)
    for name, module in _config.CLASS_FILE_PATH_MAPPING.items()
    if name not in _config.OMIT_STATE_INFO_CLASSES  # they need packages and the network
}
"""The simulators of the multi-turn categories by name."""

Entry = Mapping[str, Any]
Turn = Sequence[Sequence[str]]
"""The steps of one turn, each a list of calls as Python."""


class World:
    """Fresh simulators of one entry."""

    def __init__(self, entry: Entry, functions: Collection[str]):
        """`functions` are the names that may be called."""
        self.functions = frozenset(functions)
        self.instances = {name: _fresh(name, entry) for name in entry["involved_classes"]}

    def execute(self, calls: Sequence[str]) -> list[str]:
        """What each call gives, as upstream's executor words it."""
        return [self._result(call) for call in calls]

    def _result(self, source: str) -> str:
        try:
            call = read_call(source)
        except ValueError as refused:
            return f"Error during execution: refused: {refused}"
        try:
            method = self._method(call.name)
            return _worded(method(*call.positional, **call.named))
        except Exception as error:  # the simulators' own; a model has to live with it
            return f"Error during execution: {error}"

    def _method(self, name: str) -> Any:
        # As upstream: where two simulators share a name, the last one has it.
        for instance in reversed(self.instances.values()):
            if name in self.functions and callable(getattr(instance, name, None)):
                return getattr(instance, name)
        raise NameError(f"name '{name}' is not defined")


def _fresh(name: str, entry: Entry) -> Any:
    instance = CLASSES[name]()
    if name not in _config.STATELESS_CLASSES:
        scenario = copy.deepcopy(entry["initial_config"].get(name, {}))
        instance._load_scenario(scenario, long_context=is_long(entry["id"]))
    return instance


def is_long(entry_id: str) -> bool:
    """Whether the simulators hold the long states: upstream reads it off the entry's id."""
    category = entry_id.rsplit("_", 1)[0]
    return "long_context" in category or "composite" in category


def _worded(value: Any) -> str:
    """As upstream's executor words a value."""
    if type(value) is str:
        return value
    if type(value) is dict:
        try:
            return json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            return str(value)
    return str(value)


def run(
    entry: Entry, functions: Sequence[str], done: Sequence[str], calls: Sequence[str]
) -> list[str]:
    """What `calls` give after the calls `done`."""
    world = World(entry, functions)
    world.execute(done)
    return world.execute(calls)


def judge(
    entry: Entry,
    functions: Sequence[str],
    truth: Sequence[Sequence[str]],
    turns: Sequence[Turn],
) -> dict[str, Any]:
    """Upstream's verdict over the calls of `turns`, and what it leaves out.

    `valid`, `error_type` and `message` are upstream's, "" when valid; fewer or more turns than the
    truth has are its "multi_turn:force_terminated". `checked` counts the turns that have a truth,
    `passed` those of them before the first failure, where the last turn of a terminated dialogue
    has failed. `final_state`: all simulators end as the truth leaves them (upstream's state check).
    """
    terminated = len(turns) != len(truth)
    whole = turns[: min(len(turns) - 1, len(truth))] if terminated else turns
    verdict, failed = _check(entry, functions, truth[: len(whole)], whole)
    passed = truth[: len(whole) if failed is None else failed]
    if terminated:
        verdict = {
            "valid": False,
            "error_type": "multi_turn:force_terminated",
            "error_message": f"{len(turns)} turns, not {len(truth)}",
        }
    own, right = World(entry, functions), World(entry, functions)
    own.execute([call for turn in turns for step in turn for call in step])
    right.execute([call for turn in truth for call in turn])
    return {
        "valid": verdict["valid"],
        "error_type": verdict.get("error_type", ""),
        "message": verdict.get("error_message", ""),
        "checked": sum(map(bool, truth)),
        "passed": sum(map(bool, passed)),
        "final_state": _checker.state_checker(own.instances, right.instances)["valid"],
    }


def _check(
    entry: Entry, functions: Sequence[str], truth: Sequence[Sequence[str]], turns: Sequence[Turn]
) -> tuple[dict[str, Any], int | None]:
    """Upstream's verdict, and the index of the turn that it stopped at; None where it is valid."""
    worlds: dict[str, World] = {}
    truths = 0

    def execute(func_call_list: Sequence[str], model_name: str, **_: Any) -> tuple[list[str], Any]:
        nonlocal truths
        truths += model_name.endswith("_ground_truth")
        if model_name not in worlds:
            worlds[model_name] = World(entry, functions)
        world = worlds[model_name]
        return world.execute(func_call_list), world.instances

    # In this request's own process: the name that the checker's module gave to upstream's executor.
    vars(_checker)["execute_multi_turn_func_call"] = execute
    verdict = _checker.multi_turn_checker(turns, truth, entry, "", "model")
    # The truth of a turn is executed once, right before the turn is judged.
    return verdict, None if verdict["valid"] else truths - 1
