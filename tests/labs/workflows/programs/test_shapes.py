"""Two programs have one shape where they differ in wording only."""

import pytest

from assay.labs.workflows.programs.program import shape_of
from tests.experiments.files import shipped
from tests.labs.workflows.programs.good_programs import text

WARM_UP = shipped("workflows/warm_up.py")
BASE = text("""
answers = []
for i in range(3):
    r = await self.custom(input=problem, instruction="Solve.")
    answers.append(r["response"])
best = await self.sc_ensemble(solutions=answers, problem=problem)
return best["response"]
""")


def fingerprint(source: str) -> str:
    shape = shape_of(source)
    assert shape is not None
    return shape.fingerprint


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("answers", "found"),
        ("range(3)", "range(7)"),
        ('"Solve."', '"Think about it."'),
        ("problem", "question"),
        ("self, problem):", "self, problem: str) -> str:"),
        ("        answers = []", '        """Solves it."""\n        answers = []'),
        ("class Workflow", "import math\n\n\nclass Workflow"),
    ],
)
def test_names_constants_imports_and_notes_do_not_count(old: str, new: str) -> None:
    assert old in BASE
    source = BASE.replace(old, new)
    if old == "problem":
        # Keywords are an operator's, no names of the program.
        source = source.replace("question=question", "problem=question")
    assert fingerprint(source) == fingerprint(BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("operator.Custom(", "operator.AnswerGenerate("),
        ("input=problem", "input=answers"),
        ("for i in range(3):", "while True:"),
        ('r["response"]', 'r.get("response")'),
        ("range(3)", "range(3.0)"),
        ("await self.sc_ensemble", "await self.md_ensemble"),
        ("        return", "        best = best\n        return"),
    ],
)
def test_what_a_program_does_counts(old: str, new: str) -> None:
    assert old in BASE
    assert fingerprint(BASE.replace(old, new, 1)) != fingerprint(BASE)


def test_the_operators_that_are_called_are_the_combination() -> None:
    shape = shape_of(BASE)
    assert shape is not None and shape.combination == "Custom+ScEnsemble"
