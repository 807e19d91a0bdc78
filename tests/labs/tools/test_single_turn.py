"""BFCL categories as rows: every entry, the right target, and every row without one counted."""

import subprocess
import sys

import pytest

from assay.data.episode import Completion
from assay.data.row import Row
from assay.data.wheels import wheel_directory
from assay.labs.tools import rewards
from assay.labs.tools.multi_turn import HINT, MULTI_TURN
from assay.labs.tools.parsing import call_text
from assay.labs.tools.rewards import RELEVANCE, ast, ast_check
from assay.labs.tools.single_turn import CATEGORIES, entries, read_bfcl
from tests.labs.tools.upstream import loaded

PREFIX = "no possible answer passes the checker: simple_function_checker:"
MISSES = {
    "live_simple": {"missing_required": ("live_simple_106-63-0", "live_simple_112-68-0")},
    "live_multiple": {
        "unexpected_param": ("live_multiple_862-181-3",),
        "missing_required": ("live_multiple_964-207-0",),
    },
}
SIZES = {
    "simple_python": 400,
    "multiple": 200,
    "parallel": 200,
    "parallel_multiple": 200,
    "live_simple": 258,
    "live_multiple": 1053,
    "live_parallel": 16,
    "live_parallel_multiple": 24,
}


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_entry_is_kept_or_dropped_with_its_reason(category):
    loaded = read_bfcl(category)
    expected = {PREFIX + reason: ids for reason, ids in MISSES.get(category, {}).items()}
    assert loaded.dropped == expected
    lost = sum(map(len, expected.values()))
    assert len(entries(category)) == SIZES[category] == len(loaded.rows) + lost


LOADED = (*CATEGORIES, *RELEVANCE)


@pytest.mark.parametrize("category", LOADED)
def test_rows_are_what_upstreams_loader_gives_and_name_their_line(category):
    upstream, truths = loaded(*LOADED)[category]
    rows = entries(category)
    assert [row.gold for row in rows] == (truths or [None] * len(rows))
    for number, (row, entry) in enumerate(zip(rows, upstream, strict=True), start=1):
        assert (row.id, list(row.tools)) == (entry["id"], entry["function"])
        assert row.origin == f"BFCL_v4_{category}.json:{number}"
        assert all(doc["description"].endswith(HINT) for doc in row.tools)
        asked = [{"role": m.role, "content": m.content} for m in row.prompt]
        assert asked == entry["question"][0]
    assert len({row.id for row in rows}) == len(rows)


@pytest.mark.parametrize("category", MULTI_TURN)
def test_rows_are_what_upstreams_loader_gives(category):
    upstream, truths = loaded(*MULTI_TURN)[category]
    rows = entries(category)
    assert len(rows) == len(upstream) == 200
    for row, entry, truth in zip(rows, upstream, truths, strict=True):
        entry = dict(entry)
        assert list(row.tools) == entry.pop("function")
        assert row.extra == {"category": category, "entry": entry}
        assert row.id == entry["id"]
        assert [{"role": m.role, "content": m.content} for m in row.messages] == entry["question"][
            0
        ]
        assert row.gold == truth
        assert len(row.gold) == len(entry["question"])


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

    installed = object()
    monkeypatch.setitem(sys.modules, "bfcl_eval", installed)
    rewards._checker.cache_clear()
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
