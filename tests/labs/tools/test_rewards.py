"""The published tool-call rewards, by example: their values, their parts and their pitfalls."""

import pytest

from assay.data.episode import Completion
from assay.data.row import Message, Row, ToolCall
from assay.labs.tools.parsing import call_text
from assay.labs.tools.rewards import (
    REWARD_MAXIMUM,
    REWARDS,
    ast,
    ast_error,
    fine_grained,
    strict_binary,
    strict_binary_think,
)
from assay.labs.tools.single_turn import entries
from assay.labs.tools.task import TASK
from assay.tasks.task import maximum, reward
from tests.experiments.files import shipped

REPORTED = shipped("tools/reported_rewards.py")
CALLS = (ToolCall("f", {"a": 1}), ToolCall("g", {"b": ["x", "y"]}))
GOLD = call_text(CALLS)
SWAPPED = call_text(CALLS[::-1])
THINK = "Let me see.\n</think>\n\n"


def row(gold: str) -> Row:
    return Row("r", (Message("user", "?"),), gold=gold)


def value(judge, text: str, gold: str = GOLD) -> float:
    return judge(row(gold), Completion(text)).value


@pytest.mark.parametrize(
    ("text", "fine", "binary"),
    [
        (GOLD, 1.1, 1),
        (SWAPPED, 1.1, 1),
        (call_text(CALLS[:1]), 0.1, 0),
        (call_text((*CALLS, CALLS[0])), 0.1, 0),
        ("<tool_call>f(a=1)</tool_call>", 0.1, 0),
        ("", 0, 0),
    ],
)
def test_values_of_the_fine_grained_and_the_binary_reward(text, fine, binary):
    assert value(fine_grained, text) == value(REPORTED.fine_grained, text) == fine
    assert value(strict_binary, text) == value(REPORTED.strict_binary, text) == binary
    for think in (strict_binary_think, REPORTED.strict_binary_think):
        assert value(think, text) == 0
        assert value(think, THINK + text) == binary


@pytest.mark.parametrize("judge", [strict_binary_think, REPORTED.strict_binary_think])
@pytest.mark.parametrize(
    ("text", "score"),
    [
        (f"<think>a</think>\n\n{GOLD}", 1),
        (f"prefilled, so only closed</think>\n\n{GOLD}", 1),
        (f"{GOLD}</think>\n\n{GOLD}", 1),
        (f"a</think>\n{GOLD}", 0),
        (f"{GOLD}</think>\n\nno call after the reasoning", 0),
    ],
)
def test_think_reward_looks_only_behind_the_last_end_of_reasoning(judge, text, score):
    assert value(judge, text) == score


@pytest.mark.parametrize(
    ("gold", "answer", "strict", "as_reported"),
    [
        ("1", "1", True, True),
        ("1", "1.0", False, True),
        ("1", "true", False, True),
        ("[[1, 2], [3]]", "[[3], [2, 1]]", False, True),
        ('{"x": 1, "y": 2}', '{"y": 2, "x": 1}', True, True),
        ('{"x": 1}', '{"x": 1, "y": null}', False, False),
    ],
)
def test_comparison_of_values(gold, answer, strict, as_reported):
    def text(value):
        return f'<tool_call>{{"name": "f", "arguments": {{"a": {value}}}}}</tool_call>'

    assert value(strict_binary, text(answer), text(gold)) == strict
    assert value(REPORTED.strict_binary, text(answer), text(gold)) == as_reported


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("No function can do that.", 1),
        ("", 0),
        (GOLD, 0),
        ("<tool_call>", 0),
    ],
)
def test_gold_answer_without_calls_wants_words_without_calls(text, score):
    gold = "I cannot help with that."
    assert value(strict_binary, text, gold) == score
    assert value(strict_binary_think, THINK + text, gold) == score
    assert value(fine_grained, text, gold) == 1.1 * score
    assert value(REPORTED.strict_binary, text, gold) == 0
    assert value(REPORTED.strict_binary_think, THINK + text, gold) == 0
    assert value(REPORTED.fine_grained, text, gold) < 1


@pytest.mark.parametrize("thought", ["<think>\n{}\n</think>\n\n", "{}\n</think>\n\n"])
def test_a_call_in_a_thought_is_no_call_and_spoils_none(thought):
    item = entries("simple_python")[0]
    right = call_text(item.messages[-1].tool_calls)
    for draft in (right, call_text(CALLS), "Use <tool_call> tags."):
        before = thought.format(draft)
        for judge in (ast, strict_binary, fine_grained):
            full = REWARD_MAXIMUM.get(judge.__name__, 1.0)
            assert judge(item, Completion(before + right)).value == full
            assert judge(item, Completion(before + "I cannot.")).value == 0
        assert value(strict_binary, before + "No.", "No.") == 1


TRIANGLE = '{"name": "calculate_triangle_area", "arguments": {"base": 10, "height": %s}}'


@pytest.mark.parametrize(
    ("body", "parts", "error"),
    [
        (TRIANGLE % 5, (1, 1, 1), ""),
        (TRIANGLE % 6, (1, 1, 0), "value_error:others"),
        (TRIANGLE % '5, "unit": "miles"', (1, 1, 0), "value_error:string"),
        (TRIANGLE.replace("area", "x") % 5, (1, 0, 0), "simple_function_checker:wrong_func_name"),
        (TRIANGLE % 5 + "}", (0, 0, 0), "bad_json"),
    ],
)
def test_ast_reward_splits_format_name_and_arguments(body, parts, error):
    item = entries("simple_python")[0]
    answer = Completion(f"<tool_call>\n{body}\n</tool_call>")
    earned = ast(item, answer)
    assert earned.value == (1.0 if error == "" else 0.0)
    assert earned.parts == dict(zip(("format", "name", "arguments"), parts, strict=True))
    assert ast_error(item, answer) == error


@pytest.mark.parametrize("name", REWARDS)
def test_gold_answers_earn_the_stated_maximum_and_empty_and_foreign_ones_do_not(name):
    judge = reward(TASK, f"tools.{name}")
    lead = THINK if "think" in name else ""
    items = entries("simple_python")[:30]
    golds = [lead + call_text(TASK.target(item).tool_calls) for item in items]
    full = maximum(TASK, name)
    assert full == REWARD_MAXIMUM.get(name, 1.0)
    for item, gold, foreign in zip(items, golds, golds[1:] + golds[:1], strict=True):
        assert judge(item, Completion(gold)).value == full
        assert judge(item, Completion("")).value == 0
        assert judge(item, Completion(foreign)).value in (0, 0.1)
