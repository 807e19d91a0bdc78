"""A right program that is spoiled in one place is found wrong there, whatever the program."""

# pyright: reportAttributeAccessIssue=false, reportOptionalOperand=false, reportPossiblyUnboundVariable=false

import ast
import random
from collections.abc import Iterator
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.tasks.workflows.generated_programs import STRATEGIES, draw_one
from assay.tasks.workflows.programs.operators import OPERATORS
from assay.tasks.workflows.programs.validate import validate
from tests.tasks.workflows.programs.good_programs import CODE, HEAD, TEXT

Node = TypeVar("Node", bound=ast.AST)
ATTRIBUTES = {operator.attribute: operator for operator in OPERATORS.values()}
GENERATED = [(kind, name) for kind, names in STRATEGIES.items() for name in names]
WRITTEN = [*TEXT.values(), *CODE.values()]


@st.composite
def generated(draw: st.DrawFn) -> str:
    kind, name = draw(st.sampled_from(GENERATED))
    return draw_one(name, kind, random.Random(draw(st.integers(0, 99))))[0].source


PROGRAMS = st.one_of(generated(), st.sampled_from(WRITTEN))


def findings(source: str) -> set[tuple[str, int]]:
    is_code = "self, problem, entry_point" in source
    return {(each.code, each.line) for each in validate(source, code_problem=is_code)}


def nodes(source: str, kind: type[Node]) -> list[Node]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, kind)]


def call_method(source: str) -> ast.AsyncFunctionDef:
    (call,) = [each for each in nodes(source, ast.AsyncFunctionDef) if each.name == "__call__"]
    return call


def spoiled(source: str, line: int, column: int, old: str, new: str) -> str:
    """The source with `old` at a place of it as `new`; lines stay as they are."""
    lines = source.split("\n")
    text = lines[line - 1]
    assert text[column:].startswith(old), (text[column:], old)
    lines[line - 1] = text[:column] + new + text[column + len(old) :]
    return "\n".join(lines)


def operator_calls(source: str) -> Iterator[tuple[ast.Call, str]]:
    """The calls of operators that attributes of `self` hold, and the attributes."""
    for node in nodes(source, ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self" | "this"), attr=attr)):
                if attr in ATTRIBUTES:
                    yield node, attr


@given(PROGRAMS)
def test_programs_are_right_before_they_are_spoiled(source: str) -> None:
    assert findings(source) == set()


@given(PROGRAMS, st.randoms())
def test_an_await_that_is_left_out_is_found(source: str, chance: random.Random) -> None:
    calls = [call for call, _ in operator_calls(source)]
    awaits = [
        each for each in nodes(source, ast.Await) if ast.dump(each.value) in map(ast.dump, calls)
    ]
    if awaits:
        node = chance.choice(awaits)
        bad = spoiled(source, node.lineno, node.col_offset, "await ", "")
        assert ("not_awaited", node.lineno) in findings(bad)


@given(PROGRAMS, st.randoms())
def test_an_operator_that_there_is_not_is_found(source: str, chance: random.Random) -> None:
    made = [
        each.func
        for each in nodes(source, ast.Call)
        if isinstance(each.func, ast.Attribute) and each.func.attr in OPERATORS
    ]
    if made:
        node = chance.choice(made)
        column = (node.end_col_offset or 0) - len(node.attr)
        bad = spoiled(source, node.lineno, column, node.attr, node.attr + "X")
        assert ("unknown_operator", node.lineno) in findings(bad)


@given(PROGRAMS, st.randoms())
def test_a_renamed_keyword_is_found_and_with_it_what_is_missing(
    source: str, chance: random.Random
) -> None:
    named = [
        (call, keyword, ATTRIBUTES[attribute])
        for call, attribute in operator_calls(source)
        for keyword in call.keywords
        if keyword.arg
    ]
    if named:
        call, keyword, operator = chance.choice(named)
        name = str(keyword.arg)
        bad = spoiled(source, keyword.lineno, keyword.col_offset, name, "an" + name)
        found = findings(bad)
        assert ("unknown_parameter", keyword.lineno) in found
        required = {each.name for each in operator.parameters if each.required}
        assert (("missing_parameter", call.lineno) in found) == (name in required)


@given(PROGRAMS, st.randoms())
def test_an_operator_that_is_never_made_is_found_where_it_is_called(
    source: str, chance: random.Random
) -> None:
    calls = list(operator_calls(source))
    if calls:
        call, attribute = chance.choice(calls)
        bad = source.replace(f"self.{attribute} =", "self.other =")
        if bad != source:
            assert ("not_instantiated", call.lineno) in findings(bad)


@given(generated(), st.randoms())
def test_a_key_that_no_result_has_is_found(source: str, chance: random.Random) -> None:
    reads = [each for each in nodes(source, ast.Subscript) if isinstance(each.slice, ast.Constant)]
    node = chance.choice(reads)
    key = ast.unparse(node.slice).replace("'", '"')
    bad = spoiled(source, node.slice.lineno, node.slice.col_offset, key, '"nothing"')
    assert findings(bad) <= {("unknown_key", node.lineno)}


@given(PROGRAMS)
def test_an_only_return_that_is_left_out_is_found(source: str) -> None:
    call = call_method(source)
    last = call.body[-1]
    if isinstance(last, ast.Return) and len(nodes(source, ast.Return)) == 1:
        bad = spoiled(source, last.lineno, last.col_offset, "return ", "_ = ")
        assert ("no_return", call.lineno) in findings(bad)


@given(PROGRAMS)
def test_a_plain_call_is_found(source: str) -> None:
    call = call_method(source)
    bad = spoiled(source, call.lineno, call.col_offset, "async def", "def")
    codes = {code for code, _ in findings(bad)}
    assert codes & {"syntax", "not_async"}


@given(PROGRAMS, st.sampled_from(["os", "sys", "subprocess", "socket", "requests", "numpy"]))
def test_an_import_from_outside_is_found(source: str, module: str) -> None:
    before = source.replace("from __future__ import annotations", "")
    assert findings(f"import {module}\n{before}") >= {("import_not_allowed", 1)}


@given(PROGRAMS, st.sampled_from(["class", "__call__", "llm_config"]))
def test_a_frame_without_a_part_is_found(source: str, part: str) -> None:
    assert findings(source.replace(part, part[:-1] + "X", 1)) != set()


@pytest.mark.parametrize("attribute", sorted(ATTRIBUTES))
def test_each_operator_needs_its_own_arguments_and_has_its_own_keys(attribute: str) -> None:
    operator = ATTRIBUTES[attribute]
    values = {"text": "problem", "texts": "[problem]", "count": "2"}
    given_all = [f"{each.name}={values[each.kind]}" for each in operator.parameters]

    def program(arguments: str, key: str) -> str:
        answer = f'        return (await self.{attribute}({arguments}))["{key}"]\n'
        return f"{HEAD}    async def __call__(self, problem):\n{answer}"

    first = next(iter(operator.returns))
    line = program("", "").count("\n")
    for key in operator.returns:
        assert findings(program(", ".join(given_all), key)) == set()
    assert findings(program(", ".join(given_all), "nothing")) == {("unknown_key", line)}
    for number, each in enumerate(operator.parameters):
        without = program(", ".join(given_all[:number] + given_all[number + 1 :]), first)
        assert findings(without) == ({("missing_parameter", line)} if each.required else set())
