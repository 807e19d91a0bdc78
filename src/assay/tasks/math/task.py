r"""The math skill: answer a question step by step and put the final answer in `\boxed{}`.

Rows have the form of GSM8K. They are read in `data.formats` and judged in `rewards`.
"""

import re
from importlib.metadata import version

from assay.data.formats.formats import read_rows
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.tasks.math.asdiv import read_asdiv
from assay.tasks.math.rewards import REWARD_MAXIMUM, REWARDS, RULES, accuracy, gold_answer
from assay.tasks.task import Benchmark, BenchmarkOptions, Dialogue, NoTargetError

INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."
"""Qwen2.5-Math's wording."""

CALCULATOR = re.compile(r"<<[^<>]*>>")
"""GSM8K's annotations for a calculator, which no completion can use."""


CHECKER = f"math rules {RULES} over math-verify {version('math-verify')}"


def gsm8k(options: BenchmarkOptions) -> Benchmark:
    """The rows of the file that the option `path` names, from the lab's root, by `accuracy`.

    Raises UnknownNameError for an unknown option, InputError without a path, and what
    `formats.read_rows` raises.
    """
    chosen = options.over({"path": "", "format": "gsm8k"})
    if not chosen["path"]:
        fix = 'for example options = { path = "gsm8k_test.jsonl" }'
        raise InputError("math/gsm8k needs the path of its file", field="options.path", fix=fix)
    return Benchmark(
        name="math/gsm8k",
        items=tuple(read_rows(options.root / chosen["path"], chosen["format"])),
        score=accuracy,
        checker=CHECKER,
        options=chosen,
    )


def asdiv(options: BenchmarkOptions) -> Benchmark:
    """The test side of ASDiv by `accuracy`. Raises UnknownNameError for an option: it has none."""
    return Benchmark(
        name="math/asdiv",
        items=read_asdiv("test").rows,
        score=accuracy,
        checker=CHECKER,
        options=options.over({}),
    )


class MathTask:
    """The task called "math"."""

    name = "math"
    rewards = REWARDS
    reward_maximum = REWARD_MAXIMUM
    benchmarks = {"math/gsm8k": gsm8k, "math/asdiv": asdiv}  # noqa: RUF012
    sources = {"asdiv": read_asdiv}  # noqa: RUF012

    def prompt(self, row: Row) -> tuple[Message, ...]:
        """The question under a system message with `INSTRUCTION`, before the row's own if any."""
        first, *rest = row.prompt
        if first.role != "system":
            return (Message("system", INSTRUCTION), first, *rest)
        return (Message("system", f"{INSTRUCTION}\n\n{first.content}"), *rest)

    def target(self, row: Row) -> Message:
        """The gold steps, without calculator annotations, and the gold answer in a box.

        A row that has neither gold nor final answer is trained on as it stands. Raises
        NoTargetError for one that does not even end with an assistant message.
        """
        gold = gold_answer(row)
        last = row.messages[-1]
        said = last.content if last.role == "assistant" else ""
        if not gold and not said.strip():
            raise NoTargetError(f"row {row.id} has no gold answer", file=row.origin or None)
        steps = CALCULATOR.sub("", said.rpartition("####")[0] or said).strip()
        if steps == gold:
            steps = ""
        if gold and rf"\boxed{{{gold}}}" not in steps:
            steps = f"{steps}\nThe final answer is \\boxed{{{gold}}}.".strip()
        return Message("assistant", steps, reasoning=last.reasoning)

    def dialogue(self, row: Row) -> Dialogue | None:
        """None: every row is one question with one answer."""
        return None


TASK = MathTask()
