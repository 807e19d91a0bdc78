"""Rows that teach a small executor model two operators: AnswerGenerate and Programmer.

ASDiv's worked problems as reasoning and as code, and MedMCQA's questions with their subjects. What
the model is asked is the operators' own question, so that it is met again when a program runs.
"""

import re

from assay.data.loaded import Loaded
from assay.data.row import Message, Row
from assay.tasks.math.asdiv import read_asdiv
from assay.tasks.task import lookup
from assay.tasks.workflows.operator_prompts import question
from assay.tasks.workflows.operators import OPERATORS, checked_arguments
from assay.tasks.workflows.problems import PROBLEM, subject_problems

NAMES = "abcdefgh"


def read_executor_rows(side: str) -> Loaded:
    """The rows of the only side, "sft". Raises UnknownNameError for another one."""
    lookup({"sft": ""}, side, "side of executor")
    rows = []
    for row in read_asdiv("sft").rows:
        steps, _, answer = row.messages[-1].content.partition("\n#### ")
        problem = row.messages[0].content
        rows.append(_row(row, "answer", "AnswerGenerate", problem, thought(steps, answer)))
        rows.append(_row(row, "code", "Programmer", problem, code_of(steps)))
    for row in subject_problems("executor").rows:
        said = thought(str(row.gold).lower(), str(row.gold))
        rows.append(_row(row, "answer", "AnswerGenerate", row.extra[PROBLEM], said))
    return Loaded(tuple(rows))


def _row(row: Row, part: str, name: str, problem: str, answer: str) -> Row:
    operator = OPERATORS[name]
    first = operator.parameters[0].name
    asked = question(operator, checked_arguments(operator, {first: problem}))
    return Row(
        id=f"{row.id}-{part}",
        messages=(Message("user", asked), Message("assistant", answer)),
        conversation=row.conversation or row.id,
        origin=row.origin,
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
