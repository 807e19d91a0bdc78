"""The table of operators is AFlow's, and wrong arguments are refused by name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.labs.workflows.programs.operators import (
    MOST_COUNT,
    MOST_SOLUTIONS,
    OPERATORS,
    OperatorFailed,
    checked_arguments,
    described,
)

# (name, parameters with defaults, result keys) as AFlow's scripts/operators.py has them.
AFLOW = {
    "Custom": ({"input": ..., "instruction": ...}, ["response"]),
    "AnswerGenerate": ({"input": ...}, ["thought", "answer"]),
    "CustomCodeGenerate": (
        {"problem": ..., "entry_point": ..., "instruction": ...},
        ["response"],
    ),
    "Programmer": ({"problem": ..., "analysis": "None"}, ["code", "output"]),
    "ScEnsemble": ({"solutions": ..., "problem": ...}, ["response"]),
    "Test": (
        {"problem": ..., "solution": ..., "entry_point": ..., "test_loop": 3},
        ["result", "solution"],
    ),
    "Review": ({"problem": ..., "solution": ...}, ["review_result", "feedback"]),
    "Revise": ({"problem": ..., "solution": ..., "feedback": ...}, ["solution"]),
    "Format": ({"problem": ..., "solution": ...}, ["solution"]),
    "MdEnsemble": ({"solutions": ..., "problem": ...}, ["solution"]),
}


@pytest.mark.parametrize("name", AFLOW)
def test_parameters_defaults_and_keys_are_aflows(name: str) -> None:
    operator = OPERATORS[name]
    assert OPERATORS.keys() == AFLOW.keys()
    parameters = {each.name: ... if each.required else each.default for each in operator.parameters}
    assert (parameters, list(operator.returns)) == AFLOW[name]
    assert list(parameters) == list(AFLOW[name][0])


def test_verdicts_are_bools_and_all_else_is_text() -> None:
    types = {(o.name, key): kind for o in OPERATORS.values() for key, kind in o.returns.items()}
    bools = {place for place, kind in types.items() if kind == "bool"}
    assert bools == {("Review", "review_result"), ("Test", "result")}
    assert set(types.values()) == {"bool", "str"}


def test_what_is_described_is_json_and_whole() -> None:
    told = json.loads(json.dumps(described()))
    assert [each["name"] for each in told] == list(OPERATORS)
    (test,) = [each for each in told if each["name"] == "Test"]
    assert test["parameters"][-1] == {
        "name": "test_loop",
        "kind": "count",
        "required": False,
        "default": 3,
    }
    assert test["parameters"][0]["required"]


def test_arguments_come_back_in_order_with_defaults() -> None:
    given_ = {"entry_point": "f", "solution": "s", "problem": "p"}
    checked = checked_arguments(OPERATORS["Test"], given_)
    assert list(checked.items()) == [
        ("problem", "p"),
        ("solution", "s"),
        ("entry_point", "f"),
        ("test_loop", 3),
    ]
    assert checked_arguments(OPERATORS["Test"], {**given_, "test_loop": 1})["test_loop"] == 1


@pytest.mark.parametrize(
    ("name", "arguments", "part"),
    [
        ("Custom", {"input": "x"}, "'instruction'"),
        ("Custom", {"input": "x", "instructions": "", "instruction": ""}, "'instructions'"),
        ("Custom", {"input": None, "instruction": ""}, "NoneType"),
        ("Custom", {"input": 3, "instruction": ""}, "int"),
        ("Custom", {"input": {"response": "x"}, "instruction": ""}, "dict"),
        ("ScEnsemble", {"solutions": "x", "problem": ""}, "a list of texts"),
        ("ScEnsemble", {"solutions": [], "problem": ""}, "not of 0"),
        ("ScEnsemble", {"solutions": ["x"] * (MOST_SOLUTIONS + 1), "problem": ""}, "not of 27"),
        ("ScEnsemble", {"solutions": ["x", 3], "problem": ""}, "a list of texts"),
        ("Test", {"problem": "", "solution": "", "entry_point": "", "test_loop": True}, "whole"),
        ("Test", {"problem": "", "solution": "", "entry_point": "", "test_loop": 0}, "whole"),
        ("Test", {"problem": "", "solution": "", "entry_point": "", "test_loop": 2.0}, "whole"),
        (
            "Test",
            {"problem": "", "solution": "", "entry_point": "", "test_loop": MOST_COUNT + 1},
            "whole",
        ),
    ],
)
def test_wrong_arguments_are_refused_by_name(name: str, arguments: dict, part: str) -> None:
    with pytest.raises(OperatorFailed) as failure:
        checked_arguments(OPERATORS[name], arguments)
    assert failure.value.kind == "arguments"
    assert part in failure.value.why
    assert name in failure.value.why


@given(st.lists(st.text(), min_size=1, max_size=MOST_SOLUTIONS), st.text())
def test_right_arguments_stay_as_they_are(solutions: list[str], problem: str) -> None:
    arguments = {"solutions": tuple(solutions), "problem": problem}
    checked = checked_arguments(OPERATORS["MdEnsemble"], arguments)
    assert checked == {"solutions": solutions, "problem": problem}
