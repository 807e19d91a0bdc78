"""The problems that workflow programs solve: the fields of a row, and sources that ship in wheels.

A row's prompt is the problem alone; `policy_prompt` puts it into the policy's. Gold answers and
hidden tests are fields that neither prompt nor program sees. Files are read in `problem_files`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from assay.data.hashing import sha256_text
from assay.data.loaded import Loaded
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.tasks.demos.subjects import LABELS, subject_questions
from assay.tasks.math.asdiv import read_asdiv
from assay.tasks.task import lookup

PROBLEM, PROBLEM_TYPE, ENTRY_POINT = "problem", "problem_type", "entry_point"
TESTS, PUBLIC_TESTS = "tests", "public_tests"
"""Hidden tests, and those that a program may know; of code problems."""
SOLUTION = "solution"
"""A right solution of a code problem, for trials of its tests."""
TYPES = ("math", "code", "qa")
SUBJECT_SIDES = ("executor", "rl", "dev", "test")
"""The training questions are divided: one in four teaches an executor, the others a policy."""
EXECUTOR_SHARE = 4


class BadProblem(InputError):
    """A problem that cannot be judged or run."""


def problem_row(
    problem: str,
    problem_type: str,
    ground_truth: str,
    *,
    id: str = "",
    origin: str = "",
    line: int | None = None,
    file: str | None = None,
    conversation: str = "",
    entry_point: str = "",
    extra: Mapping[str, Any] | None = None,
) -> Row:
    """A row of a problem.

    Raises BadProblem for an unknown type, a problem or an answer that is empty, code without an
    entry point or without tests.
    """
    extra = dict(extra or {})
    for field, problem_found, fix in _faults(
        problem, problem_type, ground_truth, entry_point, extra
    ):
        raise BadProblem(problem_found, file=file, line=line, field=field, fix=fix)
    return Row(
        id=id or f"problem-{sha256_text(problem)[:12]}",
        messages=(Message("user", problem),),
        gold=ground_truth or None,
        conversation=conversation,
        origin=origin,
        extra={
            **extra,
            PROBLEM: problem,
            PROBLEM_TYPE: problem_type,
            ENTRY_POINT: entry_point,
        },
    )


def _faults(
    problem: str, problem_type: str, truth: str, entry_point: str, extra: Mapping[str, Any]
) -> Iterable[tuple[str, str, str]]:
    """Field, fault and fix of what makes a problem unusable."""
    if problem_type not in TYPES:
        yield "problem_type", f"unknown type {problem_type!r}", f"one of {', '.join(TYPES)}"
    if not problem.strip():
        yield "problem", "is empty", "write the problem"
    if problem_type == "code":
        if not entry_point.isidentifier():
            yield "entry_point", "a code problem has no entry point", "name its function"
        if not extra.get(TESTS):
            yield "tests", "a code problem has no tests", "add assertions, one a text"
    elif not truth.strip():
        yield "ground_truth", "the problem has no checkable answer", "add its right answer"


def asdiv_problems(side: str) -> Loaded:
    """ASDiv's word problems; see `tasks.math.asdiv`."""
    loaded = read_asdiv(side)
    rows = tuple(
        problem_row(
            row.messages[0].content,
            "math",
            str(row.gold),
            id=row.id,
            origin=row.origin,
            conversation=row.conversation,
            extra={"operations": row.extra["operations"]},
        )
        for row in loaded.rows
    )
    return Loaded(rows, loaded.dropped)


def subject_problems(side: str) -> Loaded:
    """MedMCQA questions with the subject that each belongs to; see `tasks.demos.subjects`."""
    lookup(dict.fromkeys(SUBJECT_SIDES, ""), side, "side of subjects")
    questions = subject_questions()
    found = questions["train" if side in ("executor", "rl") else side]
    if side in ("executor", "rl"):
        kept = side == "executor"
        found = [q for n, q in enumerate(found) if (n % EXECUTOR_SHARE == 0) == kept]
    labels = ", ".join(sorted(LABELS.values()))
    rows = []
    for query in found:
        text = query.asked.content.removeprefix("Question: ").removesuffix("\nSubject:")
        problem = f"{text}\nWhich subject is this: {labels}?"
        (truth,) = query.answers
        rows.append(problem_row(problem, "qa", truth, id=query.id, origin=query.origin))
    return Loaded(tuple(rows))
