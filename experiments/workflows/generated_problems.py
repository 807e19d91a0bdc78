"""Generated problems whose best workflow depends on how hard they are, not on their topic alone.

  topic        level 1, one call answers it          level 2, code answers it
  arithmetic   a sum of a round number               a product of two and three digits, and a sum
  order        the first or last of three numbers    the k-th smallest of 6 or 7
  calendar     the days of a month                   which day of its year a date is

All answers are whole numbers. A topic and level has one list of problems that differ, which the
sides divide: no problem is on two of them. Each has worked steps and code, to teach an executor.
"""

import random
from calendar import month_name, monthrange
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache, partial

from assay.data.formats.problem_rows import ENTRY_POINT, LEVEL, PROBLEM, PROBLEM_TYPE, TOPIC
from assay.data.loaded import Loaded
from assay.data.row import Message, Row
from assay.errors import look_up

SIDES = {"sft": 50, "rl": 80, "dev": 15, "test": 40}
"""Problems of each topic and level; `sft` teaches an executor, `rl` and `dev` a policy."""
LEVELS = ("1", "2")
ORDINALS = ("smallest", "second smallest", "third smallest", "fourth smallest", "fifth smallest")


IMPORTS = {
    "date": "from datetime import date\n",
    "monthrange": "from calendar import monthrange\n",
}
"""What code that begins with a name stands on."""


@dataclass(frozen=True, slots=True)
class Generated:
    """One problem."""

    topic: str
    level: str
    question: str
    answer: int
    steps: str
    """What leads to the answer, in words of the answer's own kind."""
    code: str
    """The expression that `solve()` returns; it names the problem too."""


def arithmetic(level: str, chance: random.Random) -> Generated:
    """A round number and a smaller one, or a product and a sum."""
    if level == "1":
        a, b = chance.randint(1, 9) * 100, chance.randint(1, 99)
        value = a + b
        expression, steps = f"{a} + {b}", f"{a} + {b} = {value}"
    else:
        a, b, c = chance.randint(112, 987), chance.randint(12, 97), chance.randint(112, 987)
        value = a * b + c
        expression, steps = f"{a} * {b} + {c}", f"{a} * {b} = {a * b}\n{a * b} + {c} = {value}"
    asked = chance.choice(("What is {}?", "Calculate {}."))
    return Generated("arithmetic", level, asked.format(expression), value, steps, expression)


def order(level: str, chance: random.Random) -> Generated:
    """The first or last of three numbers as they stand, or the k-th smallest of six or seven."""
    numbers = chance.sample(range(10, 99), 3 if level == "1" else chance.randint(6, 7))
    if level == "1":
        which, place = chance.choice((("first", 0), ("last", 2)))
        ordered, code = numbers, f"{numbers}[{place}]"
    else:
        place = chance.randint(1, len(ORDINALS) - 1)
        which, ordered, code = ORDINALS[place], sorted(numbers), f"sorted({numbers})[{place}]"
    listed, steps = (", ".join(map(str, each)) for each in (numbers, ordered))
    asked = chance.choice(("Which is the {} of {}?", "Find the {} number: {}."))
    return Generated("order", level, asked.format(which, listed), ordered[place], steps, code)


def calendar(level: str, chance: random.Random) -> Generated:
    """The days of a month, or the place of a date in its year."""
    year, month = chance.randint(2001, 2050), chance.randint(1, 12)
    days = monthrange(year, month)[1]
    if level == "1":
        question = f"How many days has {month_name[month]} {year}?"
        code = f"monthrange({year}, {month})[1]"
        return Generated("calendar", level, question, days, f"{days} days", code)
    day = date(year, month, chance.randint(1, days))
    question = f"Which day of the year is {day.day} {day:%B} {year}?"
    code = f"date({year}, {month}, {day.day}).timetuple().tm_yday"
    place = day.timetuple().tm_yday
    return Generated("calendar", level, question, place, f"day {place}", code)


TOPICS: Mapping[str, Callable[[str, random.Random], Generated]] = {
    "arithmetic": arithmetic,
    "order": order,
    "calendar": calendar,
}
"""By name."""


def generated(topic: str, side: str) -> tuple[Generated, ...]:
    """The problems of a topic and side, levels in turn. Raises InputError."""
    look_up(SIDES, side, f"side of {topic}")
    start = sum(list(SIDES.values())[: list(SIDES).index(side)])
    lists = [different(topic, level)[start : start + SIDES[side]] for level in LEVELS]
    return tuple(each for several in zip(*lists, strict=True) for each in several)


@cache
def different(topic: str, level: str) -> tuple[Generated, ...]:
    """So many problems of a topic and level as all sides take, no two with one code: problems that
    are asked in other words alone are one problem."""
    chance = random.Random(f"{topic} {level}")
    found: dict[str, Generated] = {}
    while len(found) < sum(SIDES.values()):
        made = TOPICS[topic](level, chance)
        found.setdefault(made.code, made)
    return tuple(found.values())


def generated_problems(topic: str, side: str) -> Loaded:
    """The problems of a topic and side as rows. Raises InputError."""
    found = enumerate(generated(topic, side))
    return Loaded(tuple(row_of(each, f"{side}-{n}") for n, each in found))


GENERATED: Mapping[str, Callable[[str], Loaded]] = {
    topic: partial(generated_problems, topic) for topic in TOPICS
}
"""Readers by topic, which is the scheme of a source."""


def row_of(each: Generated, name: str) -> Row:
    """A problem as a row."""
    extra = {PROBLEM: each.question, PROBLEM_TYPE: "math", ENTRY_POINT: ""}
    return Row(
        id=f"{each.topic}-{each.level}-{name}",
        messages=(Message("user", each.question),),
        gold=str(each.answer),
        origin="generated",
        extra={**extra, TOPIC: each.topic, LEVEL: each.level},
    )


def code_answer(each: Generated) -> str:
    """The answer that teaches an executor's Programmer: the code in a fence."""
    needed = IMPORTS.get(each.code.partition("(")[0], "")
    return f"```python\n{needed}def solve():\n    return {each.code}\n```"
