"""The policy is told every operator exactly, and the problem last."""

import re

import pytest

from assay.data.formats.problem_rows import TYPES
from assay.labs.workflows.programs.operators import OPERATORS
from assay.labs.workflows.programs.program import program_of
from assay.labs.workflows.programs.validate import validate
from assay.labs.workflows.task import prefix


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_stands_there_with_its_parameters_and_keys(name: str) -> None:
    operator = OPERATORS[name]
    (line,) = [each for each in prefix("math").split("\n") if each.startswith(f"{name}(")]
    given, _, returned = line.partition(" -> ")
    found = re.findall(r"(\w+)(?:: list)?(?:=[^,)]+)?(?=[,)])", given)
    assert found == [each.name for each in operator.parameters]
    assert re.findall(r"\w+", returned.replace(": bool", "")) == list(operator.returns)
    for each in operator.parameters:
        assert (f"{each.name}={each.default!r}" in given) == (not each.required)


@pytest.mark.parametrize("problem_type", TYPES)
def test_the_template_only_lacks_the_answer(problem_type: str) -> None:
    template = program_of(prefix(problem_type))
    assert template is not None
    is_code = problem_type == "code"
    assert [each.code for each in validate(template, code_problem=is_code)] == ["undefined_name"]
    done = template.replace("...", "answer = problem")
    assert validate(done, code_problem=is_code) == ()
