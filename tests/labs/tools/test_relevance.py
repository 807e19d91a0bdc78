"""Relevance categories: whether anything is called, by upstream's rule."""

import pytest

from assay.data.episode import Completion
from assay.data.row import ToolCall
from assay.errors import InputError
from assay.labs.tools.parsing import call_text
from assay.labs.tools.rewards import RELEVANCE, ast, relevance
from assay.labs.tools.single_turn import entries
from assay.labs.tools.task import TASK
from assay.tasks.task import BenchmarkOptions, benchmark

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


@pytest.mark.parametrize("broken", BROKEN[:2])
def test_a_call_beside_a_broken_one_is_not_nothing(broken):
    made = benchmark(TASK, "bfcl/irrelevance", BenchmarkOptions())
    item, text = made.items[0], Completion(f"{CALL}\n{broken}")
    assert relevance(item, text).value == 0
    if broken == "<tool_call>":
        assert made.score(item, text).value == 0
        assert made.classify(item, text) == "irrelevance_error:decoder_success"
    strict = benchmark(TASK, "bfcl/irrelevance", BenchmarkOptions({"parser": "strict"}))
    assert strict.score(item, text).value == 0
    assert strict.classify(item, text) in ("unclosed_call", "missing_name")


def test_errors_have_upstreams_names_and_right_answers_none():
    for category, text, error in (
        ("irrelevance", CALL, "irrelevance_error:decoder_success"),
        ("live_irrelevance", CALL, "irrelevance_error:decoder_success"),
        ("live_relevance", "no", "relevance_error:decoder_failed"),
        ("live_relevance", CALL, ""),
        ("irrelevance", "no", ""),
    ):
        made = benchmark(TASK, f"bfcl/{category}", BenchmarkOptions())
        assert made.classify(made.items[0], Completion(text)) == error


def test_rewards_of_other_categories_refuse_these_rows_and_this_one_refuses_theirs():
    with pytest.raises(InputError, match="row irrelevance_0 has no possible answers"):
        ast(entries("irrelevance")[0], Completion(""))
    with pytest.raises(InputError, match="row multi_turn_base_0 has no possible answers"):
        ast(entries("multi_turn_base")[0], Completion(""))
    with pytest.raises(InputError, match="row simple_python_0 has no relevance category"):
        relevance(entries("simple_python")[0], Completion(""))
