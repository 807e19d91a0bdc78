"""The page about workflow programs says what the code has."""

import re

from assay.labs.workflows.executor import READERS
from assay.labs.workflows.programs.program import GIVEN
from assay.labs.workflows.programs.validate import ALLOWED, validate
from tests.docs.pages import DOCS, blocks
from tests.docs.test_tables import between

PAGE = "workflow-programs.md"
TEXT = (DOCS / PAGE).read_text(encoding="utf-8")


def test_the_program_on_the_page_is_valid() -> None:
    assert validate(blocks(PAGE, "python")[0]) == ()


def test_the_example_prints_what_it_says(capsys) -> None:
    code = blocks(PAGE, "python")[1]
    exec(code, {})
    assert capsys.readouterr().out.strip() == code.strip().rpartition("# ")[2]


def test_imports_and_given_names_are_those_of_the_validator() -> None:
    named = set(re.findall(r"`(\w+)`", between(PAGE, "- `operator`", "AFlow's own modules")))
    assert {name for name in ALLOWED if "." not in name} <= named
    assert named <= {*ALLOWED, *GIVEN}


def test_every_operator_stands_in_the_table_of_answers() -> None:
    table = between(PAGE, "| operator | what is read", "AFlow hands on")
    assert all(name in table for name in READERS)
