"""What the executor is asked holds the arguments as they are, and no empty parts."""

import re

from hypothesis import given
from hypothesis import strategies as st

from assay.labs.workflows.programs.operators import OPERATORS, question


@given(st.text(), st.text())
def test_custom_is_the_instruction_and_the_input_with_nothing_between(
    text: str, instruction: str
) -> None:
    asked = question(OPERATORS["Custom"], {"input": text, "instruction": instruction})
    assert asked == instruction + text


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
