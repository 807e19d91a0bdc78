"""The policy is told every operator exactly, and the problem last."""

import pytest

from assay.data.formats.problem_rows import TYPES
from assay.labs.workflows.programs.program import program_of
from assay.labs.workflows.programs.validate import validate
from assay.labs.workflows.task import prefix


@pytest.mark.parametrize("problem_type", TYPES)
def test_the_template_only_lacks_the_answer(problem_type: str) -> None:
    template = program_of(prefix(problem_type))
    assert template is not None
    is_code = problem_type == "code"
    assert [each.code for each in validate(template, code_problem=is_code)] == ["undefined_name"]
    done = template.replace("...", "answer = problem")
    assert validate(done, code_problem=is_code) == ()
