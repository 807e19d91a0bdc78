"""Rewards that run a completion's own program in the sandbox and look at what it prints.

A program that raises, hangs, dies or breaks a limit is the policy's doing and earns what the reward
declares. The lab compares: the process that runs the program sees no gold answer.
"""

from collections.abc import Callable, Mapping
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.sandbox.limits import Limits, Outcome
from assay.tasks.no_verdict import Failed, nothing_earned
from assay.tasks.reward_signatures import as_value
from assay.tasks.running import WorkerReward

PROGRAM = "assay.sandbox.tested_code:run_program"


def no_input(row: Row) -> str:
    """The standard input of a program that reads none."""
    return ""


def program_check(
    program: Callable[[Row, Completion], str | Reward],
    compare: Callable[[Row, Completion, str], Reward],
    *,
    read: Callable[[Row], str] = no_input,
    failed: Failed = nothing_earned,
    longest: int = 100_000,
    limits: Limits | None = None,
) -> WorkerReward:
    """A reward from the output of a program.

    `program` takes the Python source out of a completion, or says what one without earns; `read` is
    the program's standard input; `compare` judges its output, and runs in the lab. `failed` is the
    reward of a program that failed, or has more than `longest` characters.
    """

    def ask(row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
        source = program(row, completion)
        if not isinstance(source, str):
            return as_value(source, program)
        if len(source) > longest:
            why = f"{len(source)} characters, more than {longest}"
            return failed(row, completion, Outcome(failure="length", why=why))
        return {"program": source, "text": read(row)}

    def judge(row: Row, completion: Completion, value: Any) -> Reward:
        if not is_reply(value):
            why = "its process answered in another form"
            return failed(row, completion, Outcome(failure="crash", why=why))
        if value["error"]:
            return failed(row, completion, Outcome(failure="program", why=value["error"]))
        return compare(row, completion, value["output"])

    return WorkerReward(
        PROGRAM, ask, judge, failed=failed, limits=limits or Limits(), own_program=True
    )


def is_reply(value: Any) -> bool:
    """Whether a value is a reply of `run_program`; a program can answer in place of its caller, and
    only texts are taken from it."""
    return (
        isinstance(value, dict)
        and value.keys() == {"output", "error"}
        and all(isinstance(text, str) for text in value.values())
    )
