"""The dialogue with BFCL's simulators: upstream's order of messages, its limits, its verdicts; the
simulators in a worker: upstream's results and verdicts, no state kept, no eval."""

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Message, Row
from assay.data.tools import function_names
from assay.errors import RunFailure
from assay.labs.math.rewards import accuracy
from assay.labs.tools import multi_turn
from assay.labs.tools.multi_turn import (
    DIALOGUE_REWARDS,
    JUDGE,
    MORE_FUNCTIONS,
    MULTI_TURN,
    STEP_LIMIT,
    MultiTurnDialogue,
    ask,
    dialogue_error,
    functions_of,
    judging,
    run_calls,
)
from assay.labs.tools.task import TASK
from assay.sandbox import isolation, pool
from assay.sandbox.isolation import Isolation
from assay.tasks.running import RewardRunner
from assay.tasks.task import BenchmarkOptions, benchmark
from tests.labs.tools.scripted import (
    doubled,
    entries,
    in_batch,
    in_hermes,
    in_python,
    judged,
    nothing,
    play,
    truth,
    without_last,
    world,
)


def echo(row: Row, done: Sequence[str], calls: Sequence[str]) -> list[str]:
    """Stands for the simulators: says what was called, and after how many calls."""
    return [f"{call} after {len(done)}" for call in calls]


def dialogue(category: str = "multi_turn_base", index: int = 0, **options) -> MultiTurnDialogue:
    return MultiTurnDialogue(entries(category)[index], echo, **options)


@pytest.fixture
def row() -> Row:
    return entries("multi_turn_base")[0]


def test_a_turn_is_steps_until_a_message_without_calls(row):
    said = dialogue()
    asked = said.asks()
    assert asked is not None and asked == said.asks()
    assert [m.role for m in asked.messages] == ["user"]
    said.hears("[ls(), pwd()]", "stop")
    said.hears("[cd('x')]", "stop")
    said.hears("Done.", "stop")
    question = row.extra["entry"]["question"]
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


def test_simulators_that_fail_by_themselves_end_the_episode_with_an_exception(row):
    def broken(row, done, calls):
        raise RunFailure("the simulators gave no answer")

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


def test_truth_played_through_the_dialogue_earns_everything_and_silence_nothing():
    category = "multi_turn_miss_func"
    made = benchmark(TASK, f"bfcl/{category}", BenchmarkOptions())
    rows = made.items[::20]
    assert made.dialogue is not None
    right = [(row, play(made.dialogue(row), in_hermes(row))) for row in rows]
    silent = [(row, play(made.dialogue(row), [])) for row in rows]
    assert [values(*pair) for pair in right] == [[1.0] * 3] * len(rows)
    assert [values(*pair) for pair in silent] == [[0.0] * 3] * len(rows)


def test_the_final_state_asks_only_how_it_ends_and_that_anything_was_done(row):
    calls = [call for turn in row.gold for call in turn]
    # All calls in the last turn: the end is right, the way is not.
    late = [[] for _ in row.gold[:-1]] + [[[call] for call in calls]]
    assert values(row, conversation(row, late)) == [0, 0, 1]
    assert values(row, conversation(row, [*truth(row)[:-1], [["mkdir(dir_name='other')"]]]))[2] == 0
    # The truth of this entry leaves everything as it was: idleness would be paid.
    still = next(r for r in entries("multi_turn_base") if r.id == "multi_turn_base_180")
    assert values(still, conversation(still, [[] for _ in still.gold]))[2] == 0


def test_a_forced_end_fails_the_dialogue(row):
    completion = play(MultiTurnDialogue(row), ["[pwd()]"] * (STEP_LIMIT + 1))
    assert dialogue_error(row, completion) == "multi_turn:force_terminated"
    assert values(row, completion)[:2] == [0, 0]
    whole = play(MultiTurnDialogue(row), in_python(row))
    assert dialogue_error(row, whole) == ""


def test_a_dialogue_that_never_began_is_an_inference_error(row):
    assert dialogue_error(row, Completion("[pwd()]")) == "multi_turn:inference_error"
    assert values(row, Completion("[pwd()]")) == [0, 0, 0]


def test_hostile_calls_are_not_executed_counted_and_named(row):
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


PASSED = {"": 200}
EMPTY = {"multi_turn:empty_turn_model_response": 200}
# What upstream's checker says where the last call is missing; the same in every category.
DROPPED = {
    "multi_turn:empty_turn_model_response": 137,
    "multi_turn:instance_state_mismatch": 52,
    "multi_turn:execution_response_mismatch": 11,
}
DOUBLED = {"": 72, "multi_turn:instance_state_mismatch": 128}


def errors(verdicts) -> dict[str, int]:
    assert all(v["valid"] == (v["error_type"] == "") for v in verdicts)
    return dict(Counter(v["error_type"] for v in verdicts))


# The others differ in states and turns alone: their dialogues are compared with upstream's in
# `test_dialogue`, each of their calls below.
FEW = ("multi_turn_base", "multi_turn_miss_func")


@pytest.mark.parametrize(
    "category",
    [c if c in FEW else pytest.param(c, marks=pytest.mark.slow) for c in MULTI_TURN],
)
def test_truth_passes_200_of_200_and_wrong_answers_as_upstream_counts_them(category):
    rows = entries(category)
    right = judged(rows, truth)
    assert errors(right) == PASSED
    assert all(v["passed"] == v["checked"] > 0 and v["final_state"] for v in right)
    empty, dropped = judged(rows, nothing), judged(rows, without_last)
    assert (errors(empty), errors(dropped)) == (EMPTY, DROPPED)
    assert all(v["passed"] == 0 for v in empty)
    assert errors(judged(rows, doubled)) == DOUBLED


def test_a_perfect_replay_after_a_failed_one_in_the_same_process_passes_200_of_200():
    rows = entries("multi_turn_base")
    requests = [judging(row, policy(row)) for policy in (doubled, truth) for row in rows]
    verdicts = in_batch("judge_all", requests=requests)
    assert errors(verdicts[:200]) == DOUBLED
    assert errors(verdicts[200:]) == PASSED


@pytest.mark.parametrize("category", MULTI_TURN)
def test_every_call_of_the_truth_gives_what_upstreams_executor_gives(category):
    rows = entries(category)
    calls = [[call for turn in row.gold for call in turn] for row in rows]
    results = in_batch("both_executors", worlds=[world(row) for row in rows], calls=calls)
    assert sum(map(len, calls)) > 1100
    for row, (upstream, ours) in zip(rows, results, strict=True):
        assert ours == upstream, row.id


def test_wrong_calls_give_the_words_of_upstreams_executor(row):
    calls = [
        "cd(folder=1)",
        "cd()",
        "cd(place='x')",
        "ls(1, 2, 3)",
        "cd('no')",
        "cat(file_name=[])",
    ]
    calls += ["no_such(x=1)", "cd(folder='document')", "pwd()", "sort(file_name=None)", "ls(a='x')"]
    calls += ["echo(content='a', file_name='b')", "cat(file_name='b')", "touch(file_name='\\n')"]
    ((upstream, ours),) = in_batch("both_executors", worlds=[world(row)], calls=[calls])
    assert ours == upstream
    assert ours[6] == "Error during execution: name 'no_such' is not defined"
    assert sum(result.startswith("Error during execution: ") for result in ours) >= 4


def test_only_documented_functions_of_the_entry_can_be_called(row):
    assert {"cd", "post_tweet"} <= set(functions_of(row))
    for name in ("exec", "print", "get_ticket", "long_context", "root", "Directory"):
        message = f"Error during execution: name '{name}' is not defined"
        assert run_calls(row, [], [f"{name}()"]) == [message]
    for call in ("_load_scenario({})", "__init__()"):
        assert run_calls(row, [], [call])[0].endswith("is not defined")
    for call in ("cd(*['x'])", "cd.__call__('x')", "(cd)('x')", "cd(ls())", "ls() or pwd()"):
        assert run_calls(row, [], [call])[0].startswith("Error during execution: refused: ")


def test_calls_made_before_are_replayed_and_leave_nothing_behind(row):
    fresh = run_calls(row, [], ["ls()"])
    assert run_calls(row, ["mkdir(dir_name='new')"], ["ls()"]) != fresh
    assert run_calls(row, [], ["ls()"]) == fresh


@pytest.mark.parametrize("mode", ["namespaces", "limits-only"])
def test_simulators_and_math_answers_run_as_isolated_as_the_experiment_says(monkeypatch, mode):
    asked: list[str] = []
    monkeypatch.setattr(pool, "isolation_for", lambda m: asked.append(m) or Isolation(""))
    monkeypatch.setattr(multi_turn, "_pool", functools.cache(multi_turn._new_pool))
    monkeypatch.setattr(isolation, "_chosen", ["namespaces"])
    if mode != "namespaces":
        isolation.choose_isolation(mode)
    with multi_turn._pool(multi_turn.RUN, isolation.chosen_isolation()):
        assert run_calls(entries("multi_turn_base")[0], [], ["cd(folder='document')"])
    assert set(asked) == {mode}
    asked.clear()
    half = Row("r", (Message("user", "?"),), gold=r"\frac{1}{2}")
    options = {} if mode == "namespaces" else {"sandbox": mode}
    with RewardRunner(accuracy, 60.0, **options) as runner:
        (reward,) = runner.score([(half, Completion(r"\boxed{\frac{2}{4}}"))])
    assert reward.value == 1.0 and set(asked) == {mode}


def test_a_call_that_never_ends_is_no_answer_and_the_next_one_is(monkeypatch):
    row = next(r for r in entries("multi_turn_base") if "power" in functions_of(r))
    monkeypatch.setattr(multi_turn, "DEADLINE_SECONDS", 1.0)
    ended = run_calls(row, [], ["power(base=9, exponent=999999999)"])
    assert isinstance(ended, str) and "deadline: still running" in ended
    # What fails without the calls too is not their doing.
    with pytest.raises(RunFailure, match="deadline: still running"):
        run_calls(row, ["power(base=9, exponent=999999999)"], ["power(base=3, exponent=2)"])
    assert run_calls(row, [], ["power(base=3, exponent=2)"]) == ['{"result": 9}']


def test_turns_before_the_first_failure_count_and_later_ones_do_not(row):
    checked = len(row.gold)
    assert all(row.gold)
    for missing in range(checked):
        turns = truth(row)
        turns[missing] = []
        verdict = ask(JUDGE, judging(row, turns))
        assert (verdict["passed"], verdict["checked"]) == (missing, checked)
