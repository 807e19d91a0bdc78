"""BFCL's checker in this process: the same verdicts as in its own, and no trace left behind."""

import copy
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from assay.data.episode import Completion
from assay.data.row import Row, ToolCall
from assay.data.wheels import wheel_directory
from assay.tasks.tools.checker import ast_check
from assay.tasks.tools.parsing import call_text
from assay.tasks.tools.rewards import ast, ast_error
from assay.tasks.tools.single_turn import CATEGORIES, entries

Calls = list[dict[str, dict]]


def decoded(row: Row) -> Calls:
    return [{c.name: dict(c.arguments)} for c in row.messages[-1].tool_calls]


def tool_calls(calls: Calls) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(name, arguments) for call in calls for name, arguments in call.items())


def change_value(value, rng: random.Random):
    """Another value, often of another type, as models get them wrong."""
    choices = [str(value), [value], None, True, {"a": value}, -1, 2.5, ""]
    if isinstance(value, str):
        choices += [value.upper(), value + " x", value.replace(" ", ", ")]
    if isinstance(value, int):
        choices += [value + 1, float(value)]
    if isinstance(value, list):
        choices += [value[::-1], value + value, value[:-1]]
    if isinstance(value, dict):
        choices += [dict(list(value.items())[1:]), {**value, "more": 1}]
    return rng.choice(choices)


def mutate(calls: Calls, rng: random.Random) -> Calls:
    """One change to one call, or to the list of calls."""
    calls = copy.deepcopy(calls)
    call = rng.choice(calls)
    name, arguments = next(iter(call.items()))
    kind = rng.choice(["value", "value", "drop", "add", "rename", "repeat", "remove", "reorder"])
    if kind == "value" and arguments:
        key = rng.choice(sorted(arguments))
        arguments[key] = change_value(arguments[key], rng)
    elif kind == "drop" and arguments:
        del arguments[rng.choice(sorted(arguments))]
    elif kind == "add":
        arguments["unheard_of"] = 1
    elif kind == "rename":
        calls[calls.index(call)] = {name + "_": arguments}
    elif kind == "repeat":
        calls.append(copy.deepcopy(call))
    elif kind == "remove" and len(calls) > 1:
        calls.remove(call)
    elif kind == "reorder":
        calls.reverse()
    return calls


@pytest.fixture(scope="module")
def cases() -> dict[str, list[tuple[int, Row, Calls]]]:
    """For each category: gold answers, and two mutations of each."""
    rng = random.Random(7)
    found = {}
    for category in CATEGORIES:
        usable = [
            (i, row) for i, row in enumerate(entries(category)) if "no_target" not in row.extra
        ]
        found[category] = [(i, row, decoded(row)) for i, row in usable]
        found[category] += [(i, row, mutate(decoded(row), rng)) for i, row in usable * 2]
    return found


@pytest.fixture(scope="module")
def upstream(cases, tmp_path_factory) -> dict[str, list[tuple[bool, str]]]:
    """What upstream says of all cases, in a process that never saw this package."""
    program = Path(__file__).with_name("upstream_checker.py")
    scratch = tmp_path_factory.mktemp("bfcl")
    sent = {category: [(i, calls) for i, _, calls in found] for category, found in cases.items()}
    done = subprocess.run(
        [sys.executable, program, wheel_directory("bfcl-eval"), scratch],
        input=json.dumps(sent),
        capture_output=True,
        text=True,
        check=True,
    )
    return {c: [(v, e) for v, e in verdicts] for c, verdicts in json.loads(done.stdout).items()}


@pytest.mark.parametrize("category", CATEGORIES)
def test_score_and_error_of_the_written_answer_are_upstreams(category, cases, upstream):
    for (_, row, calls), (valid, error) in zip(cases[category], upstream[category], strict=True):
        completion = Completion(call_text(tool_calls(calls)))
        assert ast(row, completion).value == float(valid), (row.id, calls)
        assert ast_error(row, completion) == error, (row.id, calls)


def test_mutations_are_both_accepted_and_refused_for_many_reasons(upstream):
    verdicts = [verdict for verdicts in upstream.values() for verdict in verdicts]
    wrong = [error for valid, error in verdicts if not valid]
    assert len(set(wrong)) >= 12
    assert 0.3 < len(wrong) / len(verdicts) < 0.7


def test_message_says_what_was_wrong():
    row = entries("simple_python")[0]
    result = ast_check(row, [ToolCall("calculate_triangle_area", {"base": 10})])
    assert result.error_type == "simple_function_checker:missing_required"
    assert "'height'" in result.message


def test_a_fault_inside_the_checker_is_raised_and_not_scored():
    row = entries("simple_python")[0]
    broken = Row(row.id, row.messages, ({"name": "f"},), row.gold, extra=row.extra)
    with pytest.raises(KeyError):
        ast(broken, Completion(call_text(row.messages[-1].tool_calls)))


TRACES = """
import os, sys
path, environment = list(sys.path), dict(os.environ)
from assay.tasks.tools.single_turn import entries
assert len(entries("live_parallel")) == 16
assert sys.path == path and dict(os.environ) == environment
print([name for name in sys.modules if name.startswith("bfcl")])
"""


def test_loading_leaves_no_module_path_variable_or_file(tmp_path):
    wheel_directory("bfcl-eval")
    done = subprocess.run(
        [sys.executable, "-c", TRACES], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout.strip() == "[]"
    assert list(tmp_path.iterdir()) == []
    wheel = wheel_directory("bfcl-eval")
    assert sorted(path.name for path in wheel.iterdir() if path.suffix != ".dist-info") == [
        "bfcl_eval"
    ]


def test_an_installed_bfcl_eval_stays_what_it_was(monkeypatch):
    from assay.tasks.tools import checker

    installed = object()
    monkeypatch.setitem(sys.modules, "bfcl_eval", installed)
    checker.upstream_module.cache_clear()
    assert (
        ast_check(entries("multiple")[0], ()).error_type == "multiple_function_checker:wrong_count"
    )
    assert sys.modules["bfcl_eval"] is installed


def test_upstreams_checker_evaluates_nothing():
    folder = wheel_directory("bfcl-eval") / "bfcl_eval"
    files = [*(folder / "eval_checker/ast_eval").rglob("*.py"), *folder.glob("constants/enums.py")]
    assert len(files) >= 4
    for file in [*files, folder / "constants/type_mappings.py"]:
        source = file.read_text()
        for word in ("eval(", "exec(", "__import__", "subprocess", "importlib", "pickle", "open("):
            assert word not in source, (file, word)
