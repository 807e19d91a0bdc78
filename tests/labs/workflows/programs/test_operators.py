"""The table of operators is AFlow's, and wrong arguments are refused by name."""

import pytest

from assay.labs.workflows.inside import OperatorError
from assay.labs.workflows.programs.operators import (
    MOST_COUNT,
    MOST_SOLUTIONS,
    OPERATORS,
    checked_arguments,
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
        ("Custom", {"input": None, "instruction": ""}, "NoneType"),
        ("ScEnsemble", {"solutions": "x", "problem": ""}, "a list of texts"),
        ("ScEnsemble", {"solutions": [], "problem": ""}, "not of 0"),
        ("ScEnsemble", {"solutions": ["x"] * (MOST_SOLUTIONS + 1), "problem": ""}, "not of 27"),
        ("Test", {"problem": "", "solution": "", "entry_point": "", "test_loop": True}, "whole"),
        (
            "Test",
            {"problem": "", "solution": "", "entry_point": "", "test_loop": MOST_COUNT + 1},
            "whole",
        ),
    ],
)
def test_wrong_arguments_are_refused_by_name(name: str, arguments: dict, part: str) -> None:
    with pytest.raises(OperatorError) as failure:
        checked_arguments(OPERATORS[name], arguments)
    assert failure.value.kind == "arguments"
    assert part in failure.value.why
    assert name in failure.value.why
