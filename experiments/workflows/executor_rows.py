"""Rows that teach a small executor model the operators of the ladder's programs.

ASDiv's worked problems and generated ones, each asked by AnswerGenerate and Programmer, and by some
of Custom, ScEnsemble, Review and Revise, drawn for each row. What the model is asked is the
operator's own question, so that it is met again when a program runs. Nothing here says which
operator suits which problem.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generated_problems import TOPICS, code_answer, generated, row_of
from warm_up import ANALYSES, INSTRUCTIONS

from assay.data.loaded import Loaded
from assay.data.row import Message, Row
from assay.errors import look_up
from assay.labs.workflows.programs.operators import LETTERS, OPERATORS, checked_arguments, question
from assay.tasks.user_code import load_file

read_asdiv = load_file("../math/asdiv.py", Path(__file__).parent).module.read_asdiv

NAMES = "abcdefgh"
DRAWN = {"math": 2, "qa": 1}
"""Further operators that a row is asked by."""
CUSTOMS = 4
"""Of a generated problem: its easy ones can be learned by heart."""
AGREED = (2, 3)
"""Of an ensemble's solutions, how many agree: most of three or of five."""
WRONG_FEEDBACK = "Check the numbers and what is asked."


@dataclass(frozen=True, slots=True)
class Taught:
    """A problem that the executor learns from."""

    row: Row
    kind: str
    """Its type of problem."""
    problem: str
    steps: str
    """What leads to the answer."""
    answer: str
    others: Sequence[str]
    """Answers that are wrong here."""
    code: str = ""
    """What Programmer should write; "" where nothing is computed."""
    customs: int = 0
    """How often Custom asks for the answer alone; else once, or not at all, in words of its own."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of an operator and its answer."""

    operator: str
    arguments: Mapping[str, Any]
    answer: str


def read_executor_rows(side: str) -> Loaded:
    """The rows of one of `TAUGHT`, none of which a policy's sides have. Raises InputError."""
    found = look_up(TAUGHT, side, "side of executor")()
    rows = [_row(each, n, a) for each in found for n, a in enumerate(questions(each))]
    return Loaded(tuple(rows))


def worked_problems() -> list[Taught]:
    """ASDiv's, with the steps that were found for them."""
    worked = [(row, *row.messages[-1].content.split("\n#### ")) for row in read_asdiv("sft").rows]
    numbers = sorted({answer for *_, answer in worked})
    return [
        Taught(
            row,
            "math",
            row.messages[0].content,
            steps,
            answer,
            _without(numbers, answer),
            code_of(steps),
        )
        for row, steps, answer in worked
    ]


def generated_ones() -> list[Taught]:
    """Generated problems, easy ones and hard ones alike."""
    return [
        Taught(
            row_of(each, f"sft-{number}"),
            "math",
            each.question,
            each.steps,
            str(each.answer),
            [str(each.answer + by) for by in (-2, -1, 1, 2, 10)],
            code_answer(each),
            CUSTOMS,
        )
        for topic in TOPICS
        for number, each in enumerate(generated(topic, "sft"))
    ]


TAUGHT: Mapping[str, Callable[[], list[Taught]]] = {
    "asdiv": worked_problems,
    "generated": generated_ones,
}
"""By the side of `executor:SIDE`."""


def _without(answers: Sequence[str], right: str) -> list[str]:
    return [each for each in answers if each != right]


def questions(each: Taught) -> list[Asked]:
    """What a problem is asked by; which further operators depends on its id alone."""
    chance = random.Random(each.row.id)
    found = [
        Asked("AnswerGenerate", {"input": each.problem}, thought(each.steps, each.answer)),
        *([_program(each)] if each.kind == "math" else []),
    ]
    found += [_short(each, chance) for _ in range(each.customs)]
    further = [make for make in FURTHER if each.kind == "math" or make is not _analysed]
    if each.customs:
        further = [make for make in further if make is not _custom]
    count = 1 if each.customs else DRAWN[each.kind]
    return [*found, *(make(each, chance) for make in chance.sample(further, count))]


def _program(each: Taught, analysis: str = "None") -> Asked:
    given = {"problem": each.problem, "analysis": analysis}
    return Asked("Programmer", given, each.code)


def _analysed(each: Taught, chance: random.Random) -> Asked:
    return _program(each, each.steps)


def _custom(each: Taught, chance: random.Random) -> Asked:
    """With steps where the instruction asks for them, without an answer where it asks for an
    analysis, else the answer alone."""
    analyses = ANALYSES if each.kind == "math" else ()
    instruction = chance.choice(["", *INSTRUCTIONS[each.kind], *analyses])
    answer = each.answer
    if instruction in ANALYSES:
        answer = each.steps
    elif "step" in instruction:
        answer = f"{each.steps}\n#### {each.answer}"
    return Asked("Custom", {"input": each.problem, "instruction": instruction}, answer)


def _short(each: Taught, chance: random.Random) -> Asked:
    """The answer alone, whatever the instruction."""
    instruction = chance.choice(["", "", *INSTRUCTIONS[each.kind]])
    return Asked("Custom", {"input": each.problem, "instruction": instruction}, each.answer)


def _ensemble(each: Taught, chance: random.Random) -> Asked:
    """Three or five answers, most of them alike, right or not; the first of these is named."""
    agreed = chance.choice(AGREED)
    most, *rest = chance.sample([each.answer, *chance.sample(each.others, 3)], 4)
    solutions = [most] * agreed + rest[: agreed - 1]
    chance.shuffle(solutions)
    given = {"solutions": solutions, "problem": each.problem}
    return Asked("ScEnsemble", given, LETTERS[solutions.index(most)])


def _review(each: Taught, chance: random.Random) -> Asked:
    right = chance.random() < 0.5
    solution = each.answer if right else chance.choice(each.others)
    said = "True" if right else f"False. {WRONG_FEEDBACK}"
    return Asked("Review", {"problem": each.problem, "solution": solution}, said)


def _revise(each: Taught, chance: random.Random) -> Asked:
    wrong = chance.choice(each.others)
    given = {"problem": each.problem, "solution": wrong, "feedback": WRONG_FEEDBACK}
    return Asked("Revise", given, each.answer)


FURTHER: Sequence[Callable[[Taught, random.Random], Asked]] = (
    _custom,
    _custom,
    _analysed,
    _ensemble,
    _review,
    _revise,
)
"""Of which a row draws some; Custom has twice the weight, for it has many instructions."""


def _row(each: Taught, number: int, asked: Asked) -> Row:
    operator = OPERATORS[asked.operator]
    text = question(operator, checked_arguments(operator, asked.arguments))
    return Row(
        id=f"{each.row.id}-{number}-{operator.attribute}",
        messages=(Message("user", text), Message("assistant", asked.answer)),
        conversation=each.row.conversation or each.row.id,
        origin=each.row.origin,
    )


def thought(steps: str, answer: str) -> str:
    """The fields of AnswerGenerate."""
    return f"<thought>{steps}</thought>\n<answer>{answer}</answer>"


def code_of(steps: str) -> str:
    """Steps such as `3 + 4 = 7` as a function `solve()`; a result that a later step uses is
    used by its name."""
    lines: list[str] = []
    known: dict[str, str] = {}
    for name, step in zip(NAMES, steps.split("\n"), strict=False):
        expression, _, value = step.rpartition(" = ")
        for result, earlier in known.items():
            whole = rf"(?<![\d.]){re.escape(result)}(?![\d.])"
            expression = re.sub(whole, earlier, expression, count=1)
        lines.append(f"    {name} = {expression}")
        known = {value: name}
    last = NAMES[len(lines) - 1]
    return "```python\ndef solve():\n" + "\n".join(lines) + f"\n    return {last}\n```"
