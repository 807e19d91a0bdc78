"""Generated programs are valid, varied, short, and the same for the same seed."""

import random
import re

import pytest

from assay.data.row import Message, Row
from assay.errors import InputError
from assay.tasks.workflows.generated_programs import (
    STRATEGIES,
    draw_one,
    draw_programs,
    policy_prompt,
    warm_up_rows,
)
from assay.tasks.workflows.programs.operators import OPERATORS
from assay.tasks.workflows.programs.program import program_of, shape_of
from assay.tasks.workflows.programs.validate import validate

WORD = re.compile(r"\w+|[^\w\s]")


def problem(name: str, problem_type: str) -> Row:
    extra = {"problem_type": problem_type} | (
        {"entry_point": "f"} if problem_type == "code" else {}
    )
    return Row(name, (Message("user", f"What is {name}?"),), gold="4", extra=extra)


@pytest.mark.parametrize(
    ("problem_type", "name"), [(kind, name) for kind, names in STRATEGIES.items() for name in names]
)
def test_every_strategy_writes_valid_short_programs(problem_type: str, name: str) -> None:
    sources = set()
    for seed in range(10):
        drawn, plan = draw_one(name, problem_type, random.Random(seed))
        assert validate(drawn.source, code_problem=problem_type == "code") == ()
        shape = shape_of(drawn.source)
        assert shape is not None
        assert set(shape.operators) == set(plan.operators)
        assert len(WORD.findall(drawn.source)) < 260
        sources.add(drawn.source)
    assert len(sources) > 1


def test_operators_that_are_not_allowed_are_not_used() -> None:
    allowed = {name: OPERATORS[name] for name in ("AnswerGenerate", "ScEnsemble")}
    for each in draw_programs("math", 8, random.Random(0), allowed):
        assert validate(each.source, operators=allowed) == ()
    with pytest.raises(InputError) as failure:
        draw_programs("code", 1, random.Random(0), allowed)
    assert failure.value.field == "operators"


def test_warm_up_rows_ask_as_the_policy_is_asked_and_answer_in_a_fence() -> None:
    problems = [problem("one", "math"), problem("two", "code"), problem("three", "qa")]
    rows = warm_up_rows(problems, 3, 2)
    assert [row.id for row in rows] == ["one:0", "one:1", "two:0", "two:1", "three:0", "three:1"]
    for row, asked in zip(rows, [each for each in problems for _ in range(2)], strict=True):
        problem_type = str(asked.extra["problem_type"])
        entry_point = str(asked.extra.get("entry_point", ""))
        user, answer = row.messages
        text = asked.messages[0].content
        assert user == Message("user", policy_prompt(text, problem_type, entry_point))
        assert answer.role == "assistant"
        assert answer.content.startswith("```python\nclass Workflow:")
        assert answer.content.endswith("\n```")
        program = program_of(answer.content)
        assert program is not None
        assert validate(program, code_problem=problem_type == "code") == ()
        assert (row.gold, row.conversation) == ("4", asked.id)
        assert row.extra["strategy"] in STRATEGIES[problem_type]


def test_rows_depend_on_the_seed_and_the_problem_alone() -> None:
    problems = [problem(f"p{n}", "math") for n in range(6)]
    rows = warm_up_rows(problems, 1, 2)
    assert rows == warm_up_rows(problems, 1, 2)
    assert rows[4:] == warm_up_rows(problems[2:], 1, 2)
    assert rows != warm_up_rows(problems, 2, 2)
    assert len({row.messages[1].content for row in rows}) > 6


def test_a_problem_without_a_type_is_refused() -> None:
    with pytest.raises(InputError) as failure:
        warm_up_rows([Row("one", (Message("user", "x"),))], 0, 1)
    assert failure.value.field == "problem_type"
