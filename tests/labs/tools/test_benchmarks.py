"""BFCL benchmarks: every entry scored by BFCL's checker, with options that say what they change."""

import random

import pytest

from assay.data.episode import Completion
from assay.data.renderings import hermes
from assay.data.row import ToolCall
from assay.data.tools import function_names
from assay.errors import InputError
from assay.labs.tools.parsing import call_text
from assay.labs.tools.rewards import RELEVANCE, relevance
from assay.labs.tools.single_turn import CATEGORIES, entries
from assay.labs.tools.task import TASK
from assay.tasks.task import BenchmarkOptions, benchmark


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
    assert built.options == {"parser": "bfcl", "examples": 0, "examples_from": "live_simple"}
    item = built.items[0]
    assert built.score(item, Completion(gold(item))).value == built.max_score == 1
    assert built.classify(item, Completion(gold(item))) == ""
    assert built.classify(item, Completion("I do not know")).endswith(":wrong_count")
    strict = made(name, parser="strict")
    assert strict.classify(item, Completion("I do not know")) == "no_call"
    assert strict.checker == "bfcl-eval==2026.3.23 ast_checker, parser strict"


def test_examples_stand_before_the_question_with_their_tools_behind_the_items():
    plain, shown = made(), made(examples=3)
    assert shown.items[0].extra["examples"] == [
        "live_simple_0-0-0",
        "live_simple_1-1-0",
        "live_simple_2-2-0",
    ]
    for before, after in zip(plain.items, shown.items, strict=True):
        roles = [message.role for message in TASK.prompt(after)]
        assert roles == [*["user", "assistant"] * 3, "user"]
        assert after.messages[-2:] == before.messages
        assert after.tools[:1] == before.tools
        assert len(function_names(after.tools)) == len(set(function_names(after.tools))) == 4
    assert total(shown, [gold(item) for item in shown.items]) == 400


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"parse": "strict"}, InputError, "unknown benchmark option 'parse'.*'parser'"),
        ({"parser": "strickt"}, InputError, "unknown parser 'strickt'.*'strict'"),
        ({"examples": -1}, InputError, "options.examples: must not be negative, is -1"),
        ({"examples": 900}, InputError, "live_simple has .* usable examples, not 900"),
        ({"examples": 1, "examples_from": "simple"}, InputError, "unknown BFCL category"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options, error, words):
    with pytest.raises(error, match=words):
        made(**options)


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


def test_errors_have_upstreams_names_and_right_answers_none():
    for category, text, error in (
        ("irrelevance", CALL, "irrelevance_error:decoder_success"),
        ("live_relevance", "no", "relevance_error:decoder_failed"),
        ("live_relevance", CALL, ""),
        ("irrelevance", "no", ""),
    ):
        made = benchmark(TASK, f"bfcl/{category}", BenchmarkOptions())
        assert made.classify(made.items[0], Completion(text)) == error
