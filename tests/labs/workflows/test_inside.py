"""In the sandbox a program finds AFlow's interface, and what becomes of it is told in one form."""

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from assay.labs.workflows.inside import checked_result
from assay.labs.workflows.run_program import INSIDE
from assay.sandbox.isolation import Mode, isolation_available
from assay.sandbox.limits import CallLimits, Limits
from assay.sandbox.pool import WorkerPool

LIMITS = Limits(cpu_seconds=20, memory_bytes=1 << 30, processes=8)
MODE: Mode = "namespaces" if isolation_available().tool else "limits-only"
TOTALS = {
    "total_input_tokens": 3,
    "total_output_tokens": 2,
    "total_tokens": 5,
    "call_count": 1,
    "total_cost": 0.5,
}


def parameter(name: str, kind: str = "text", default: Any = None) -> dict[str, Any]:
    return {"name": name, "kind": kind, "default": default}


OPERATORS = [
    {
        "name": "Custom",
        "parameters": [parameter("input"), parameter("instruction")],
    },
    {
        "name": "ScEnsemble",
        "parameters": [parameter("solutions", "texts"), parameter("problem")],
    },
    {
        "name": "Test",
        "parameters": [parameter("problem"), parameter("test_loop", "count", 3)],
    },
]
PUBLISHED = '''
from typing import Literal
import workspace.MATH.workflows.template.operator as operator
import workspace.MATH.workflows.round_1.prompt as prompt_custom
from scripts.async_llm import create_llm_instance

from scripts.evaluator import DatasetType
import asyncio, collections, itertools, json, math, random, re, statistics

class Workflow:
    def __init__(self, name: str, llm_config, dataset: DatasetType) -> None:
        self.name = name
        self.dataset = dataset
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)
        self.sc_ensemble = operator.ScEnsemble(self.llm)

    async def __call__(self, problem: str):
        """Three solutions at once, of which the ensemble takes one."""
        asked = [
            self.custom(input=problem, instruction=prompt_custom.SOLVE_PROMPT + str(n))
            for n in range(3)
        ]
        solutions = [each["response"] for each in await asyncio.gather(*asked)]
        best = await self.sc_ensemble(solutions=solutions, problem=problem)
        return best["response"], self.llm.get_usage_summary()["total_cost"]
'''
HEAD = """class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.custom = operator.Custom(self.llm)
        self.sc = operator.ScEnsemble(self.llm)
        self.test = operator.Test(llm=self.llm, name="Test")
    async def __call__(self, problem, entry_point=None):
"""
FIRST_LINE = 1 + HEAD.count("\n")


def body(*lines: str) -> str:
    return HEAD + "".join(f"        {line}\n" for line in lines)


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(INSIDE, 1, LIMITS, MODE, calls=CallLimits()) as served:
        yield served


@pytest.fixture
def seen() -> list[tuple[str, Mapping[str, Any]]]:
    return []


@pytest.fixture
def run(pool: WorkerPool, seen: list[Any]) -> Callable[..., Any]:
    """Runs a program; `seen` gets its calls, `reply` answers them."""

    def one(
        program: str,
        problem: str = "6 x 7",
        entry_point: str = "",
        reply: Mapping[str, Any] | None = None,
    ) -> Any:
        def host(name: str, arguments: Mapping[str, Any], number: int) -> Mapping[str, Any]:
            seen.append((name, arguments))
            return reply or {"result": {"response": f"{name} {number}"}, "usage": TOTALS}

        arguments = {"program": program, "problem": problem, "entry_point": entry_point}
        found = pool.run({**arguments, "operators": OPERATORS}, host, 30.0)
        return found if found.failure else found.value

    return one


def test_a_published_program_runs_over_stand_ins_for_the_modules_it_imports(
    run: Callable[..., Any], seen: list[Any]
) -> None:
    assert run(PUBLISHED) == {"answer": "ScEnsemble 3"}
    assert sorted(each["instruction"] for name, each in seen if name == "Custom") == ["0", "1", "2"]
    name, asked = seen[-1]
    assert (name, asked["problem"]) == ("ScEnsemble", "6 x 7")
    assert asked["solutions"] == ["Custom 0", "Custom 1", "Custom 2"]


def test_arguments_by_place_and_by_name_reach_the_lab_as_json_and_defaults_are_left_to_it(
    run: Callable[..., Any], seen: list[Any]
) -> None:
    run(
        body(
            "await self.custom(3.5, instruction=None)",
            "await self.sc((1, {'a': 'ü'}), problem=problem)",
            "await self.test(problem)",
            "await self.test(problem, test_loop=2)",
            "return problem",
        )
    )
    assert [each for _, each in seen] == [
        {"input": "3.5", "instruction": "None"},
        {"solutions": ["1", '{"a": "ü"}'], "problem": "6 x 7"},
        {"problem": "6 x 7"},
        {"problem": "6 x 7", "test_loop": 2},
    ]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("self.custom(problem)", "missing a required argument: 'instruction'"),
        ("self.test(problem, mode='x')", "got an unexpected keyword argument 'mode'"),
    ],
)
def test_a_wrong_call_raises_where_it_stands_and_asks_nothing(
    run: Callable[..., Any], seen: list[Any], call: str, why: str
) -> None:
    found = run(body("x = 1", f"return await {call}"))
    line = FIRST_LINE + 1
    assert found == {"error": "raised TypeError", "why": f"TypeError: {why}", "line": line}
    assert seen == []


def test_the_usage_is_the_labs_and_what_the_program_says_it_cost_is_thrown_away(
    run: Callable[..., Any],
) -> None:
    ask = "await self.custom(problem, '')"
    free = run(body("return str(self.llm.get_usage_summary()['total_cost']), -1"))
    assert free == {"answer": "0.0"}
    whole = run(body(ask, "return str(self.llm.get_usage_summary())"))
    assert ast.literal_eval(whole["answer"]) == {**TOTALS, "history": []}
    unknown = {"result": {}, "usage": {**TOTALS, "total_cost": None}}
    found = run(body(ask, "return str(self.llm.get_usage_summary()['total_cost'])"), reply=unknown)
    assert found == {"answer": "0.0"}


def test_an_operators_error_can_be_caught_and_ends_the_program_where_it_is_not(
    run: Callable[..., Any],
) -> None:
    error = {"error": "malformed", "why": "no letter", "usage": TOTALS}
    ask = "await self.custom(problem, '')"
    assert run(body("x = 1", f"return {ask}"), reply=error) == {
        "error": "operator malformed",
        "why": "no letter",
        "line": FIRST_LINE + 1,
    }
    caught = body("try:", f"    {ask}", "except Exception as error:", "    return error.kind")
    assert run(caught, reply=error) == {"answer": "malformed"}


@pytest.mark.parametrize(
    ("program", "error", "line"),
    [
        (body("x = {}", "return x['key']"), "raised KeyError", FIRST_LINE + 1),
        (body("def f(): return 1 / 0", "return f()"), "raised ZeroDivisionError", FIRST_LINE),
        (body("class Mine(ValueError): pass", "raise Mine('x')"), "raised ValueError", 9),
        (body("import json", "return json.loads('{')"), "raised JSONDecodeError", FIRST_LINE + 1),
        (body("return self.nothing"), "raised AttributeError", FIRST_LINE),
        (body("import workspace", "return workspace.prompt.x"), "raised AttributeError", 9),
        ("class Workflow:\n    def __init__(self", "raised SyntaxError", 2),
        ("x = 1\n1 / 0", "raised ZeroDivisionError", 2),
        ("class Workflow: pass", "raised TypeError", 0),
        ("workflow = 1", "no_workflow", 0),
        ("Workflow = 1", "no_workflow", 0),
        (body("return None"), "no_answer", 0),
        (body("return None, 0.1"), "no_answer", 0),
        (HEAD.replace("async ", "") + "        return 1", "raised TypeError", 0),
    ],
)
def test_what_a_program_raises_is_told_with_its_kind_and_line(
    run: Callable[..., Any], program: str, error: str, line: int
) -> None:
    found = run(program)
    assert (found["error"], found["line"]) == (error, line), found
    assert checked_result(found) == found


@pytest.mark.parametrize(
    ("returned", "answer"),
    [
        ("'text', 0.25", "text"),
        ("['a', 'ü'], 0.1", '["a", "ü"]'),
        ("{'response': 1}", '{"response": 1}'),
        ("'\\ud800 half'", "? half"),
    ],
)
def test_an_answer_is_text_and_a_cost_beside_it_is_ignored(
    run: Callable[..., Any], returned: str, answer: str
) -> None:
    assert run(body(f"return {returned}")) == {"answer": answer}


def test_a_code_problem_comes_with_its_entry_point(run: Callable[..., Any]) -> None:
    shown = body("return f'{problem} {entry_point} {self.test.name}'")
    assert run(shown, "write f", "f") == {"answer": "write f f Test"}
    assert run(shown, "write f", "") == {"answer": "write f None Test"}
    alone = shown.replace(", entry_point=None", "").replace("{entry_point} ", "")
    assert run(alone, "write f", "f")["error"] == "raised TypeError"


@pytest.mark.parametrize(
    "claim",
    [
        None,
        {},
        {"answer": "x", "error": "raised KeyError"},
        {"error": "raised " + "x" * 100, "why": "x", "line": 1},
        {"error": "raised KeyError", "why": "x" * 1000, "line": 1},
    ],
)
def test_a_claim_of_another_form_is_none(claim: Any) -> None:
    assert checked_result(claim) is None
