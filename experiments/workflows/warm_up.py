"""Generated workflow programs, for a warm-up that teaches how programs are written.

Strategies per problem type: direct answers, review and revise, ensembles, programs that are run,
tests, and combinations. Which one is best on which problem is not said: each is drawn as often as
the others. A program is short, and every one passes `validate`.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from assay.data.row import Message, Row
from assay.errors import InputError
from assay.labs.workflows.programs.operators import OPERATORS, OperatorFacts
from assay.labs.workflows.task import PARAMETERS, fenced, policy_prompt

INSTRUCTIONS: Mapping[str, tuple[str, ...]] = {
    "math": (
        "Solve the problem step by step. ",
        "Work out each step, then give the number. ",
        "Find what is asked and compute it. ",
        "Solve it carefully and check the result. ",
    ),
    "code": (
        "Write correct and simple code. ",
        "Write the function and mind edge cases. ",
        "Think about the examples, then write the function. ",
        "Write a complete function. ",
    ),
    "qa": (
        "Answer in a few words. ",
        "Find the answer in the text. ",
        "Answer the question briefly. ",
        "Give only the answer. ",
    ),
}
ANALYSES = (
    "List the quantities and what is asked. ",
    "Say how to compute the answer. ",
    "Explain the steps of a solution. ",
)
COUNTS = (2, 3, 3, 4, 5)
"""Of an ensemble; 3 is drawn twice as often."""
RESULTS = ("result", "draft", "first", "attempt")
LISTS = ("solutions", "answers", "candidates")
HEAD = """\
class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
{made}

    async def __call__(self, {parameters}):
{body}
"""


@dataclass(frozen=True, slots=True)
class Generated:
    """One generated program."""

    strategy: str
    """A name of `STRATEGIES`."""
    problem_type: str
    source: str


@dataclass(frozen=True, slots=True)
class Draw:
    """The words that one program is written with."""

    problem_type: str
    instruction: str
    analysis: str
    count: int
    result: str
    """The name of the variable with the first result."""
    solutions: str
    """The name of the list of an ensemble."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The body of `__call__`: statements, and the expression of the answer."""

    operators: tuple[str, ...]
    lines: tuple[str, ...]
    answer: str


def answered(draw: Draw) -> Plan:
    """One AnswerGenerate."""
    line = f"{draw.result} = await self.answer_generate(input=problem)"
    return Plan(("AnswerGenerate",), (line,), f'{draw.result}["answer"]')


def customised(draw: Draw) -> Plan:
    """One Custom, or for code one CustomCodeGenerate."""
    name, call = "Custom", "custom(input=problem"
    if draw.problem_type == "code":
        name, call = "CustomCodeGenerate", "custom_code_generate(problem, entry_point"
    call = f'{call}, instruction="{draw.instruction}")'
    return Plan((name,), (f"{draw.result} = await self.{call}",), f'{draw.result}["response"]')


def programmed(draw: Draw) -> Plan:
    """One Programmer."""
    line = f"{draw.result} = await self.programmer(problem=problem)"
    return Plan(("Programmer",), (line,), f'{draw.result}["output"]')


def analysed(draw: Draw) -> Plan:
    """A Programmer after an analysis."""
    lines = (
        f'plan = await self.custom(input=problem, instruction="{draw.analysis}")',
        f'{draw.result} = await self.programmer(problem=problem, analysis=plan["response"])',
    )
    return Plan(("Custom", "Programmer"), lines, f'{draw.result}["output"]')


def formatted(draw: Draw) -> Plan:
    """A Custom whose answer Format takes out."""
    first = customised(draw)
    line = f"short = await self.format(problem, {first.answer})"
    return Plan((*first.operators, "Format"), (*first.lines, line), 'short["solution"]')


def revised(first: Plan) -> Plan:
    """A review, and a revision where it says False."""
    lines = (
        *first.lines,
        f"solution = {first.answer}",
        "review = await self.review(problem, solution)",
        'if not review["review_result"]:',
        '    better = await self.revise(problem, solution, review["feedback"])',
        '    solution = better["solution"]',
    )
    return Plan((*first.operators, "Review", "Revise"), lines, "solution")


def checked(draw: Draw) -> Plan:
    """A Programmer, and an AnswerGenerate where a review says False."""
    lines = (
        f"{draw.result} = await self.programmer(problem=problem)",
        f'answer = {draw.result}["output"]',
        "review = await self.review(problem, answer)",
        'if not review["review_result"]:',
        "    second = await self.answer_generate(input=problem)",
        '    answer = second["answer"]',
    )
    return Plan(("Programmer", "Review", "AnswerGenerate"), lines, "answer")


def agreed(draw: Draw) -> Plan:
    """Two Customs, and a Programmer where they disagree."""
    once = f'self.custom(input=problem, instruction="{draw.instruction}")'
    lines = (
        f"{draw.result} = await {once}",
        f"again = await {once}",
        f'answer = {draw.result}["response"]',
        'if answer != again["response"]:',
        "    code = await self.programmer(problem=problem)",
        '    answer = code["output"]',
    )
    return Plan(("Custom", "Programmer"), lines, "answer")


def ensembled(
    first: Plan, draw: Draw, picker: str = "ScEnsemble", more: Plan | None = None
) -> Plan:
    """Several answers, of which an ensemble picks one; with `more`, one of another kind as well."""
    added = () if more is None else (*more.lines, f"{draw.solutions}.append({more.answer})")
    operator = OPERATORS[picker]
    (key,) = operator.returns
    lines = (
        f"{draw.solutions} = []",
        f"for _ in range({draw.count}):",
        *(f"    {line}" for line in first.lines),
        f"    {draw.solutions}.append({first.answer})",
        *added,
        f"best = await self.{operator.attribute}({draw.solutions}, problem)",
    )
    used = (*first.operators, *(more.operators if more else ()), picker)
    return Plan(used, lines, f'best["{key}"]')


def tested(first: Plan) -> Plan:
    """Code that Test mends."""
    line = f"tested = await self.test(problem, {first.answer}, entry_point)"
    return Plan((*first.operators, "Test"), (*first.lines, line), 'tested["solution"]')


def retried(first: Plan, draw: Draw) -> Plan:
    """Code that is written again where Test could not mend it."""
    again = customised(draw)
    once = tested(first)
    lines = (
        *once.lines,
        'if tested["result"]:',
        f"    return {once.answer}",
        *again.lines,
    )
    return Plan(once.operators, lines, again.answer)


Strategy = Callable[[Draw], Plan]
OF_TEXTS: Mapping[str, Strategy] = {
    "answer": answered,
    "custom": customised,
    "custom, format": formatted,
    "answer, review": lambda draw: revised(answered(draw)),
    "custom, review": lambda draw: revised(customised(draw)),
    "answer ensemble": lambda draw: ensembled(answered(draw), draw),
    "custom ensemble": lambda draw: ensembled(customised(draw), draw),
    "answer vote": lambda draw: ensembled(answered(draw), draw, "MdEnsemble"),
}
STRATEGIES: Mapping[str, Mapping[str, Strategy]] = {
    "math": {
        **OF_TEXTS,
        "program": programmed,
        "analysis, program": analysed,
        "program, check": checked,
        "agreement, program": agreed,
        "program, review": lambda draw: revised(programmed(draw)),
        "program ensemble": lambda draw: ensembled(programmed(draw), draw),
        "mixed ensemble": lambda draw: ensembled(answered(draw), draw, more=programmed(draw)),
    },
    "code": {
        "code": customised,
        "code, test": lambda draw: tested(customised(draw)),
        "code, test, again": lambda draw: retried(customised(draw), draw),
        "code, review": lambda draw: revised(customised(draw)),
        "code, review, test": lambda draw: tested(revised(customised(draw))),
        "code ensemble": lambda draw: ensembled(customised(draw), draw),
        "code ensemble, test": lambda draw: tested(ensembled(customised(draw), draw)),
        "code vote": lambda draw: ensembled(customised(draw), draw, "MdEnsemble"),
    },
    "qa": {
        **OF_TEXTS,
        "mixed ensemble": lambda draw: ensembled(answered(draw), draw, more=customised(draw)),
    },
}
"""Ways to solve a problem, by its type."""


def written(plan: Plan, problem_type: str) -> str:
    """The source of a plan."""
    made = "\n".join(
        f"        self.{OPERATORS[name].attribute} = operator.{name}(self.llm)"
        for name in dict.fromkeys(plan.operators)
    )
    lines = (*plan.lines, f"return {plan.answer}")
    body = "\n".join(f"        {line}" for line in lines)
    return HEAD.format(made=made, parameters=PARAMETERS[problem_type], body=body)


def draw_programs(
    problem_type: str,
    count: int,
    chance: random.Random,
    operators: Mapping[str, OperatorFacts] = OPERATORS,
) -> tuple[Generated, ...]:
    """So many programs of different strategies in turn, of those that `operators` allow.

    Raises InputError for an unknown problem type, and where no strategy is left.
    """
    if problem_type not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise InputError(f"unknown type {problem_type!r}", field="problem_type", fix=known)
    drawn: list[Generated] = []
    while len(drawn) < count:
        lap = [draw_one(name, problem_type, chance) for name in STRATEGIES[problem_type]]
        usable = [each for each, plan in lap if set(plan.operators) <= operators.keys()]
        if not usable:
            problem = f"no strategy for {problem_type} has these operators alone"
            raise InputError(problem, field="operators", fix="allow AnswerGenerate or Custom")
        drawn += chance.sample(usable, min(len(usable), count - len(drawn)))
    return tuple(drawn)


def draw_one(name: str, problem_type: str, chance: random.Random) -> tuple[Generated, Plan]:
    """One program of a strategy, and its plan."""
    draw = Draw(
        problem_type,
        chance.choice(INSTRUCTIONS[problem_type]),
        chance.choice(ANALYSES),
        chance.choice(COUNTS),
        chance.choice(RESULTS),
        chance.choice(LISTS),
    )
    plan = STRATEGIES[problem_type][name](draw)
    return Generated(name, problem_type, written(plan, problem_type)), plan


def warm_up_rows(
    problems: Sequence[Row],
    seed: int,
    per_problem: int,
    operators: Mapping[str, OperatorFacts] = OPERATORS,
) -> tuple[Row, ...]:
    """Rows to train on: the policy's prompt, and a program in a fence, `per_problem` of each.

    A problem's text is its last user message; `extra` says its `problem_type` and `entry_point`.
    What is drawn for a problem depends on `seed` and its id alone. Raises InputError.
    """
    return tuple(
        warm_up_row(problem, number, program, operators)
        for problem in problems
        for number, program in enumerate(
            draw_programs(
                str(problem.extra.get("problem_type", "")),
                per_problem,
                random.Random(f"{seed} {problem.id}"),
                operators,
            )
        )
    )


def warm_up_row(
    problem: Row,
    number: int,
    program: Generated,
    operators: Mapping[str, OperatorFacts] = OPERATORS,
) -> Row:
    """One row of `warm_up_rows`; its `extra` names the strategy."""
    text = [each.content for each in problem.messages if each.role == "user"][-1]
    entry_point = str(problem.extra.get("entry_point") or "")
    asked = policy_prompt(text, program.problem_type, entry_point, operators=operators)
    return Row(
        id=f"{problem.id}:{number}",
        messages=(Message("user", asked), Message("assistant", fenced(program.source))),
        gold=problem.gold,
        conversation=problem.conversation or problem.id,
        origin=problem.origin,
        extra={**problem.extra, "strategy": program.strategy},
    )
