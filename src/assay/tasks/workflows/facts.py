"""The facts that a reward of a workflow program keeps of its execution, and how records and pages
read them: families of errors, and trees of programs."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from assay.data.formats.problem_rows import PROBLEM_TYPE
from assay.tasks.fact_reading import FactReading
from assay.tasks.workflows.execution import Execution
from assay.tasks.workflows.programs.shapes import shape_of

NO_PROGRAM = "no_program"
"""The error of a completion without a program."""
DIFFICULTIES = ("level", "operations")
"""Fields of a row that say how hard its problem is: MATH's level, ASDiv's operations."""
FORMAT, SYNTAX, INTERFACE = "format", "syntax", "llm attribute"
MISUSE, FORBIDDEN, NAMES = "operator misuse", "forbidden", "undefined name"
RAISED, TIMEOUT, LIMIT = "raised", "timeout", "limit"
OPERATOR, BUDGET, EXECUTOR, OTHER = "operator error", "over budget", "executor failure", "other"
FAMILIES = (
    *(FORMAT, SYNTAX, INTERFACE, MISUSE, FORBIDDEN, NAMES),
    *(RAISED, TIMEOUT, LIMIT, OPERATOR, BUDGET, EXECUTOR, OTHER),
)
"""In the order in which a program meets them."""
CODES = {
    FORMAT: "no_program no_workflow no_init no_call not_async call_arguments no_return return_shape"
    " result_returned no_answer",
    SYNTAX: "syntax too_long too_deep",
    INTERFACE: "llm_attribute llm_called unknown_attribute",
    MISUSE: "unknown_operator operator_setup not_instantiated not_awaited needless_await"
    " unknown_parameter repeated_parameter missing_parameter too_many_arguments wrong_type"
    " unknown_key unknown_prompt",
    FORBIDDEN: "forbidden_name import_not_allowed dunder",
    NAMES: "undefined_name unset_attribute",
    TIMEOUT: "deadline cpu",
    BUDGET: "budget",
    EXECUTOR: "model judge lab",
}
"""Codes of the validator and of runs, those that the validator once had among them."""
FAMILY_OF = {code: family for family, codes in CODES.items() for code in codes.split()}
REFUSED = (FORMAT, SYNTAX, INTERFACE, MISUSE, FORBIDDEN, NAMES)
"""Families of programs that did not run, but for "no_answer", which a run finds."""
KINDS = {"raised": RAISED, "operator": OPERATOR, "limit": LIMIT}
"""By the first of two words, such as "raised KeyError"."""


def facts_of(execution: Execution, row: Mapping[str, Any]) -> dict[str, str | float]:
    """The facts by name, `row` being the fields of the problem's row; `cost` is missing where a
    price is not known, and the fields of DIFFICULTIES where the row has no such number.

    `operators` lists the operators called with their counts ("AnswerGenerate:1 Programmer:2"), by
    name; `program` is the source; `format` is 0 where there is none of the right form.
    """
    calls = execution.calls
    counts = sorted(Counter(call.operator for call in calls).items())
    cost = execution.cost
    return {
        "problem_type": row[PROBLEM_TYPE],
        "error": execution.error,
        "format": float(not execution.error or family_of(execution.error) not in READING.malformed),
        "why": execution.why,
        "answer": execution.answer,
        "program": execution.program,
        "operators": " ".join(f"{name}:{count}" for name, count in counts),
        "calls": float(len(calls)),
        "failed_calls": float(sum(bool(call.error) for call in calls)),
        "questions": float(sum(call.questions for call in calls)),
        "remembered": float(sum(call.remembered for call in calls)),
        "prompt_tokens": float(sum(call.prompt_tokens for call in calls)),
        "completion_tokens": float(sum(call.completion_tokens for call in calls)),
        **({} if cost is None else {"cost": cost}),
        **difficulties(row),
        "seconds": execution.seconds,
        "fallback": float(execution.fallback),
    }


def difficulties(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that say how hard a problem is; MATH writes "Level 3"."""
    texts = {name: str(row[name]).removeprefix("Level ") for name in DIFFICULTIES if name in row}
    return {name: float(text) for name, text in texts.items() if text.isdecimal()}


def fact(facts: Mapping[str, Any], name: str) -> Any:
    """The fact of this name, or of a sum of rewards the first "REWARD/NAME"; None for none."""
    if name in facts:
        return facts[name]
    return next((v for key, v in facts.items() if key.rpartition("/")[2] == name), None)


def valid_program(facts: Mapping[str, Any]) -> str | None:
    """The source of a program that the validator let through; None for any other completion."""
    source, error = fact(facts, "program"), fact(facts, "error")
    refused = error != "no_answer" and family_of(str(error)) in REFUSED
    return source if isinstance(source, str) and source and not refused else None


def family_of(error: str) -> str:
    """The family of a fact `error`, such as "raised KeyError" or "llm_attribute"."""
    kind, _, what = error.partition(" ")
    if kind == "limit" and FAMILY_OF.get(what) == TIMEOUT:
        return TIMEOUT
    return KINDS.get(kind) or FAMILY_OF.get(error, OTHER)


def tree_of(program: str) -> str:
    """The fingerprint of a program's syntax tree; "" for one that cannot be read."""
    shape = shape_of(program) if program else None
    return shape.fingerprint if shape else ""


READING = FactReading(
    FAMILIES, family_of, frozenset({FORMAT, SYNTAX}), frozenset({INTERFACE}), tree_of
)
