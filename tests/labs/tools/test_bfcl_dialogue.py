"""The dialogue with BFCL's simulators: upstream's order of messages, its limits, its verdicts."""

from collections.abc import Sequence

import pytest

from assay.data.row import Message, Row
from assay.data.tools import function_names
from assay.errors import RunFailure
from assay.labs.tools.multi_turn import (
    MORE_FUNCTIONS,
    MULTI_TURN,
    STEP_LIMIT,
    MultiTurnDialogue,
)
from assay.labs.tools.task import TASK
from tests.labs.tools.scripted import entries, in_hermes, in_python, play


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
    monkeypatch.setattr("assay.labs.tools.simulation.DEADLINE_SECONDS", 2.0)
    row = next(r for r in entries("multi_turn_base") if "power" in function_names(r.tools))
    said = MultiTurnDialogue(row)
    said.hears("[power(base=9, exponent=999999999)]", "stop")
    assert said.asks() is None
    assert said.messages[-1].role == "tool"
    assert said.messages[-1].content.startswith("Error during execution: the simulators gave no")


def test_simulators_that_fail_by_themselves_end_the_episode_with_an_exception():
    def broken(row, done, calls):
        raise RunFailure("the simulators gave no answer")

    row = entries("multi_turn_base")[0]
    with pytest.raises(RunFailure):
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
