"""Generates varied valid programs for SFT to warm a policy up: the form of a program, not which
program suits which problem. No model is asked and no answer is known."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from assay.data.hashing import sha256_text
from assay.data.row import Row
from assay.tasks.workflows.fixed_workflows import COST, workflow
from assay.tasks.workflows.operators import ATTRIBUTES, OPERATORS
from assay.tasks.workflows.problems import PROBLEM_TYPE

PROGRAM = "program"
"""The field of a row that holds its program."""
INSTRUCTIONS = (
    "Answer briefly.",
    "Give the final answer alone.",
    "Solve this step by step.",
    "Answer in one word.",
)

Body = tuple[tuple[str, ...], str, str]
"""Attributes of the operators, the lines, and what is returned."""


def _direct(rng: random.Random) -> Body:
    return (
        ("answer_generate",),
        "result = await self.answer_generate(input=problem)",
        ('result["answer"]'),
    )


def _custom(rng: random.Random) -> Body:
    said = rng.choice(INSTRUCTIONS)
    call = f"result = await self.custom(input=problem, instruction={said!r})"
    return ("custom",), call, 'result["response"]'


def _programmer(rng: random.Random) -> Body:
    return ("programmer",), "result = await self.programmer(problem=problem)", 'result["output"]'


def _thought(rng: random.Random) -> Body:
    lines = (
        "thought = await self.answer_generate(input=problem)\n"
        'result = await self.programmer(problem=problem, analysis=thought["thought"])'
    )
    return ("answer_generate", "programmer"), lines, 'result["output"]'


def _ensemble(rng: random.Random) -> Body:
    count = rng.choice((3, 5))
    lines = (
        "solutions = []\n"
        f"for _ in range({count}):\n"
        "    result = await self.answer_generate(input=problem)\n"
        '    solutions.append(result["answer"])\n'
        "result = await self.sc_ensemble(solutions=solutions, problem=problem)"
    )
    return ("answer_generate", "sc_ensemble"), lines, 'result["response"]'


def _revise(rng: random.Random) -> Body:
    lines = (
        "result = await self.answer_generate(input=problem)\n"
        'review = await self.review(problem=problem, solution=result["answer"])\n'
        "result = await self.revise(problem=problem, "
        'solution=result["answer"], feedback=review["feedback"])'
    )
    return ("answer_generate", "review", "revise"), lines, 'result["solution"]'


def _format(rng: random.Random) -> Body:
    lines = (
        "result = await self.answer_generate(input=problem)\n"
        'result = await self.format(problem=problem, solution=result["thought"])'
    )
    return ("answer_generate", "format"), lines, 'result["solution"]'


def _vote(rng: random.Random) -> Body:
    lines = (
        "solutions = []\n"
        "for _ in range(3):\n"
        "    result = await self.answer_generate(input=problem)\n"
        '    solutions.append(result["answer"])\n'
        "result = await self.md_ensemble(solutions=solutions, problem=problem)"
    )
    return ("answer_generate", "md_ensemble"), lines, 'result["solution"]'


def _code(rng: random.Random) -> Body:
    call = "code = await self.custom_code_generate(problem=problem, entry_point=entry_point, "
    return ("custom_code_generate",), f'{call}instruction="")', 'code["response"]'


def _tested(rng: random.Random) -> Body:
    attributes, lines, returned = _code(rng)
    lines += (
        f"\nresult = await self.test(problem=problem, solution={returned}, entry_point=entry_point)"
    )
    return (*attributes, "test"), lines, 'result["solution"]'


TEXT_BODIES: Sequence[Callable[[random.Random], Body]] = (
    _direct,
    _custom,
    _programmer,
    _thought,
    _ensemble,
    _revise,
    _format,
    _vote,
)
CODE_BODIES: Sequence[Callable[[random.Random], Body]] = (_code, _tested)


def generated_program(
    rng: random.Random, problem_type: str, operators: Sequence[str] = tuple(OPERATORS)
) -> str:
    """A valid program for problems of a type that uses none but these operators."""
    bodies = CODE_BODIES if problem_type == "code" else TEXT_BODIES
    made = [body(rng) for body in bodies]
    fitting = [each for each in made if all(ATTRIBUTES[a].name in operators for a in each[0])]
    attributes, lines, returned = rng.choice(fitting)
    classes: Mapping[str, str] = {name: ATTRIBUTES[name].name for name in attributes}
    parameters = "problem, entry_point" if problem_type == "code" else "problem"
    return workflow(classes, f"{lines}\nreturn {returned}, {COST}", parameters)


def with_programs(rows: Sequence[Row], count: int, operators: Sequence[str]) -> list[Row]:
    """Each row `count` times with a program, which its id decides."""
    found = []
    for row in rows:
        for n in range(count):
            rng = random.Random(int(sha256_text(f"{row.id} program {n}")[:12], 16))
            program = generated_program(rng, row.extra[PROBLEM_TYPE], operators)
            extra = {**row.extra, PROGRAM: program}
            found.append(
                replace(
                    row,
                    id=f"{row.id}-program{n}",
                    conversation=row.conversation or row.id,
                    extra=extra,
                )
            )
    return found
