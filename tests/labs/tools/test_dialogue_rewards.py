"""Rewards of dialogues: upstream's verdict, its share, the final state, and what was refused."""

import functools
from collections import Counter
from dataclasses import replace

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.labs.tools.multi_turn import (
    DIALOGUE_REWARDS,
    MULTI_TURN,
    STEP_LIMIT,
    MultiTurnDialogue,
    dialogue_error,
    heard,
    truth_completion,
)
from assay.labs.tools.task import TASK
from assay.tasks.running import RewardRunner
from assay.tasks.task import BenchmarkOptions, benchmark
from tests.labs.tools.scripted import a_turn_at_once, entries, in_hermes, in_python, play


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


@pytest.mark.slow
@pytest.mark.parametrize("category", [f"bfcl/{name}" for name in MULTI_TURN])
def test_all_of_a_category_through_dialogue_and_benchmark(category):
    made = benchmark(TASK, category, BenchmarkOptions())
    assert made.dialogue is not None
    pairs = [(row, play(made.dialogue(row), a_turn_at_once(row))) for row in made.items]
    with RewardRunner(made.score, workers=1) as scorer:
        assert sum(r.value or 0 for r in scorer.score(pairs)) == 200
        assert scorer.abstentions == {}
    assert Counter(made.classify(*pair) for pair in pairs) == {"": 200}


def test_each_reward_says_what_it_says_and_all_say_it_in_their_parts():
    row = entries("multi_turn_base")[0]
    turns = truth(row)
    spoiled = [turns[0], [["pwd()"]], *turns[2:]]
    for name, part in (("binary", 0), ("per_turn", 1 / len(row.gold)), ("final_state", 0)):
        with RewardRunner(DIALOGUE_REWARDS[f"dialogue_{name}"], workers=1) as scorer:
            (reward,) = scorer.score([(row, conversation(row, spoiled))])
        assert reward.value == reward.parts[name] == part and reward.why == ""


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


def test_turns_begin_where_the_user_speaks():
    said = heard((Message("assistant", ""), Message("user", "a"), Message("user", "b")))
    assert [len(turn) for turn in said.turns] == [1, 0]
    assert heard(()).turns == ()


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


def test_the_truth_as_a_completion_is_right():
    rows = entries("multi_turn_base")[:5]
    rewards = scored([(row, truth_completion(row)) for row in rows])
    assert [reward.value for reward in rewards] == [1.0] * 5


def test_a_row_without_simulators_is_an_abstention_that_says_so():
    row = entries("simple_python")[0]
    (reward,) = scored([(row, Completion(""))])
    assert reward.value is None and "row simple_python_0 has no simulators" in reward.why


def test_the_benchmark_names_checker_and_options_and_refuses_unknown_ones():
    made = benchmark(TASK, "bfcl/multi_turn_base", BenchmarkOptions())
    assert made.checker == "bfcl-eval==2026.3.23 multi_turn_checker, parser bfcl"
    assert (made.options, len(made.items)) == ({"parser": "bfcl", "added": "tools"}, 200)
    with pytest.raises(InputError, match="unknown place of added functions 'tool'"):
        benchmark(TASK, "bfcl/multi_turn_base", BenchmarkOptions({"added": "tool"}))
    with pytest.raises(InputError, match=r"unknown parser 'strickt'.*'strict'"):
        benchmark(TASK, "bfcl/multi_turn_base", BenchmarkOptions({"parser": "strickt"}))
