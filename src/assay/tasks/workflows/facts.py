"""The facts that a reward of a workflow program keeps of its execution, for records and pages."""

from collections import Counter

from assay.tasks.workflows.execution import Execution
from assay.tasks.workflows.program_records import READING, family_of


def facts_of(execution: Execution, problem_type: str) -> dict[str, str | float]:
    """The facts by name; `cost` is missing where a price is not known.

    `operators` lists the operators called with their counts ("AnswerGenerate:1 Programmer:2"), by
    name; `program` is the source; `format` is 0 where there is none of the right form.
    """
    calls = execution.calls
    counts = sorted(Counter(call.operator for call in calls).items())
    cost = execution.cost
    return {
        "problem_type": problem_type,
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
        "seconds": execution.seconds,
        "fallback": float(execution.fallback),
    }
