"""ASDiv's problems are read with steps that hold, on sides that share no template."""

import re
from collections import Counter
from fractions import Fraction

import pytest

from assay.data.episode import Completion
from assay.errors import InputError
from assay.tasks import task as tasks
from assay.tasks.math.asdiv import SIDES, numbers_in, read_asdiv, template, worked_steps, written
from assay.tasks.math.rewards import calculator
from assay.tasks.math.task import TASK
from assay.tasks.task import BenchmarkOptions


@pytest.fixture(scope="module")
def sides() -> dict:
    return {side: read_asdiv(side) for side in SIDES}


def test_every_problem_is_on_one_side_or_dropped_with_its_reason(sides: dict) -> None:
    kept = Counter({side: len(loaded.rows) for side, loaded in sides.items()})
    dropped = Counter(
        {why: len(ids) for loaded in sides.values() for why, ids in loaded.dropped.items()}
    )
    assert (
        kept.total() + sum(len(ids) for loaded in sides.values() for ids in loaded.dropped.values())
        == 2305
    )
    assert set(dropped) == {"its answer is not one plain number", "no steps come to its answer"}
    assert kept["test"] >= 400


def test_no_template_is_on_two_sides(sides: dict) -> None:
    of_side = [{row.conversation for row in loaded.rows} for loaded in sides.values()]
    assert sum(map(len, of_side)) == len(set().union(*of_side))
    one = template("Ann has 3 apples and buys 12. How many?")
    assert one == template("Ann has seven apples and buys 1,000. How many?")
    assert one != template("Ann has 3 pears and buys 12. How many?")


def test_each_step_holds_and_the_last_is_the_answer(sides: dict) -> None:
    for row in sides["sft"].rows:
        *steps, last = row.messages[-1].content.splitlines()
        assert len(steps) == row.extra["operations"] >= 1 and last == f"#### {row.gold}"
        for step in steps:
            left, sign, right, equals, value = step.split()
            done = {
                "+": Fraction(left) + Fraction(right),
                "-": Fraction(left) - Fraction(right),
                "*": Fraction(left) * Fraction(right),
                "/": Fraction(left) / (Fraction(right) or 1),
            }
            assert equals == "=" and done[sign] == Fraction(value)
        assert steps[-1].endswith(f"= {row.gold}")


@pytest.mark.parametrize(
    ("question", "numbers"),
    [
        ("Seven red apples and 2 green ones", [7, 2]),
        ("forty-five puppies, a half left", [45, Fraction(1, 2)]),
        ("1,450 nails at $0.25", [1450, Fraction(1, 4)]),
        ("an ice-cold day", []),
    ],
)
def test_numbers_are_read_in_figures_and_in_words(question: str, numbers: list) -> None:
    assert list(numbers_in(question)) == numbers


def test_the_likeliest_chain_uses_all_numbers_in_their_order() -> None:
    assert worked_steps([Fraction(n) for n in (2, 8, 2)], Fraction(12)) == (
        "2 + 8 = 10",
        "10 + 2 = 12",
    )
    # A step with 1 as a factor says nothing, and no child goes below zero.
    assert worked_steps([Fraction(1), Fraction(5)], Fraction(5)) == ()
    assert worked_steps([Fraction(3), Fraction(5)], Fraction(-2)) == ()
    assert written(Fraction(1, 8)) == "0.125" and written(Fraction(2, 3)) == "2/3"


def test_the_benchmark_is_the_test_side_and_the_side_has_to_exist(sides: dict) -> None:
    made = tasks.benchmark(tasks.task("math"), "math/asdiv", BenchmarkOptions({}))
    assert made.items == sides["test"].rows
    with pytest.raises(InputError, match="train"):
        read_asdiv("train")


def test_an_expression_works_out_to_the_answer_and_another_does_not(sides: dict) -> None:
    for side, loaded in sides.items():
        solved = {row.id: row for row in loaded.rows if row.extra["operations"]}
        unsolved = read_asdiv(f"{side}_expressions").rows
        assert [row.id for row in unsolved] == list(solved)
        for row in unsolved:
            expression = row.gold or ""
            said = TASK.target(row).content
            assert said == rf"\boxed{{{expression}}}" and re.search(" [-+*/] ", expression)
            exact = re.sub(r"[\d.]+", r"Fraction('\g<0>')", expression)
            assert eval(exact, {"Fraction": Fraction}) == Fraction(solved[row.id].gold)
            for gold in (row, solved[row.id]):
                assert calculator(gold, Completion(said)).value == 1.0
                wrong = rf"\boxed{{({expression}) + 1}}"
                assert calculator(gold, Completion(wrong)).value == 0.0
