"""Two programs have one shape where they differ in wording only."""

import random

import pytest

from assay.labs.workflows.programs.program import shape_of
from tests.experiments.files import shipped
from tests.labs.workflows.programs.good_programs import TEXT, text

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
        ("r =", "r  ="),
        ("range(3)", "range(7)"),
        ('"Solve."', '"Think about it."'),
        ("for i in", "for _ in"),
        ("self.custom", "self.solver"),
        ("problem", "question"),
        ("self, problem):", "self, problem: str) -> str:"),
        ("        answers = []", '        """Solves it."""\n        answers = []'),
        ("class Workflow", "import math\n\n\nclass Workflow"),
        ("        answers = []", "        # Solves it.\n        answers = []"),
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
        ("answers.append", "answers.extend"),
        ("input=problem", "input=answers"),
        ("for i in range(3):", "while True:"),
        ('r["response"]', 'r.get("response")'),
        ("range(3)", "range(3, 4)"),
        ("range(3)", "range(3.0)"),
        ("await self.sc_ensemble", "await self.md_ensemble"),
        ("        return", "        best = best\n        return"),
        ("range(3)", "range(1 + 2)"),
    ],
)
def test_what_a_program_does_counts(old: str, new: str) -> None:
    assert old in BASE
    assert fingerprint(BASE.replace(old, new, 1)) != fingerprint(BASE)


def test_operators_differ_in_kind_not_only_in_number() -> None:
    plus = fingerprint(text("return str(1 + 2 < 3)"))
    assert plus != fingerprint(text("return str(1 - 2 < 3)"))
    assert plus != fingerprint(text("return str(1 + 2 > 3)"))


def test_the_operators_that_are_called_are_the_combination() -> None:
    shape = shape_of(BASE)
    assert shape is not None and shape.combination == "Custom+ScEnsemble"


def test_calls_through_imports_and_variables_count() -> None:
    for name in (
        "aflow",
        "from import",
        "dotted import",
        "local operator",
        "alias of an attribute",
    ):
        shape = shape_of(TEXT[name])
        assert shape is not None
        assert shape.combination == "Custom"


def test_each_strategy_has_shapes_of_its_own() -> None:
    for kind, names in WARM_UP.STRATEGIES.items():
        shapes = {
            name: fingerprint(WARM_UP.draw_one(name, kind, random.Random(1))[0].source)
            for name in names
        }
        assert len(set(shapes.values())) == len(names)
