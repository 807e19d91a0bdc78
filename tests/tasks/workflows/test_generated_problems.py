"""Generated problems have right answers, and no problem of one side is on another."""

import re
from collections import Counter
from datetime import date, timedelta

import pytest

from assay.errors import InputError
from assay.tasks.workflows.generated_problems import (
    LEVELS,
    ORDINALS,
    SIDES,
    TOPICS,
    Generated,
    code_answer,
    generated,
    generated_problems,
)

ALL = {side: [p for topic in TOPICS for p in generated(topic, side)] for side in SIDES}
EVERY = [each for several in ALL.values() for each in several]


def read_arithmetic(text: str) -> int:
    """By hand, from the question alone."""
    a, sign, b, *rest = re.findall(r"\d+|[-+*]", text)
    first = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[sign]
    return first + (int(rest[1]) if rest else 0)


def read_order(text: str) -> int:
    numbers = [*map(int, re.findall(r"\d+", text))]
    for name, place in (("first", 0), ("last", -1)):
        if re.search(rf"the {name}\b", text):
            return numbers[place]
    (place,) = [n for n, name in enumerate(ORDINALS) if re.search(rf"the {name}\b", text)]
    return sorted(numbers)[place]


def read_calendar(text: str) -> int:
    """By counting days one after another: those of the month, or of the year up to the day."""
    *days, year = map(int, re.findall(r"\d+", text))
    months = [date(2001, n, 1).strftime("%B") for n in range(1, 13)]
    (month,) = [n for n, name in enumerate(months, start=1) if name in text]
    everyday = [date(year, 1, 1) + timedelta(n) for n in range(366)]
    if days:
        return everyday.index(date(year, month, days[0])) + 1
    return sum(each.month == month and each.year == year for each in everyday)


READ = {"arithmetic": read_arithmetic, "order": read_order, "calendar": read_calendar}


@pytest.mark.parametrize("topic", TOPICS)
def test_answers_follow_from_the_questions(topic: str) -> None:
    own = [each for each in EVERY if each.topic == topic]
    assert len(own) == len(LEVELS) * sum(SIDES.values())
    for each in own:
        assert READ[topic](each.question) == each.answer, each


def test_the_code_that_teaches_comes_to_the_answer() -> None:
    for each in EVERY:
        world: dict = {}
        exec(code_answer(each).removeprefix("```python\n").removesuffix("```"), world)
        assert world["solve"]() == each.answer


def test_sides_share_no_problem_and_have_as_many_of_each_kind() -> None:
    asked = {side: {each.code for each in own} for side, own in ALL.items()}
    for side, own in ALL.items():
        assert len(asked[side]) == len(own), "asked in other words alone"
        kinds = Counter((each.topic, each.level) for each in own)
        assert kinds == dict.fromkeys([(t, n) for t in TOPICS for n in LEVELS], SIDES[side])
        for other in SIDES:
            assert side == other or not asked[side] & asked[other]


def test_hard_problems_are_longer_than_easy_ones_in_every_topic() -> None:
    """The levels can be told apart by a reader of the question."""
    for topic in TOPICS:
        easy, hard = (
            [len(each.question) for each in EVERY if (each.topic, each.level) == (topic, level)]
            for level in LEVELS
        )
        assert sum(easy) / len(easy) < sum(hard) / len(hard)


def test_rows_are_problems_with_their_topic_and_level() -> None:
    rows = [row for topic in TOPICS for row in generated_problems(topic, "dev").rows]
    assert len({row.id for row in rows}) == len(rows) == len(ALL["dev"])
    for row, each in zip(rows, ALL["dev"], strict=True):
        assert isinstance(each, Generated)
        assert row.gold == str(each.answer) and row.extra["problem"] == each.question
        assert (row.extra["topic"], row.extra["level"]) == (each.topic, each.level)
    with pytest.raises(InputError, match="side of order"):
        generated_problems("order", "train")
