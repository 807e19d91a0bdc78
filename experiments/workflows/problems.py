"""The problems of the ladder, with the task that reads them.

    task = "path:experiments/workflows/problems.py"

ASDiv's word problems and generated ones (`generated_problems`) by topic; the option `programs` of a
source makes them rows that teach a policy (`warm_up`), `executor:SIDE` teaches an executor
(`executor_rows`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from executor_rows import read_asdiv, read_executor_rows
from generated_problems import GENERATED
from warm_up import warm_up_rows

from assay.data.formats.problem_rows import ENTRY_POINT, LEVEL, PROBLEM, PROBLEM_TYPE, TOPIC
from assay.data.loaded import Loaded
from assay.data.row import Message, Row
from assay.labs.workflows.programs.operators import OPERATORS
from assay.labs.workflows.run_program import OFFERED
from assay.labs.workflows.task import WorkflowsTask, operators_of, problems_benchmark, row_with
from assay.tasks.task import BenchmarkOptions

SOURCE_OPTIONS: Mapping[str, Any] = {"operators": list(OPERATORS), "programs": 0}
"""The operators that a prompt offers, and how many generated programs a row is repeated with."""


def asdiv_problems(side: str) -> Loaded:
    """ASDiv's word problems, of level 1 where one step is known to lead to the answer, else 2; see
    `experiments/math/asdiv.py`."""
    loaded = read_asdiv(side)
    rows = []
    for row in loaded.rows:
        steps, problem = row.extra["operations"], row.messages[0].content
        level = {"operations": steps, TOPIC: "words", LEVEL: "1" if steps == 1 else "2"}
        extra = {PROBLEM: problem, PROBLEM_TYPE: "math", ENTRY_POINT: "", **level}
        asked = (Message("user", problem),)
        rows.append(replace(row, messages=asked, gold=str(row.gold), extra=extra))
    return Loaded(tuple(rows), loaded.dropped)


READERS: Mapping[str, Callable[[str], Loaded]] = {"asdiv": asdiv_problems, **GENERATED}
"""By the scheme of a source."""


def read_problems(reader: Callable[[str], Loaded], side: str, options: BenchmarkOptions) -> Loaded:
    """The problems of a source with the options of its table."""
    chosen = options.over(SOURCE_OPTIONS)
    names = operators_of(chosen)
    loaded = reader(side)
    rows = [row_with(row, names) for row in loaded.rows]
    if chosen["programs"]:
        allowed = {name: OPERATORS[name] for name in names}
        rows = [with_policy(r) for r in warm_up_rows(rows, 0, chosen["programs"], allowed)]
    return Loaded(tuple(rows), loaded.dropped, loaded.remarks)


def with_policy(row: Row) -> Row:
    """A warm-up row without its problem's fields, so that it is asked as it stands."""
    kept = {name: value for name, value in row.extra.items() if name not in (PROBLEM, OFFERED)}
    return replace(row, gold=None, extra=kept)


class LadderTask(WorkflowsTask):
    """The ladder's sources, and the benchmark that draws from them."""

    name = "workflows-ladder"
    sources = {  # noqa: RUF012
        **{name: partial(read_problems, reader) for name, reader in READERS.items()},
        "executor": read_executor_rows,
    }
    benchmarks = {  # noqa: RUF012
        "workflows/problems": partial(problems_benchmark, readers=READERS)
    }


TASK = LadderTask()
