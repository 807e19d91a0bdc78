"""BFCL benchmarks: every entry scored by BFCL's checker, with options that say what they change;
categories as rows."""

import random
import subprocess
import sys

import pytest

from assay.data.episode import Completion
from assay.data.renderings import hermes
from assay.data.row import Row, ToolCall
from assay.data.tools import function_names
from assay.data.wheels import wheel_directory
from assay.errors import InputError
from assay.labs.tools import rewards
from assay.labs.tools.multi_turn import HINT, MULTI_TURN
from assay.labs.tools.parsing import call_text
from assay.labs.tools.rewards import RELEVANCE, ast, ast_check, relevance
from assay.labs.tools.single_turn import CATEGORIES, entries, read_bfcl
from assay.labs.tools.task import TASK
from assay.tasks.task import BenchmarkOptions, benchmark
from tests.labs.tools.upstream import loaded


def made(name: str = "bfcl/simple_python", **options):
    return benchmark(TASK, name, BenchmarkOptions(options))


def gold(item) -> str:
    return hermes.assistant_text(TASK.target(item))


def total(built, answers) -> float:
    return sum(
        built.score(item, Completion(text)).value
        for item, text in zip(built.items, answers, strict=True)
    )


def test_gold_answers_score_400_of_400_and_negative_controls_nothing():
    built = made()
    golds = [gold(item) for item in built.items]
    names = [function_names(item.tools)[0] for item in built.items]
    swapped = [
        text.replace(f'"{name}"', '"other"', 1) for text, name in zip(golds, names, strict=True)
    ]
    shuffled = random.Random(3).sample(golds, len(golds))
    assert total(built, golds) == 400
    assert total(built, [""] * 400) == 0
    assert total(built, swapped) == 0
    assert total(built, [f"{text}\n{text}" for text in golds]) == 0
    # A shuffled answer may meet its own question, or one of the same wording.
    assert total(built, shuffled) <= 3


@pytest.mark.parametrize("name", [f"bfcl/{category}" for category in CATEGORIES])
def test_every_benchmark_knows_its_checker_and_its_gold(name):
    built = made(name)
    assert built.name == name
    assert built.checker == "bfcl-eval==2026.3.23 ast_checker, parser bfcl"
    assert built.options == {"parser": "bfcl"}
    item = built.items[0]
    assert built.score(item, Completion(gold(item))).value == built.max_score == 1
    assert built.classify(item, Completion(gold(item))) == ""
    assert built.classify(item, Completion("I do not know")).endswith(":wrong_count")
    strict = made(name, parser="strict")
    assert strict.classify(item, Completion("I do not know")) == "no_call"
    assert strict.checker == "bfcl-eval==2026.3.23 ast_checker, parser strict"


def test_wrong_options_are_refused_in_one_line():
    with pytest.raises(InputError, match=r"unknown benchmark option 'parse'.*'parser'"):
        made(parse="strict")
    with pytest.raises(InputError, match=r"unknown parser 'strickt'.*'strict'"):
        made(parser="strickt")


SIZES = {"irrelevance": 240, "live_irrelevance": 884, "live_relevance": 16}
CALL = call_text([ToolCall("anything", {})])
BARE = '{"name": "anything", "arguments": {}}'


@pytest.mark.parametrize("category", RELEVANCE)
def test_every_entry_is_an_item_and_one_answer_is_right_for_all(category):
    made = benchmark(TASK, f"bfcl/{category}", BenchmarkOptions())
    assert len(made.items) == SIZES[category] == len({item.id for item in made.items})
    called, silent = (
        sum(made.score(item, Completion(text)).value or 0 for item in made.items)
        for text in (CALL, "There is no function for this.")
    )
    whole = SIZES[category]
    assert (called, silent) == ((whole, 0) if category == "live_relevance" else (0, whole))
    assert made.checker == "bfcl-eval==2026.3.23 relevance rule, parser bfcl"
    assert made.items[0].tools and made.items[0].gold is None


BROKEN = ["<tool_call>", "<tool_call>\n{}\n</tool_call>", "<tool_call>\n[]\n</tool_call>"]


@pytest.mark.parametrize("text", ["", "no", BARE, f"<think>{CALL}</think>no", *BROKEN])
def test_a_broken_call_is_none_to_bfcl_and_earns_nothing_as_a_reward(text):
    made = benchmark(TASK, "bfcl/irrelevance", BenchmarkOptions())
    item, wanting = made.items[0], entries("live_relevance")[0]
    assert made.score(item, Completion(text)).value == 1
    assert relevance(item, Completion(text)).value == (text not in BROKEN)
    assert relevance(wanting, Completion(text)).value == 0


PREFIX = "no possible answer passes the checker: simple_function_checker:"
MISSES = {
    "live_simple": {"missing_required": ("live_simple_106-63-0", "live_simple_112-68-0")},
    "live_multiple": {
        "unexpected_param": ("live_multiple_862-181-3",),
        "missing_required": ("live_multiple_964-207-0",),
    },
}


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_entry_is_kept_or_dropped_with_its_reason(category):
    loaded = read_bfcl(category)
    expected = {PREFIX + reason: ids for reason, ids in MISSES.get(category, {}).items()}
    assert loaded.dropped == expected
    lost = sum(map(len, expected.values()))
    assert len(entries(category)) == len(loaded.rows) + lost


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
        asked = [{"role": m.role, "content": m.content} for m in row.messages]
        assert asked == entry["question"][0]
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
    wheel = wheel_directory("bfcl-eval").iterdir()
    assert [path.name for path in wheel if path.suffix != ".dist-info"] == ["bfcl_eval"]


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
