"""BFCL's checker in this process: the same verdicts as in its own, and no trace left behind."""

import subprocess
import sys

import pytest

from assay.data.episode import Completion
from assay.data.row import Row, ToolCall
from assay.data.wheels import wheel_directory
from assay.labs.tools.checker import ast_check
from assay.labs.tools.parsing import call_text
from assay.labs.tools.rewards import ast
from assay.labs.tools.single_turn import entries


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
from assay.labs.tools.single_turn import entries
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
    from assay.labs.tools import checker

    installed = object()
    monkeypatch.setitem(sys.modules, "bfcl_eval", installed)
    checker._checker.cache_clear()
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
