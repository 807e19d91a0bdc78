"""A right program that is spoiled in one place is found wrong there, whatever the program."""

# pyright: reportAttributeAccessIssue=false, reportOptionalOperand=false

import ast
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.labs.workflows.programs.operators import OPERATORS
from assay.labs.workflows.programs.validate import validate
from tests.experiments.files import shipped
from tests.labs.workflows.programs.good_programs import CODE, HEAD, TEXT

WARM_UP = shipped("workflows/warm_up.py")
ATTRIBUTES = {operator.attribute: operator for operator in OPERATORS.values()}
GENERATED = [(kind, name) for kind, names in WARM_UP.STRATEGIES.items() for name in names]
WRITTEN = [*TEXT.values(), *CODE.values()]
Spoiled = tuple[str, tuple[str, int]]
"""A program, and the finding that it has at least."""


@st.composite
def generated(draw: st.DrawFn) -> str:
    kind, name = draw(st.sampled_from(GENERATED))
    return WARM_UP.draw_one(name, kind, random.Random(draw(st.integers(0, 99))))[0].source


PROGRAMS = st.one_of(generated(), st.sampled_from(WRITTEN))


def findings(source: str) -> set[tuple[str, int]]:
    is_code = "self, problem, entry_point" in source
    return {(each.code, each.line) for each in validate(source, code_problem=is_code)}


def with_text(source: str, node: ast.AST, old: str, new: str) -> str:
    """The source with `old` where a node begins as `new`; lines stay as they are."""
    lines = source.split("\n")
    text, column = lines[node.lineno - 1], node.col_offset
    assert text[column:].startswith(old), (text[column:], old)
    lines[node.lineno - 1] = text[:column] + new + text[column + len(old) :]
    return "\n".join(lines)


def spoilings(source: str) -> list[Spoiled]:
    """Every way to spoil a program in one place that the validator has to find."""
    found: list[Spoiled] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Await(value=ast.Call(func=ast.Attribute(attr=attr))) if attr in ATTRIBUTES:
                if "def ask" not in source:  # what a helper hands on is its caller's
                    bad = with_text(source, node, "await ", "")
                    found.append((bad, ("not_awaited", node.lineno)))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="operator"), attr=attr)):
                bad = with_text(source, node.func, f"operator.{attr}", f"operator.{attr}X")
                found.append((bad, ("unknown_operator", node.lineno)))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=attr), keywords=given):
                if attr in ATTRIBUTES:
                    bad = source.replace(f"self.{attr} =", "self.other =")
                    found.append((bad, ("not_instantiated", node.lineno)))
                    for each in (each for each in given if each.arg):
                        bad = with_text(source, each, str(each.arg), f"an{each.arg}")
                        found.append((bad, ("unknown_parameter", each.lineno)))
            case ast.AsyncFunctionDef(name="__call__"):
                bad = with_text(source, node, "async def __call__", "async def call")
                line = source[: source.index("class Workflow")].count("\n") + 1
                found.append((bad, ("no_call", line)))
    return found


@given(PROGRAMS, st.randoms())
def test_what_is_spoiled_is_found(source: str, chance: random.Random) -> None:
    assert findings(source) == set()
    places = spoilings(source)
    bad, finding = chance.choice(places)
    assert finding in findings(bad)


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
