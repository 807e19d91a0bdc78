"""The dialogue with BFCL's simulators: upstream's order of messages, its limits, its verdicts."""

import functools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.data.tools import function_names
from assay.errors import RunFailure
from assay.labs.tools.multi_turn import (
    DIALOGUE_REWARDS,
    MORE_FUNCTIONS,
    STEP_LIMIT,
    MultiTurnDialogue,
    dialogue_error,
)
from assay.labs.tools.task import TASK
from assay.tasks.running import RewardRunner
from assay.tasks.task import BenchmarkOptions, benchmark
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


def test_withheld_functions_become_tools_in_their_turn():
    said = dialogue("multi_turn_miss_func", 3)
    first = said.asks()
    said.hears("I cannot.", "stop")
    second = said.asks()
    assert first is not None and second is not None
    assert function_names(second.tools) == (*function_names(first.tools), "find", "ls")
    assert second.messages[-1] == Message("user", MORE_FUNCTIONS)


def test_calls_that_end_the_simulators_end_the_episode_which_is_judged(monkeypatch):
    monkeypatch.setattr("assay.labs.tools.multi_turn.DEADLINE_SECONDS", 2.0)
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


def conversation(row: Row, turns: list[list[list[str]]]) -> Completion:
    """A dialogue as its messages, without its simulators: rewards replay the calls themselves."""
    said: list[Message] = []
    for turn in turns:
        said += [Message("assistant", f"[{', '.join(step)}]") for step in turn]
        said += [Message("assistant", "Done."), Message("user", "next")]
    return Completion("", messages=tuple(said[:-1]))


@functools.cache
def runner() -> RewardRunner:
    """One start of the workers for all tests; they end with them."""
    return RewardRunner(DIALOGUE_REWARDS["dialogue_binary"], workers=1)


def scored(pairs: list[tuple[Row, Completion]]) -> list[Reward]:
    return runner().score(pairs)


def values(row: Row, completion: Completion) -> list[float]:
    """What each reward gives, which is one of the parts that all of them have."""
    (reward,) = scored([(row, completion)])
    return [reward.parts[name] for name in ("binary", "per_turn", "final_state")]


def truth(row: Row) -> list[list[list[str]]]:
    return [[[call] for call in turn] for turn in row.gold]


def test_truth_played_through_the_dialogue_earns_everything_and_silence_nothing():
    category = "multi_turn_miss_func"
    made = benchmark(TASK, f"bfcl/{category}", BenchmarkOptions())
    rows = made.items[::20]
    assert made.dialogue is not None
    right = [(row, play(made.dialogue(row), in_hermes(row))) for row in rows]
    silent = [(row, play(made.dialogue(row), [])) for row in rows]
    assert [values(*pair) for pair in right] == [[1.0] * 3] * len(rows)
    assert [values(*pair) for pair in silent] == [[0.0] * 3] * len(rows)


def test_the_final_state_asks_only_how_it_ends_and_that_anything_was_done():
    row = entries("multi_turn_base")[0]
    calls = [call for turn in row.gold for call in turn]
    # All calls in the last turn: the end is right, the way is not.
    late = [[] for _ in row.gold[:-1]] + [[[call] for call in calls]]
    assert values(row, conversation(row, late)) == [0, 0, 1]
    assert values(row, conversation(row, [*truth(row)[:-1], [["mkdir(dir_name='other')"]]]))[2] == 0
    # The truth of this entry leaves everything as it was: idleness would be paid.
    still = next(r for r in entries("multi_turn_base") if r.id == "multi_turn_base_180")
    assert values(still, conversation(still, [[] for _ in still.gold]))[2] == 0


def test_a_forced_end_fails_the_dialogue():
    row = entries("multi_turn_base")[0]
    completion = play(MultiTurnDialogue(row), ["[pwd()]"] * (STEP_LIMIT + 1))
    assert dialogue_error(row, completion) == "multi_turn:force_terminated"
    assert values(row, completion)[:2] == [0, 0]
    whole = play(MultiTurnDialogue(row), in_python(row))
    assert dialogue_error(row, whole) == ""


def test_a_dialogue_that_never_began_is_an_inference_error():
    row = entries("multi_turn_base")[0]
    assert dialogue_error(row, Completion("[pwd()]")) == "multi_turn:inference_error"
    assert values(row, Completion("[pwd()]")) == [0, 0, 0]


def test_hostile_calls_are_not_executed_counted_and_named():
    row = entries("multi_turn_base")[0]
    hostile = ["[__import__('os').system('touch /tmp/x')]", "[pwd(), exec(x='1')]"]
    completion = play(MultiTurnDialogue(row), ["[exec(x='1')]", *hostile, "[ls(x=9**9)]"])
    assert all("/tmp" not in m.content for m in completion.messages if m.role == "tool")
    (reward,) = scored([(row, completion)])
    assert (reward.value, reward.parts["refused"]) == (0, 4)
    assert reward.why == "refused: not_a_name 1, not_literal 1, unknown_function 2"


POWER = "power(base=9, exponent=999999999)"


def math_row() -> Row:
    return next(
        r for r in entries("multi_turn_base") if "MathAPI" in r.extra["entry"]["involved_classes"]
    )


@pytest.mark.slow
def test_calls_that_end_the_simulators_earn_nothing():
    """Otherwise a model would be judged on the dialogues alone that it can play."""
    row = math_row()
    right, endless = (conversation(row, turns) for turns in (truth(row), [[[POWER]]]))
    with RewardRunner(DIALOGUE_REWARDS["dialogue_binary"], deadline=1.5, workers=1) as scorer:
        rewards = scorer.score([(row, right), (row, endless)])
        assert scorer.abstained_share == 0.0
    assert [reward.value for reward in rewards] == [1.0, 0.0]
    assert rewards[1].outcome in ("timed out", "out of memory")


def test_simulators_that_fail_on_the_truth_too_are_an_abstention_and_never_a_zero():
    row = replace(math_row(), gold=[[POWER]])
    with RewardRunner(DIALOGUE_REWARDS["dialogue_binary"], deadline=0.3, workers=1) as scorer:
        (reward,) = scorer.score([(row, conversation(row, [[["logarithm(value=1, base=1)"]]]))])
    assert reward.value is None and reward.why.split(":")[0] in ("deadline", "memory")
