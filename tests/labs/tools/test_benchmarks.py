"""BFCL benchmarks: every entry scored by BFCL's checker, with options that say what they change."""

import random

import pytest

from assay.data.episode import Completion
from assay.data.renderings import hermes
from assay.data.tools import function_names
from assay.errors import InputError
from assay.labs.tools.single_turn import CATEGORIES, entries
from assay.labs.tools.task import TASK
from assay.tasks.task import BenchmarkOptions, benchmark, reward, task


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


def test_items_are_all_entries_even_those_that_no_answer_can_pass():
    built = made("bfcl/live_simple")
    assert [item.id for item in built.items] == [row.id for row in entries("live_simple")]
    impossible = [item for item in built.items if "no_target" in item.extra]
    assert len(impossible) == 2
    with pytest.raises(InputError, match="row live_simple_106-63-0 has no target: simple_f"):
        TASK.target(impossible[0])


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


def test_examples_never_show_a_function_of_the_test_nor_one_twice():
    built = made(examples=20)
    names = {name for item in made().items for name in function_names(item.tools)}
    rows = {row.id: row for row in entries("live_simple")}
    examples = [rows[id] for id in built.items[0].extra["examples"]]
    shown = [name for row in examples for name in function_names(row.tools)]
    assert len(shown) == len(set(shown)) == 20
    assert names.isdisjoint(shown)
    assert all(row.messages[0].role == "user" for row in examples)


def test_examples_follow_the_items_own_system_message():
    item = next(
        i for i in made("bfcl/live_multiple", examples=1).items if i.messages[0].role == "system"
    )
    assert [m.role for m in item.messages[:4]] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"parse": "strict"}, InputError, "unknown benchmark option 'parse'.*'parser'"),
        ({"parser": "strickt"}, InputError, "unknown parser 'strickt'.*'strict'"),
        ({"examples": "3"}, InputError, "options.examples: must be int, not '3'"),
        ({"examples": True}, InputError, "options.examples: must be int, not True"),
        ({"examples": -1}, InputError, "options.examples: must not be negative, is -1"),
        ({"examples": 900}, InputError, "live_simple has .* usable examples, not 900"),
        ({"examples": 1, "examples_from": "simple"}, InputError, "unknown BFCL category"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options, error, words):
    with pytest.raises(error, match=words):
        made(**options)


def test_names_are_looked_up_with_or_without_the_task():
    assert task("tools") is TASK
    assert reward(TASK, "tools.ast") is reward(TASK, "ast") is TASK.rewards["ast"]
    for look_up, words in (
        (lambda: task("tool"), "unknown task 'tool'.*'tools'"),
        (lambda: reward(TASK, "tools.strict"), "unknown reward 'strict' .*'strict_binary'"),
        (lambda: made("bfcl/simple_pyton"), "unknown benchmark .*'bfcl/simple_python'"),
    ):
        with pytest.raises(InputError, match=words):
            look_up()
