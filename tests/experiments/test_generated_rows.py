"""Generated rows stay the same for good, are right by BFCL's own checkers, and stay apart."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.data.episode import Reward
from assay.data.leakage import overlap, separate
from assay.data.renderings.hermes import call_text
from assay.data.row import Row
from assay.errors import InputError
from assay.tasks.running import RewardRunner
from assay.tasks.task import BaseTask, task
from assay.tasks.tools.checker import ast_check
from assay.tasks.tools.multi_turn import MULTI_TURN, multi_turn_entries
from assay.tasks.tools.single_turn import entries
from tests.few import few
from tests.tasks.tools.scripted import play

ROOT = Path(__file__).parents[2]
FILE = "path:experiments/tools/generated_rows.py"
SHA256 = {
    "generated_calls:300": "be4c16a33784d4bc7f1ba604c720449b55cb35daa3d5ae95e908aa0c5cbc66dd",
    "generated_calls_held_out:200": ""
    "d32d6fa98f96d24e0a74c3043d3daaae9768a2f31acf7fec17019e0069d9bfc5",
    "simulated:54": "f654ab3c97ddf824d9f9b79a163e8d7794bd097951008835b8f02e966698d192",
    "simulated_held_out:20": "c39050a47c00d5a89f62d07c6e5c1d7d50b292faf873ce5c9bc5e4f19a77eccf",
}


@pytest.fixture(scope="module")
def lab() -> BaseTask:
    return task(FILE, ROOT)  # type: ignore[return-value]


def rows(lab: BaseTask, source: str) -> tuple[Row, ...]:
    scheme, _, count = source.partition(":")
    loaded = lab.sources[scheme](count)
    assert not loaded.dropped
    return loaded.rows


@few("source", SHA256)
def test_rows_are_those_that_earlier_runs_trained_on(lab: BaseTask, source: str):
    values = [dataclasses.asdict(row) for row in rows(lab, source)]
    text = json.dumps([{k: value[k] for k in KEPT} for value in values], sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest() == SHA256[source]


KEPT = ("id", "messages", "tools", "gold", "conversation", "extra")


def test_calls_are_right_by_bfcls_checker_and_an_argument_that_is_named_may_not_be_left_out(lab):
    for row in rows(lab, "generated_calls:100"):
        (call,) = row.messages[-1].tool_calls
        (possible,) = row.gold[0].values()
        named = {name for name, values in possible.items() if len(values) == 1 and values != [""]}
        assert ast_check(row, [call]).valid and call.arguments.keys() == named
        for name in named:
            rest = {key: value for key, value in call.arguments.items() if key != name}
            assert not ast_check(row, [dataclasses.replace(call, arguments=rest)]).valid


def test_training_held_out_and_the_tests_share_no_function_and_no_question(lab):
    made = rows(lab, "generated_calls:300")
    held_out = rows(lab, "generated_calls_held_out:150")
    assert separate(made, [*entries("simple_python"), *held_out]).rows == made
    talks = [*rows(lab, "simulated:60"), *rows(lab, "simulated_held_out:20")]
    for category in MULTI_TURN:
        found = overlap(talks, multi_turn_entries(category))
        assert not found.exact and not found.normalised and not found.paths


def scored(lab: BaseTask, pairs: Sequence[tuple[Row, Sequence[str]]]) -> list[Reward]:
    """What the reward gives for scripts played in the rows' own worlds."""
    played = []
    for row, said in pairs:
        world = lab.dialogue(row)
        assert world is not None
        played.append((row, play(world, said)))
    with RewardRunner(lab.rewards["dialogue_binary"], workers=1) as runner:
        return runner.score(played)


def script(row: Row) -> list[str]:
    """What the model says in the gold conversation."""
    answers = [m for m in row.messages if m.role == "assistant"]
    return ["\n".join(map(call_text, m.tool_calls)) or m.content for m in answers]


def test_gold_conversations_pass_the_checker_and_nothing_less_does(lab):
    some = rows(lab, "simulated:8")
    assert {reward.value for reward in scored(lab, [(r, script(r)) for r in some])} == {1.0}
    others = [(row, script(other)) for row, other in zip(some, (*some[1:], some[0]), strict=True)]
    assert {reward.value for reward in scored(lab, [*others, (some[0], [])])} == {0.0}


def test_a_count_that_is_none_and_the_built_in_task_say_how_to_write_it(lab):
    for count in ("", "0", "-1", "many", "1e3", "99999999999"):
        with pytest.raises(InputError, match=r"no number of questions.*write \"generated_calls"):
            lab.sources["generated_calls"](count)
    with pytest.raises(InputError, match=r"task = \"path:experiments/tools/generated_rows.py\""):
        task("tools").sources["simulated"]("20")
