"""The page about workflow programs says what the code has."""

from assay.labs.workflows.programs.validate import validate
from tests.docs.pages import DOCS, blocks

PAGE = "workflow-programs.md"
TEXT = (DOCS / PAGE).read_text(encoding="utf-8")


def test_the_program_on_the_page_is_valid() -> None:
    assert validate(blocks(PAGE, "python")[0]) == ()


def test_the_example_prints_what_it_says(capsys) -> None:
    code = blocks(PAGE, "python")[1]
    exec(code, {})
    assert capsys.readouterr().out.strip() == code.strip().rpartition("# ")[2]
