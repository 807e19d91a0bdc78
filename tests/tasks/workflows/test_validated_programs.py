"""The validator and the world of programs agree: what passes runs, what cannot run fails."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from assay.sandbox.isolation import Mode, isolation_available
from assay.sandbox.limits import Limits, Outcome
from assay.sandbox.program_pool import ProgramPool
from assay.tasks.workflows.aflow_modules import stand_ins
from assay.tasks.workflows.generated_programs import STRATEGIES, draw_one
from assay.tasks.workflows.operators import OPERATORS, checked_arguments, described
from assay.tasks.workflows.program_names import GIVEN
from tests.tasks.workflows.bad_programs import BAD, BAD_CODE, expected
from tests.tasks.workflows.good_programs import CODE, TEXT

LIMITS = Limits(cpu_seconds=20, memory_bytes=1 << 30, processes=8)
MODE: Mode = "namespaces" if isolation_available().tool else "limits-only"
FATAL = frozenset(
    {"unknown_operator", "operator_setup", "not_instantiated", "unset_attribute", "unknown_key"}
    | {"undefined_name", "unknown_parameter", "repeated_parameter", "missing_parameter", "syntax"}
    | {"too_many_arguments", "llm_attribute", "needless_await", "no_call", "no_init", "not_async"}
    | {"call_arguments"}
)
"""Codes of what Python itself refuses when it gets there; the others are the lab's rules."""
GENERATED = [
    (draw_one(name, kind, random.Random(0))[0].source, kind == "code")
    for kind, names in STRATEGIES.items()
    for name in names
]
RIGHT = [(source, False) for source in TEXT.values()] + [(s, True) for s in CODE.values()]
WRONG = {
    name: (source, "entry_point" in source or name in BAD_CODE)
    for name, source in (BAD | BAD_CODE).items()
    if {code for code, _ in expected(source)} <= FATAL and name != "unknown key by get"
}


@pytest.fixture(scope="module")
def pool() -> Iterator[ProgramPool]:
    with ProgramPool("assay.tasks.workflows.inside:run_workflow", 1, LIMITS, MODE) as made:
        yield made


def host(name: str, arguments: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Every text is "7", every verdict False; wrong arguments raise."""
    operator = OPERATORS[name]
    checked_arguments(operator, arguments)
    result = {key: False if kind == "bool" else "7" for key, kind in operator.returns.items()}
    return {"result": result, "usage": {}}


def outcome(pool: ProgramPool, source: str, is_code: bool) -> Outcome:
    arguments = {"program": source, "problem": "What?", "entry_point": "f" if is_code else ""}
    return pool.run({**arguments, "operators": described()}, host, 20.0).outcome


def test_names_that_need_no_import_are_those_of_the_world() -> None:
    assert stand_ins({}, object).keys() == GIVEN


def test_what_the_validator_lets_pass_runs(pool: ProgramPool) -> None:
    for source, is_code in (*RIGHT, *GENERATED):
        done = outcome(pool, source, is_code)
        assert done.failure is None, (done, source)
        assert "answer" in done.value, (done, source)


def test_what_python_refuses_does_not_run(pool: ProgramPool) -> None:
    assert len(WRONG) > 40
    for name, (source, is_code) in WRONG.items():
        done = outcome(pool, source, is_code)
        assert done.failure is None, (name, done)
        assert "answer" not in done.value, (name, done)
