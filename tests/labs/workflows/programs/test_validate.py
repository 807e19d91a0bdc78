"""The validator lets right programs pass and names what is wrong with others, and where."""

import pytest

from assay.labs.workflows.execution import CODES, REFUSED
from assay.labs.workflows.programs.validate import validate
from tests.labs.workflows.programs.bad_programs import BAD, BAD_CODE, WHOLE, expected
from tests.labs.workflows.programs.good_programs import AFLOW, CODE, TEXT, text


def codes(source: str, code_problem: bool = False) -> set[tuple[str, int]]:
    return {(each.code, each.line) for each in validate(source, code_problem=code_problem)}


@pytest.mark.parametrize("name", TEXT | CODE)
def test_a_right_program_has_no_findings(name: str) -> None:
    assert validate((TEXT | CODE)[name], code_problem=name in CODE) == ()


@pytest.mark.parametrize("name", BAD | BAD_CODE)
def test_what_is_wrong_is_found_on_its_line_and_nothing_else_is(name: str) -> None:
    source = (BAD | BAD_CODE)[name]
    assert codes(source, "entry_point" in source or name in BAD_CODE) == expected(source)
    assert expected(source)


@pytest.mark.parametrize("name", WHOLE)
def test_a_text_without_a_workflow_is_one_finding(name: str) -> None:
    source, code = WHOLE[name]
    (finding,) = validate(source)
    assert finding.code == code


def test_every_code_is_reached_by_a_program() -> None:
    reached = {code for source in (BAD | BAD_CODE).values() for code, _ in expected(source)}
    reached |= {code for _, code in WHOLE.values()}
    # Limits of length and depth have tests of their own.
    codes = {code for family in REFUSED for code in CODES[family].split()}
    late = {"no_program", "no_answer", "operator_setup", "needless_await", "wrong_type"}
    assert reached | {"too_long", "too_deep"} | late == codes


def test_the_class_that_counts_is_the_last_one() -> None:
    assert codes("class Workflow:\n    pass\n\n\n" + AFLOW) == set()
    assert ("no_call", 25 + 4) in codes(AFLOW + "\n\nclass Workflow:\n    pass\n")


def test_findings_stand_in_the_order_of_lines_and_are_bounded() -> None:
    source = text("\n".join("self.custom(problem)" for _ in range(30)) + "\nreturn 'x'")
    findings = validate(source)
    assert len(findings) >= 30
    assert [each.line for each in findings] == sorted(each.line for each in findings)
