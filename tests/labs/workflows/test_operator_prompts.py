"""What the executor is asked holds the arguments as they are, and no empty parts."""

import re

from hypothesis import given
from hypothesis import strategies as st

from assay.labs.workflows.programs.operators import OPERATORS, checked_arguments, question


def test_braces_and_placeholders_in_a_text_stay_text() -> None:
    hostile = "{solution} {0.__class__} {{x}} \\1 \\g<0> {feedback}"
    arguments = {"problem": hostile, "solution": "MINE", "feedback": "THEIRS"}
    asked = question(OPERATORS["Revise"], arguments)
    assert hostile in asked
    assert asked.count("MINE") == 1
    assert asked.count("THEIRS") == 1


@given(st.text(), st.text())
def test_custom_is_the_instruction_and_the_input_with_nothing_between(
    text: str, instruction: str
) -> None:
    asked = question(OPERATORS["Custom"], {"input": text, "instruction": instruction})
    assert asked == instruction + text


def test_parts_without_an_argument_are_left_out() -> None:
    programmer = OPERATORS["Programmer"]
    bare = question(programmer, checked_arguments(programmer, {"problem": "1+1"}))
    assert bare.startswith("1+1\n\nWrite a Python function solve()")
    assert "Analysis" not in bare
    assert "failed" not in bare
    full = question(programmer, {"problem": "1+1", "analysis": "Add.", "feedback": "NameError"})
    assert "\n\nAnalysis: Add.\n\n" in full
    assert "\n\nYour last code failed:\nNameError\n\n" in full


@given(st.text(min_size=1).filter(lambda text: text.strip() not in ("", "None")))
def test_every_text_argument_is_in_the_question_unchanged(text: str) -> None:
    for operator in OPERATORS.values():
        given_ = {
            each.name: [text] if each.kind == "texts" else text
            for each in operator.parameters
            if each.kind != "count"
        }
        asked = question(operator, given_)
        assert len(re.findall(re.escape(text), asked)) >= 1
