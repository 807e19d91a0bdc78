"""Generated tasks prove themselves, stay apart from the benchmark and from the held-out ones."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from assay.data.episode import Completion, Reward
from assay.data.leakage import PATH, call_path, overlap, separate
from assay.data.renderings.hermes import call_text
from assay.data.row import Message, Row, ToolCall
from assay.errors import InputError
from assay.tasks.running import RewardRunner
from assay.tasks.tools import simulated
from assay.tasks.tools.drawing import MOST, Side
from assay.tasks.tools.multi_turn import MULTI_TURN, MultiTurnDialogue, multi_turn_entries
from assay.tasks.tools.simulated import (
    Ask,
    Drawn,
    draw_tasks,
    prove,
    read_held_out,
    read_simulated,
)
from assay.tasks.tools.task import TASK
from tests.few import few
from tests.tasks.tools.scripted import play


@pytest.fixture(scope="module")
def rows() -> tuple[Row, ...]:
    return read_simulated("60").rows


@functools.cache
def drawn(count: int, side: Side) -> tuple[Row, ...]:
    return tuple(bare(draw_tasks(count, side)))


def bare(tasks: Iterable[Drawn]) -> list[Row]:
    """Rows of tasks that nobody has executed: questions, tools and calls."""
    return [
        Row(
            task.id,
            tuple(Message("user", ask.text) for ask in task.asks),
            task.tools,
            gold=task.truth,
            extra={"entry": task.entry},
        )
        for task in tasks
    ]


def test_a_model_that_repeats_itself_is_stopped_early_and_the_truth_never_is(rows):
    assert max(len(turn) for row in rows for turn in row.gold) * 2 <= simulated.STEP_LIMIT
    said = MultiTurnDialogue(rows[0], lambda row, done, calls: ["again"] * len(calls))
    for _ in range(simulated.STEP_LIMIT + 1):
        assert said.asks() is not None
        said.hears(f"[{rows[0].gold[0][0]}]", "stop")
    assert said.asks() is None


def scored(pairs: Sequence[tuple[Row, Sequence[str]]], reward: str) -> list[Reward]:
    """What a reward gives for scripts played in the rows' own worlds."""
    played: list[tuple[Row, Completion]] = []
    for row, script in pairs:
        world = TASK.dialogue(row)
        assert world is not None
        played.append((row, play(world, script)))
    with RewardRunner(TASK.rewards[reward], workers=1) as runner:
        return runner.score(played)


def script(row: Row) -> list[str]:
    """What the model says in the gold conversation."""
    return [
        "\n".join(map(call_text, m.tool_calls)) or m.content
        for m in row.messages
        if m.role == "assistant"
    ]


def test_the_first_tasks_are_the_same_however_many_are_asked_for(rows):
    assert read_simulated("25").rows == rows[:25]
    assert read_held_out("5").rows[0] != rows[0]


def test_every_task_proves_itself_and_is_as_it_should_be(rows):
    assert len(rows) == 60
    for row in rows:
        assert 1 <= len(row.gold) <= 4
        assert len(row.tools) <= 8
        needed = {call.name for m in row.messages for call in m.tool_calls}
        assert needed <= {tool["name"] for tool in row.tools}
        assert row.messages[-1].role == "assistant"
        assert not any("error" in m.content for m in row.messages if m.role == "tool")


def test_tasks_are_different_and_use_every_simulator():
    tasks = list(draw_tasks(1000, "train"))
    assert len({tuple(ask.text for ask in task.asks) for task in tasks}) == 1000
    assert len({call_path(row) for row in bare(tasks)}) > 950
    assert len({name for task in tasks for name in task.simulators}) == 8


def test_gold_conversations_pass_the_checker_and_nothing_less_does(rows):
    some = rows[:12]
    assert [r.value for r in scored([(r, script(r)) for r in some], "dialogue_binary")] == [
        1.0
    ] * 12
    assert [r.value for r in scored([(r, []) for r in some], "dialogue_binary")] == [0.0] * 12
    others = [(row, script(other)) for row, other in zip(some, (*some[1:], some[0]), strict=True)]
    assert sum(r.value or 0 for r in scored(others, "dialogue_binary")) == 0
    cut = []
    for row in some:
        said = script(row)
        last = max(n for n, text in enumerate(said) if text.startswith("<tool_call>"))
        cut.append((row, said[:last]))
    assert [r.value for r in scored(cut, "dialogue_binary")] == [0.0] * 12


def wrong(task: Drawn, *calls: tuple[str, dict[str, Any]]) -> str:
    """What the proof says about a task with other calls."""
    asks = (Ask(task.asks[0].text, tuple(ToolCall(*call) for call in calls), ""),)
    return prove([replace(task, asks=asks)])[0]["problem"]


def test_tasks_whose_calls_fail_do_nothing_or_are_not_there_are_found_out():
    task = next(t for t in draw_tasks(200, "train") if t.simulators == ("GorillaFileSystem",))
    tools = ({"name": "cat"}, {"name": "echo"}, {"name": "pwd"})
    task = replace(task, tools=tools)
    assert "fails" in wrong(task, ("cat", {"file_name": "nowhere.txt"}))
    assert "fails" in wrong(task, ("rm", {"file_name": "nowhere.txt"}))
    here = next(iter(task.config["GorillaFileSystem"]["root"].values()))["contents"]
    name, file = next((n, f) for n, f in here.items() if f["type"] == "file")
    same = {"content": file["content"], "file_name": name}
    assert "does and says nothing" in wrong(task, ("echo", same))
    assert "saying nothing passes" in wrong(task)
    assert wrong(task, ("cat", {"file_name": name})) == ""


@few("category", MULTI_TURN)
def test_no_task_asks_or_calls_what_the_benchmark_does(category):
    items = multi_turn_entries(category)
    made = [*drawn(1000, "train"), *drawn(250, "held_out")]
    found = overlap(made, items)
    assert not found.exact and not found.normalised and not found.paths
    assert not found.functions, "between rows with simulators, functions are shared by design"


def test_training_and_held_out_tasks_share_no_question_and_no_path():
    train, held_out = drawn(1000, "train"), drawn(250, "held_out")
    assert not overlap(train, held_out).train_ids
    assert not overlap(held_out, train).paths, "nor does a longer path hold a shorter one"


def test_a_task_that_takes_a_question_or_the_calls_of_the_benchmark_is_found():
    item = multi_turn_entries("multi_turn_base")[0]
    made = bare(draw_tasks(2, "train"))
    later = item.extra["entry"]["question"][2][0]["content"]
    question = replace(made[0], messages=(*made[0].messages, Message("user", later.upper())))
    calls = replace(made[1], gold=[made[1].gold[0], *item.gold])
    respelt = replace(
        calls,
        id="respelt",
        gold=[[c.replace("sort('", "sort(file_name='") for c in turn] for turn in calls.gold],
    )
    assert respelt.gold != calls.gold
    kept = separate([question, calls, respelt], [item])
    assert kept.rows == ()
    assert kept.dropped[PATH] == (calls.id, "respelt")


def test_the_episode_begins_with_what_the_gold_conversation_begins_with(rows):
    for row in rows[:10]:
        world = TASK.dialogue(row)
        asked = world.asks() if world else None
        assert asked is not None
        assert asked.messages == TASK.prompt(row)[: len(asked.messages)]
        assert asked.tools == row.tools


@pytest.mark.parametrize("count", ["", "0", "-3", "many", "1.5", str(MOST + 1)])
def test_a_source_without_a_number_of_tasks_is_refused(count):
    with pytest.raises(InputError, match="number of tasks"):
        read_simulated(count)
