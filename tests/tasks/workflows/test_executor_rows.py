"""What the ladder's executor is taught can be read by its operators, and is right."""

import functools
import re
from collections import Counter

import pytest

from assay.errors import InputError
from assay.tasks.workflows.executor_rows import (
    AGREED,
    TAUGHT,
    questions,
    read_executor_rows,
)
from assay.tasks.workflows.operator_answers import chosen, read_answer
from assay.tasks.workflows.programs.operators import OPERATORS


@functools.cache
def taught_rows():
    return [each for make in TAUGHT.values() for each in make()]


@functools.cache
def all_asked():
    return [(each, asked) for each in taught_rows() for asked in questions(each)]


def of(name: str):
    return [(each, asked) for each, asked in all_asked() if asked.operator == name]


def read(asked):
    return read_answer(OPERATORS[asked.operator], asked.answer)


def test_every_answer_is_read_by_its_operator() -> None:
    for _, asked in all_asked():
        assert read(asked)
    assert {asked.operator for _, asked in all_asked()} == {
        "Custom",
        "AnswerGenerate",
        "Programmer",
        "ScEnsemble",
        "Review",
        "Revise",
    }


def test_the_answer_that_is_generated_is_the_gold_one() -> None:
    assert len(of("AnswerGenerate")) == len(taught_rows())
    for each, asked in of("AnswerGenerate"):
        assert read(asked)["answer"] == each.answer


def test_the_code_computes_the_answer() -> None:
    for each, asked in of("Programmer"):
        code = str(read(asked)["code"])
        assert re.fullmatch(r"[\w\s().,=+*/:\"'\[\]-]+", code), code
        world: dict = {}
        exec(code, world)  # written by `code_of` and `code_answer`
        assert world["solve"]() == pytest.approx(float(each.answer), rel=0.01)


def test_an_ensemble_names_the_first_of_the_most_frequent_answers() -> None:
    for _, asked in of("ScEnsemble"):
        solutions = asked.arguments["solutions"]
        ((most, count), *_) = Counter(solutions).most_common()
        assert count in AGREED and count > len(solutions) / 2
        operator = OPERATORS["ScEnsemble"]
        letter = str(read(asked)["solution_letter"])
        assert chosen(operator, solutions, letter) == most
        assert "ABCDEFG".index(letter) == solutions.index(most)


def test_a_review_is_right_about_its_solution() -> None:
    verdicts = []
    for each, asked in of("Review"):
        found = read(asked)
        assert found["review_result"] is (asked.arguments["solution"] == each.answer)
        assert bool(found["feedback"]) is not found["review_result"]
        verdicts.append(found["review_result"])
    assert 0.3 < sum(verdicts) / len(verdicts) < 0.7


def test_rows_differ_and_depend_on_nothing_but_the_data() -> None:
    first, second = (
        [row for side in TAUGHT for row in read_executor_rows(side).rows] for _ in range(2)
    )
    assert first == second
    assert len({row.id for row in first}) == len(first) == len(all_asked())
    with pytest.raises(InputError, match="side of executor"):
        read_executor_rows("test")
