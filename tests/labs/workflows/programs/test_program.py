"""The program is the first Python block of a completion, or the text from its class on."""

import pytest

from assay.labs.workflows.programs.program import program_of

PROGRAM = "class Workflow:\n    x = 1\n"


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{PROGRAM}```",
        f"I call it twice.\n```python\n{PROGRAM}```\nThat is all.",
        f"```Python  \n{PROGRAM}\n\n```",
        f"```py\n{PROGRAM}```",
        f"```python\n{PROGRAM}",
        f"```python\n{PROGRAM}```\n```python\nclass Workflow: pass\n```",
        f"```\nnotes\n```\n```python\n{PROGRAM}```",
        PROGRAM,
        f"Here it is.\n{PROGRAM}",
        f"{PROGRAM}```",
        f"```\n{PROGRAM}```\nDone.",
    ],
)
def test_the_program_is_found(text: str) -> None:
    assert program_of(text) == PROGRAM


@pytest.mark.parametrize(
    "text", ["", "I cannot.", "```python\n```", "```python\n \n```", "the class Workflow: is"]
)
def test_a_text_without_a_program_has_none(text: str) -> None:
    assert program_of(text) is None


def test_a_block_counts_even_if_it_is_not_the_class() -> None:
    assert program_of(f"```python\nx = 1\n```\n{PROGRAM}") == "x = 1\n"
