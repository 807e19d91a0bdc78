r"""The math skill: answer a question step by step and put the final answer in `\boxed{}`.

Rows are read in `data.formats.problem_rows`, judged in `rewards`; `benchmarks` has the tests.
"""

import re

from assay.data.row import Message, Row
from assay.errors import InputError
from assay.labs.math.benchmarks import ASDIV, BENCHMARKS
from assay.labs.math.rewards import REWARD_MAXIMUM, REWARDS, gold_answer
from assay.tasks.task import BaseTask, moved

INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."
"""Qwen2.5-Math's wording."""

CALCULATOR = re.compile(r"<<[^<>]*>>")
"""GSM8K's annotations for a calculator, which no completion can use."""


class MathTask(BaseTask):
    """The task called "math"."""

    name = "math"
    rewards = REWARDS
    reward_maximum = REWARD_MAXIMUM
    benchmarks = BENCHMARKS
    sources = {"asdiv": moved(ASDIV)}  # noqa: RUF012

    def prompt(self, row: Row) -> tuple[Message, ...]:
        """The question under a system message with `INSTRUCTION`, before the row's own if any."""
        first, *rest = row.prompt
        if first.role != "system":
            return (Message("system", INSTRUCTION), first, *rest)
        return (Message("system", f"{INSTRUCTION}\n\n{first.content}"), *rest)

    def target(self, row: Row) -> Message:
        """The gold steps, without calculator annotations, and the gold answer in a box.

        A row that has neither gold nor final answer is trained on as it stands. Raises
        InputError for one that does not even end with an assistant message.
        """
        gold = gold_answer(row)
        last = row.messages[-1]
        said = last.content if last.role == "assistant" else ""
        if not gold and not said.strip():
            raise InputError(f"row {row.id} has no gold answer", file=row.origin or None)
        steps = CALCULATOR.sub("", said.rpartition("####")[0] or said).strip()
        if steps == gold:
            steps = ""
        if gold and rf"\boxed{{{gold}}}" not in steps:
            steps = f"{steps}\nThe final answer is \\boxed{{{gold}}}.".strip()
        return Message("assistant", steps, reasoning=last.reasoning)


TASK = MathTask()
