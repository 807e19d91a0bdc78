"""The dialogue with BFCL's simulators: upstream's order of messages, its limits, its verdicts."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.data.episode import Completion
from assay.data.row import Message, Row, ToolCall
from assay.data.tools import function_names
from assay.tasks.tools.call_text import decode_message, read_call
from assay.tasks.tools.multi_turn import (
    MORE_FUNCTIONS,
    MULTI_TURN,
    STEP_LIMIT,
    Added,
    MultiTurnDialogue,
    dialogue_error,
)
from assay.tasks.tools.parsing import call_text
from assay.tasks.tools.simulation import SimulatorFailure
from assay.tasks.tools.task import TASK
from tests.tasks.tools.scripted import entries, in_hermes, in_python, play, truth_calls
from tests.tasks.tools.upstream import upstreams


def echo(row: Row, done: Sequence[str], calls: Sequence[str]) -> list[str]:
    """Stands for the simulators: says what was called, and after how many calls."""
    return [f"{call} after {len(done)}" for call in calls]


def dialogue(category: str = "multi_turn_base", index: int = 0, **options) -> MultiTurnDialogue:
    return MultiTurnDialogue(entries(category)[index], echo, **options)


def test_a_turn_is_steps_until_a_message_without_calls():
    said = dialogue()
    asked = said.asks()
    assert asked is not None and asked == said.asks()
    assert [m.role for m in asked.messages] == ["user"]
    said.hears("[ls(), pwd()]", "stop")
    said.hears("[cd('x')]", "stop")
    said.hears("Done.", "stop")
    question = entries("multi_turn_base")[0].extra["entry"]["question"]
    assert said.messages == (
        Message("assistant", "[ls(), pwd()]"),
        Message("tool", "ls() after 0"),
        Message("tool", "pwd() after 0"),
        Message("assistant", "[cd('x')]"),
        Message("tool", "cd('x') after 2"),
        Message("assistant", "Done."),
        Message("user", question[1][0]["content"]),
    )
    again = said.asks()
    assert again is not None and again.messages == (*asked.messages, *said.messages)


def test_it_ends_after_its_last_turn():
    said = dialogue()
    for _ in range(len(entries("multi_turn_base")[0].gold)):
        assert said.asks() is not None
        said.hears("", "stop")
    assert said.asks() is None
    assert said.messages[-1] == Message("assistant", "")


@pytest.mark.parametrize("text", ["<tool_call>", "[ls(), __import__('os')]", "[]", "I do not know"])
def test_a_message_that_cannot_be_decoded_ends_its_turn_and_calls_nothing(text):
    said = dialogue()
    said.hears(text, "length")
    assert [m.role for m in said.messages] == ["assistant", "user"]
    assert said.messages[0].content == text


def test_one_step_more_than_the_limit_ends_the_episode():
    said = dialogue()
    for step in range(STEP_LIMIT + 1):
        assert said.asks() is not None, step
        said.hears("[pwd()]", "stop")
    assert said.asks() is None
    assert sum(m.role == "tool" for m in said.messages) == 21


def test_the_limit_is_each_turns_own():
    said = dialogue()
    for _ in range(2):
        for _ in range(STEP_LIMIT):
            said.hears("[pwd()]", "stop")
        said.hears("Done.", "stop")
    assert said.asks() is not None


def test_withheld_functions_become_tools_in_their_turn():
    said = dialogue("multi_turn_miss_func", 3)
    first = said.asks()
    said.hears("I cannot.", "stop")
    second = said.asks()
    assert first is not None and second is not None
    assert function_names(second.tools) == (*function_names(first.tools), "find", "ls")
    assert second.messages[-1] == Message("user", MORE_FUNCTIONS)


def test_or_are_written_into_the_message_of_their_turn():
    said = dialogue("multi_turn_miss_func", 3, added="text")
    first = said.asks()
    said.hears("I cannot.", "stop")
    second = said.asks()
    assert first is not None and second is not None and second.tools == first.tools
    docs = entries("multi_turn_miss_func")[3].extra["entry"]["missed_function"]["1"]
    assert second.messages[-1].content == f"{docs}\n{MORE_FUNCTIONS}"


def test_calls_that_end_the_simulators_end_the_episode_which_is_judged(monkeypatch):
    monkeypatch.setattr("assay.tasks.tools.simulation.DEADLINE_SECONDS", 2.0)
    row = next(r for r in entries("multi_turn_base") if "power" in function_names(r.tools))
    said = MultiTurnDialogue(row)
    said.hears("[power(base=9, exponent=999999999)]", "stop")
    assert said.asks() is None
    assert said.messages[-1].role == "tool"
    assert said.messages[-1].content.startswith("Error during execution: the simulators gave no")


def test_simulators_that_fail_by_themselves_end_the_episode_with_an_exception():
    def broken(row, done, calls):
        raise SimulatorFailure("the simulators gave no answer")

    row = entries("multi_turn_base")[0]
    with pytest.raises(SimulatorFailure):
        MultiTurnDialogue(row, broken).hears("[pwd()]", "stop")


def test_a_row_of_several_turns_has_a_dialogue_that_begins_with_the_users_words_alone():
    row = entries("multi_turn_base")[0]
    said = TASK.dialogue(row)
    assert said is not None
    asked = said.asks()
    assert asked is not None and asked.messages == TASK.prompt(row) == row.messages
    assert TASK.dialogue(entries("simple_python")[0]) is None


def test_both_spellings_of_the_truth_hear_the_same_results():
    for category in MULTI_TURN:
        row = entries(category)[7]
        python = play(MultiTurnDialogue(row), in_python(row))
        json_ = play(MultiTurnDialogue(row), in_hermes(row))
        tools = [[m for m in c.messages if m.role == "tool"] for c in (python, json_)]
        assert tools[0] == tools[1] != []


def variants(row: Row, seed: int) -> list[str]:
    """The truth in Hermes blocks, spoiled here and there with what a model might write."""
    rng = random.Random(seed)
    answers = []
    for turn in truth_calls(row):
        for call in turn:
            answers += spoiled(call, rng)
        answers.append(rng.choice(["Done.", "", "<think>\nls\n</think>\n\nDone."]))
    return answers


def spoiled(call: ToolCall, rng: random.Random) -> list[str]:
    other = ToolCall(rng.choice(["pwd", "no_such_function", call.name]), {})
    wrong = ToolCall(call.name, {**call.arguments, "no_such_argument": [1, {"a": None}]})
    return rng.choices(
        [
            [call_text([call])],
            [call_text([call, call])],
            [call_text([other]), call_text([call])],
            [call_text([wrong])],
            ["I look first.\n" + call_text([call])],
            ["<think>\nfirst\n</think>\n\n" + call_text([call])],
            [],
            [call_text([other])] * (STEP_LIMIT + 1),
        ],
        weights=[30, 2, 3, 1, 4, 4, 1, 0.3],
    )[0]


@pytest.mark.parametrize("every", [80, pytest.param(3, marks=pytest.mark.slow)])
def test_dialogues_and_verdicts_are_upstreams(every: int, tmp_path: Path):
    cases = {
        category: [[n, variants(entries(category)[n], n)] for n in range(first, 200, every)]
        for first, category in enumerate(MULTI_TURN)
    }
    errors = []
    for category, found in upstreams(cases, tmp_path).items():
        for (index, texts), played in zip(cases[category], found, strict=True):
            errors.append(played["tools"]["error"])
            compare(entries(category)[index], texts, played["tools"], "tools")
            if category == "multi_turn_miss_func":
                compare(entries(category)[index], texts, played["text"], "text")
            else:
                assert played["text"]["error"] == errors[-1]
    # The variants were of many kinds, or the comparison said little.
    assert {"", "multi_turn:instance_state_mismatch"} < set(errors)
    assert 0.1 < errors.count("") / len(errors) < 0.9


def compare(row: Row, texts: list[str], expected: dict[str, Any], added: Added) -> None:
    """The same questions with the same tools in the same order, and the same verdict."""
    said, asked, coming = MultiTurnDialogue(row, added=added), [], iter(texts)
    while (now := said.asks()) is not None:
        asked.append([[plain(m) for m in now.messages], list(function_names(now.tools))])
        said.hears(next(coming, ""), "stop")
    assert asked == [[[as_plain(m) for m in found], names] for found, names in expected["asked"]]
    error = dialogue_error(row, Completion("", messages=said.messages))
    assert error == expected["error"], row.id


def plain(message: Message) -> list:
    """A message as upstream keeps it: calls by name and arguments, no text beside them."""
    if message.role != "assistant":
        return [message.role, message.content, []]
    read = [read_call(call.source) for call in decode_message(message.content).calls]
    calls = [[call.name, dict(call.named)] for call in read]
    return [
        "assistant",
        "" if calls else message.content.rpartition("</think>")[2].lstrip("\n"),
        calls,
    ]


def as_plain(message: dict) -> list:
    calls = [[call["name"], call["arguments"]] for call in message.get("tool_calls", [])]
    return [message["role"], message["content"], calls]
