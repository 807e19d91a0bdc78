"""Samples until an answer is what its request demands, a bounded number of times.

The first sample is the one that would be drawn without any demand; if it does not fit, the others
are drawn at once, and the first of them that fits is the answer. What no sample fits is refused:
an answer that breaks the demand is never sent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from assay.sandbox.limits import Limits
from assay.sandbox.pool import Worker
from assay.serve.asking import Asked, Choice, again
from assay.serve.constraints import Constraint, bare_json, problem_of, texts_by_schema
from assay.serve.replies import Answered
from assay.serve.requests import Refusal

MORE_SAMPLES = 7
"""Drawn where the first does not fit."""
CHECK_SECONDS = 5.0
"""For one check against a schema."""

Sample = Callable[[Asked], Awaitable[list[Answered]]]


@dataclass(frozen=True)
class Schemas:
    """Checks schemas and texts in a process that is killed where it takes too long."""

    worker: Worker = field(
        default_factory=lambda: Worker(
            "assay.serve.schemas:check", Limits(cpu_seconds=10, memory_bytes=1 << 30)
        )
    )
    thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="assay-schemas")
    )

    async def problem(self, schema: Mapping[str, Any], text: str | None) -> str | None:
        """Why a text does not fit; without one, nothing. Raises Refusal (400) for a bad schema."""
        arguments = {"schema": dict(schema), "text": text}
        loop = asyncio.get_running_loop()
        outcome = await loop.run_in_executor(
            self.thread, self.worker.call, arguments, CHECK_SECONDS
        )
        found = outcome.value or {}
        if outcome.failure is not None:
            where = "schema" if text is None else "text"
            found = {where: f"cannot be checked: {outcome.why or outcome.failure}"}
        if "schema" in found:
            problem = f"the schema {found['schema']}"
            raise Refusal(400, problem, code="invalid_schema", parameter="response_format")
        return found.get("text")

    def close(self) -> None:
        """End the process."""
        self.thread.shutdown()
        self.worker.close()


async def fitting(asked: Asked, sample: Sample, schemas: Schemas) -> tuple[list[Answered], int]:
    """An answer for each choice that is what was demanded, and how many samples were drawn.

    Raises Refusal: 400 for a schema that is none, 422 where no sample fits.
    """
    constraint = asked.constraint
    for schema in constraint.schemas:
        await schemas.problem(schema, None)
    found: dict[int, Answered] = {}
    drawn, last = 0, ""
    choices: Sequence[Choice] = asked.choices
    for _ in range(2):
        for one in await sample(replace(asked, choices=tuple(choices))):
            drawn += 1
            one = bare(constraint, one)
            if one.choice.index in found:
                continue
            problem = await problem_in(constraint, one, schemas)
            if problem is None:
                found[one.choice.index] = one
            else:
                last = problem
        missing = [choice for choice in asked.choices if choice.index not in found]
        if not missing:
            return [found[choice.index] for choice in asked.choices], drawn
        numbers = range(1, MORE_SAMPLES + 1)
        choices = [again(asked, choice, number) for choice in missing for number in numbers]
    problem = f"none of {1 + MORE_SAMPLES} samples is what was demanded; the last one {last}"
    raise Refusal(422, problem, code="no_fitting_answer", parameter=constraint.parameter)


def bare(constraint: Constraint, one: Answered) -> Answered:
    """The answer; the content without reasoning and fence where it is to be JSON."""
    if not constraint.must_be_json or one.calls:
        return one
    return replace(one, content=bare_json(one.content))


async def problem_in(constraint: Constraint, one: Answered, schemas: Schemas) -> str | None:
    """What is wrong with an answer."""
    if problem := await asyncio.to_thread(problem_of, constraint, one.content, one.calls):
        return problem
    for schema, text in texts_by_schema(constraint, one.content, one.calls):
        if problem := await schemas.problem(schema, text):
            return f"does not fit its schema: {problem}"
    return None
