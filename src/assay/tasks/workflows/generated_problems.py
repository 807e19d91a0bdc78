"""Generated problems whose best workflow depends on how hard they are, not on their topic alone.

  topic        level 1, one call answers it          level 2, code answers it
  arithmetic   a sum or difference below 30          a product of two and three digits, and a sum
  counting     a letter among 3 or 4                 a letter among 9 to 12
  order        the smallest or largest of 3          the k-th smallest of 6 or 7

All answers are whole numbers. A topic and level has one list of problems that differ, which the
sides divide: no problem is on two of them. Each has worked steps and code, to teach an executor.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from assay.data.formats.problem_rows import ENTRY_POINT, LEVEL, PROBLEM, PROBLEM_TYPE, TOPIC
from assay.data.loaded import Loaded
from assay.data.row import Message, Row
from assay.tasks.task import lookup

SIDES = {"sft": 50, "rl": 80, "dev": 15, "test": 40}
"""Problems of each topic and level; `sft` teaches an executor, `rl` and `dev` a policy."""
LEVELS = ("1", "2")
ORDINALS = ("smallest", "second smallest", "third smallest", "fourth smallest", "fifth smallest")


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
    """A sum, or a product and a sum."""
    if level == "1":
        a, b = sorted((chance.randint(1, 19), chance.randint(1, 10)), reverse=True)
        sign = chance.choice("+-")
        value = a + b if sign == "+" else a - b
        expression, steps = f"{a} {sign} {b}", f"{a} {sign} {b} = {value}"
    else:
        a, b, c = chance.randint(112, 987), chance.randint(12, 97), chance.randint(112, 987)
        value = a * b + c
        expression, steps = f"{a} * {b} + {c}", f"{a} * {b} = {a * b}\n{a * b} + {c} = {value}"
    asked = chance.choice(("What is {}?", "Calculate {}.", "Work out {}."))
    return Generated("arithmetic", level, asked.format(expression), value, steps, expression)


def counting(level: str, chance: random.Random) -> Generated:
    """How often a letter occurs in a row of letters."""
    few = chance.sample("abcdefghiklmnoprstu", 2 if level == "1" else 4)
    number = chance.randint(3, 4) if level == "1" else chance.randint(9, 12)
    row = " ".join(chance.choice(few) for _ in range(number))
    letter = few[0]
    asked = chance.choice(("How often is {} among {}?", "How many times does {} occur in {}?"))
    found = " ".join([letter] * row.count(letter)) or "none"
    code = f'"{row}".count("{letter}")'
    return Generated("counting", level, asked.format(letter, row), row.count(letter), found, code)


def order(level: str, chance: random.Random) -> Generated:
    """The smallest, the largest or the k-th smallest number of a list."""
    if level == "1":
        numbers, place = chance.sample(range(1, 30), 3), chance.choice((0, 2))
        which = "smallest" if place == 0 else "largest"
    else:
        numbers = chance.sample(range(10, 99), chance.randint(6, 7))
        place = chance.randint(1, len(ORDINALS) - 1)
        which = ORDINALS[place]
    listed, ordered = ", ".join(map(str, numbers)), sorted(numbers)
    asked = chance.choice(("Which is the {} of {}?", "Find the {} number: {}."))
    steps = ", ".join(map(str, ordered))
    code = f"sorted([{listed}])[{place}]"
    return Generated("order", level, asked.format(which, listed), ordered[place], steps, code)


TOPICS: Mapping[str, Callable[[str, random.Random], Generated]] = {
    "arithmetic": arithmetic,
    "counting": counting,
    "order": order,
}
"""By name."""


def generated(topic: str, side: str) -> tuple[Generated, ...]:
    """The problems of a topic and side, levels in turn. Raises UnknownNameError."""
    lookup(SIDES, side, f"side of {topic}")
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
    """The problems of a topic and side as rows. Raises UnknownNameError."""
    found = enumerate(generated(topic, side))
    return Loaded(tuple(row_of(each, f"{side}-{n}") for n, each in found))


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
    return f"```python\ndef solve():\n    return {each.code}\n```"
