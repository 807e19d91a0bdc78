"""BFCL's simulators in a worker: upstream's results and verdicts, no state kept, no eval."""

import functools
from collections import Counter

import pytest

from assay.data.episode import Completion
from assay.data.row import Message, Row
from assay.errors import RunFailure
from assay.labs.math.rewards import accuracy
from assay.labs.tools import multi_turn
from assay.labs.tools.multi_turn import (
    JUDGE,
    MULTI_TURN,
    CallsFailed,
    ask,
    functions_of,
    judging,
    run_calls,
)
from assay.sandbox import isolation, pool
from assay.sandbox.isolation import Isolation
from assay.tasks.running import RewardRunner
from tests.labs.tools.scripted import (
    doubled,
    entries,
    in_batch,
    judged,
    nothing,
    truth,
    without_last,
    world,
)

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


def test_wrong_calls_give_the_words_of_upstreams_executor():
    row = entries("multi_turn_base")[0]
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


def test_only_documented_functions_of_the_entry_can_be_called():
    row = entries("multi_turn_base")[0]
    assert {"cd", "post_tweet"} <= set(functions_of(row))
    for name in ("exec", "print", "get_ticket", "long_context", "root", "Directory"):
        message = f"Error during execution: name '{name}' is not defined"
        assert run_calls(row, [], [f"{name}()"]) == [message]
    for call in ("_load_scenario({})", "__init__()"):
        assert run_calls(row, [], [call])[0].endswith("is not defined")
    for call in ("cd(*['x'])", "cd.__call__('x')", "(cd)('x')", "cd(ls())", "ls() or pwd()"):
        assert run_calls(row, [], [call])[0].startswith("Error during execution: refused: ")


def test_calls_made_before_are_replayed_and_leave_nothing_behind():
    row = entries("multi_turn_base")[0]
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
    with RewardRunner(
        accuracy, 60.0, **({} if mode == "namespaces" else {"sandbox": mode})
    ) as runner:
        (reward,) = runner.score([(half, Completion(r"\boxed{\frac{2}{4}}"))])
    assert reward.value == 1.0 and set(asked) == {mode}


def test_a_call_that_never_ends_is_no_answer_and_the_next_one_is(monkeypatch):
    row = next(r for r in entries("multi_turn_base") if "power" in functions_of(r))
    monkeypatch.setattr(multi_turn, "DEADLINE_SECONDS", 1.0)
    with pytest.raises(CallsFailed, match="deadline: still running"):
        run_calls(row, [], ["power(base=9, exponent=999999999)"])
    # What fails without the calls too is not their doing.
    with pytest.raises(RunFailure, match="deadline: still running") as raised:
        run_calls(row, ["power(base=9, exponent=999999999)"], ["power(base=3, exponent=2)"])
    assert not isinstance(raised.value, CallsFailed)
    assert run_calls(row, [], ["power(base=3, exponent=2)"]) == ['{"result": 9}']


def test_a_stopped_dialogue_has_failed_and_so_has_the_turn_that_it_was_stopped_in():
    row = entries("multi_turn_base")[0]
    turns = truth(row)
    assert len(turns) > 2
    verdict = ask(JUDGE, judging(row, turns[:-1]))
    assert verdict["error_type"] == "multi_turn:force_terminated"
    assert (verdict["valid"], verdict["passed"]) == (False, len(turns) - 2)
    none = ask(JUDGE, judging(row, []))
    assert (none["error_type"], none["passed"]) == ("multi_turn:force_terminated", 0)


def test_turns_before_the_first_failure_count_and_later_ones_do_not():
    row = entries("multi_turn_base")[0]
    checked = len(row.gold)
    assert all(row.gold)
    for missing in range(checked):
        turns = truth(row)
        turns[missing] = []
        verdict = ask(JUDGE, judging(row, turns))
        assert (verdict["passed"], verdict["checked"]) == (missing, checked)
