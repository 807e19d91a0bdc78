"""The rows that the ladders draw from the files beside them."""

import json
from dataclasses import asdict, replace
from fractions import Fraction
from functools import cache
from itertools import pairwise

import pytest

from assay.data.episode import Completion
from assay.data.files import sha256_text
from assay.data.leakage import overlap, separate
from assay.data.row import Row
from assay.errors import InputError
from assay.labs.demos.task import TASK as DEMOS
from assay.labs.math.task import TASK as MATH
from assay.labs.tools.multi_turn import MULTI_TURN, multi_turn_entries
from assay.labs.tools.parsing import call_text
from assay.labs.tools.rewards import ast_check
from assay.labs.tools.single_turn import entries
from assay.labs.tools.task import TASK as TOOLS
from assay.labs.workflows.task import TASK as WORKFLOWS
from assay.tasks.running import RewardRunner
from assay.tasks.task import BenchmarkOptions, benchmark, read_source, reward, task
from tests.experiments.files import ROOT, shipped
from tests.labs.tools.scripted import play

FILES = {
    "verbs": "demos/verbs.py",
    "subjects": "demos/subjects.py",
    "workflows": "workflows/problems.py",
    "tools": "tools/generated_rows.py",
    "math": "math/asdiv.py",
}
TWO = {"operators": ["Custom", "Programmer"]}
TESTED = {"sources": [f"{name}:test" for name in ("arithmetic", "calendar", "order", "asdiv")]}
TESTED |= {"rows": 60, "price": 24000.0, **TWO}
DRAWN = {
    ("verbs", "verbs:train", '{"pool": 8, "shots": 2}'): "e128c8529c3f",
    ("verbs", "verbs:train", '{"pool": 8, "shots": 2, "each": 6}'): "6c40ac2ad187",
    ("verbs", "demos/verbs", '{"pool": 8, "shots": 2}'): "af8a91772120",
    ("workflows", "executor:asdiv", "{}"): "40987fb4e183",
    ("workflows", "executor:generated", "{}"): "12b53e58eafa",
    ("workflows", "order:rl", json.dumps(TWO)): "0caa8a0d6fce",
    ("workflows", "asdiv:dev", json.dumps(TWO)): "285bbc2b3b9b",
    ("workflows", "calendar:rl", json.dumps({**TWO, "programs": 4})): "3ee9ee53bee6",
    ("workflows", "workflows/problems", json.dumps(TESTED)): "609706ce75bd",
    ("tools", "generated_calls:300", "{}"): "a395fbd59b5c",
    ("tools", "generated_calls_held_out:200", "{}"): "c5d589ebc6e2",
    ("tools", "simulated:54", "{}"): "3ed16907a071",
    ("tools", "simulated_held_out:20", "{}"): "a3ff364d51a9",
    ("math", "asdiv:sft", "{}"): "a9188197350c",
    ("math", "asdiv:rl_expressions", "{}"): "dca02d669069",
    ("math", "math/asdiv", "{}"): "742af7caddbc",
}
"""sha256 of the rows by file, source or benchmark, and options, as the results were made with."""


SIMULATED = ("tools", "simulated:54", "{}")


@cache
def rows_of(file: str, name: str, options: str) -> tuple[Row, ...]:
    chosen = BenchmarkOptions(json.loads(options), ROOT)
    own = task(f"path:experiments/{FILES[file]}", ROOT)
    scheme, _, side = name.partition(":")
    return (
        read_source(own, scheme, side, chosen).rows if side else benchmark(own, name, chosen).items
    )


@pytest.mark.parametrize("drawn", DRAWN, ids=lambda each: f"{each[1]} {each[2]}")
def test_the_ladders_rows_are_those_of_their_results(drawn: tuple[str, str, str]) -> None:
    lines = [
        json.dumps(asdict(row), sort_keys=True, default=str, ensure_ascii=False)
        for row in rows_of(*drawn)
    ]
    assert sha256_text("\n".join(lines))[:12] == DRAWN[drawn]


def test_generated_calls_are_right_by_bfcls_checker_and_need_what_the_question_names() -> None:
    for row in rows_of("tools", "generated_calls:100", "{}"):
        (call,), (possible,) = row.messages[-1].tool_calls, row.gold[0].values()
        named = {name for name, values in possible.items() if len(values) == 1 and values != [""]}
        assert ast_check(row, [call]).valid and call.arguments.keys() == named
        for name in named:
            rest = {key: value for key, value in call.arguments.items() if key != name}
            assert not ast_check(row, [replace(call, arguments=rest)]).valid


def test_generated_rows_share_no_function_and_no_question_with_the_tests() -> None:
    made = rows_of("tools", "generated_calls:300", "{}")
    held_out = rows_of("tools", "generated_calls_held_out:200", "{}")
    assert separate(made, [*entries("simple_python"), *held_out]).rows == made
    talks = [*rows_of(*SIMULATED), *rows_of("tools", "simulated_held_out:20", "{}")]
    for category in MULTI_TURN:
        found = overlap(talks, multi_turn_entries(category))
        assert not found.exact and not found.normalised and not found.paths


def test_simulated_conversations_pass_the_checker_and_nothing_less_does() -> None:
    own, some = task("path:experiments/tools/generated_rows.py", ROOT), rows_of(*SIMULATED)[:8]
    said = [
        [call_text(m.tool_calls) or m.content for m in row.messages if m.role == "assistant"]
        for row in some
    ]
    pairs = [*zip(some, said, strict=True), *zip(some, [*said[1:], []], strict=True)]
    played = [(row, play(own.dialogue(row), texts)) for row, texts in pairs]  # type: ignore[arg-type]
    with RewardRunner(own.rewards["dialogue_binary"], workers=1) as runner:
        assert [reward.value for reward in runner.score(played)] == [1.0] * 8 + [0.0] * 8


def test_asdivs_problems_have_steps_that_hold_on_sides_that_share_no_template() -> None:
    asdiv = shipped("math/asdiv.py")
    sides = {side: asdiv.read_asdiv(side) for side in asdiv.SIDES}
    assert sum(len(s.rows) + sum(map(len, s.dropped.values())) for s in sides.values()) == 2305
    templates = [{row.conversation for row in loaded.rows} for loaded in sides.values()]
    assert sum(map(len, templates)) == len(set().union(*templates))
    for row in asdiv.read_asdiv("sft_expressions").rows:
        right = Completion(asdiv.TASK.target(row).content)
        assert asdiv.calculator(row, right).value == 1.0
    for row in sides["sft"].rows:
        *steps, last = row.messages[-1].content.splitlines()
        assert len(steps) == row.extra["operations"] >= 1 and last == f"#### {row.gold}"
        for one, other in pairwise(step.split(" = ") for step in steps):
            assert other[0].startswith(one[1] + " ")


SUMS = {"(6 * 4) - 3": 21, "0.1+0.2": Fraction(3, 10), "1/3*6": 2, "1,450 * 2": 2900}
NO_SUMS = ["9**9**9", "7//2", "5(3)", "1 2", "0/0", "(5", "5 +", "", "()", "x + 1", "(1).real"]
NO_SUMS += ["1e5", "+".join("1" * 60), "(" * 99, "exit()"]


@pytest.mark.parametrize("text", [*SUMS, *NO_SUMS])
def test_a_short_sum_of_numbers_is_worked_out_exactly_and_nothing_else(text: str) -> None:
    assert shipped("math/asdiv.py").worked_out(text) == SUMS.get(text)


def test_what_a_lab_once_brought_is_named_with_its_file() -> None:
    moved = ((TOOLS, "simulated"), (MATH, "asdiv"), (DEMOS, "verbs"), (DEMOS, "easy-vqa"))
    for own, scheme in (*moved, (WORKFLOWS, "arithmetic")):
        with pytest.raises(InputError, match=r"is no longer built in: experiments/\w+/\w+\.py"):
            read_source(own, scheme, "train", BenchmarkOptions())
    with pytest.raises(InputError, match=r"path:experiments/demos/verbs\.py"):
        benchmark(DEMOS, "demos/verbs", BenchmarkOptions({"pool": 8}))
    for own, name in ((TOOLS, "tools.strict_binary_as_reported"), (MATH, "reasoning_accuracy")):
        with pytest.raises(InputError, match=r"is no longer built in"):
            reward(own, name)
