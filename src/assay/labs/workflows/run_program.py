"""Runs workflow programs on problems, and judges their answers: completion in, `Execution` out.

The program runs in the sandbox (`inside`), its operator calls are answered here (`executor`), and
what it answers is compared here (`answers`): the program sees neither gold answer nor hidden tests.
Rewards are made of executions elsewhere.
"""

import time
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from assay.data.episode import Completion
from assay.data.files import whole_text
from assay.data.formats.problem_rows import ENTRY_POINT, LEVEL, PROBLEM, PROBLEM_TYPE, TOPIC
from assay.data.row import Row
from assay.errors import AssayError, InputError, nearest
from assay.labs.workflows.answers import judge_answer, workers
from assay.labs.workflows.execution import ABSTAINED, Execution, Outcome
from assay.labs.workflows.executor import ExecutorSetup, OperatorHost
from assay.labs.workflows.inside import checked_result
from assay.labs.workflows.programs.operators import OPERATORS, OperatorFacts, described
from assay.labs.workflows.programs.program import program_of
from assay.labs.workflows.programs.validate import validate
from assay.sandbox.isolation import chosen_isolation
from assay.sandbox.limits import CallLimits
from assay.sandbox.limits import CallOutcome as Returned
from assay.tasks.helper_model import Caller, HelperFailed, HelperModel
from assay.tasks.judge_reward import Pair

WORKFLOW = "workflow"
"""Begins the model source of a fixed workflow: `workflow:direct`."""
HEAD = """class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
"""


def workflow(operators: Mapping[str, str], body: str, parameters: str = "problem") -> str:
    """A program with these operators (attribute -> class) and the lines of its `__call__`."""
    made = "".join(f"        self.{a} = operator.{c}(self.llm)\n" for a, c in operators.items())
    lines = "".join(f"        {line}\n" if line else "\n" for line in body.strip().splitlines())
    return f"{HEAD}{made}\n    async def __call__(self, {parameters}):\n{lines}"


_ALL = {
    name: workflow(**table)
    for name, table in tomllib.loads(
        files("assay.labs.workflows").joinpath("fixed.toml").read_text(encoding="utf-8")
    ).items()
}
CODE, TEST_DRIVEN = _ALL.pop("code"), _ALL.pop("test-driven code")
FIXED: Mapping[str, str] = _ALL
"""By name; for problems that are answered with a text."""
FALLBACK: Mapping[str, str] = {"text": FIXED["custom"], "code": CODE}
"""What answers in place of a failed program where an evaluation asks for that (AFlow's default)."""
FIXED_SOURCES: Mapping[str, Mapping[str, str]] = {
    name.replace(",", "").replace(" ", "-"): {"text": program, "code": CODE}
    for name, program in FIXED.items()
} | {"test-driven-code": {"text": FIXED["direct"], "code": TEST_DRIVEN}}
"""The programs of `model = "workflow:NAME"`, for texts and for code."""
OTHERS = "*"
"""In a router's table: every problem that no other entry fits."""


def table_of(text: str) -> dict[str, str]:
    """The workflow by TOPIC/LEVEL, TOPIC, type or OTHERS, of `KEY=NAME,...`; a single name is that
    of all problems. Raises InputError for a workflow that there is not and a key given twice."""
    table: dict[str, str] = {}
    for entry in text.split(","):
        key, named, name = entry.partition("=")
        key, name = (key, name) if named else (OTHERS, entry)
        if name not in FIXED_SOURCES:
            raise InputError(
                f"no workflow {name!r}", field="model", fix=nearest(name, FIXED_SOURCES)
            )
        if table.setdefault(key, name) != name:
            fix = "one entry for each key"
            raise InputError(f"{key!r} has two workflows", field="model", fix=fix)
    return table


def routed(table: Mapping[str, str], row: Row) -> str:
    """The program for a problem: of the first of its TOPIC/LEVEL, topic, type and OTHERS that the
    table has. Raises InputError where it has none of them."""
    kind = row.extra[PROBLEM_TYPE]
    topic = row.extra.get(TOPIC) or kind
    for key in (f"{topic}/{row.extra.get(LEVEL)}", topic, kind, OTHERS):
        if key in table:
            return FIXED_SOURCES[table[key]]["code" if kind == "code" else "text"]
    fix = f'add "{topic}=NAME" or "{OTHERS}=NAME"'
    raise InputError(f"the router has no workflow for {topic!r}", field="model", fix=fix)


OFFERED = "operators"
"""The field of a row that names the operators its program may use; all where it has none."""
INSIDE = "assay.labs.workflows.inside:run_workflow"
AT_ONCE = 24
"""Programs that run at once, most of them waiting for the executor model."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How programs are run."""

    seconds: float = 30.0
    """Of a program's own; its waiting for the executor does not count."""
    calls: int = 16
    """Operator calls of a program."""
    fallback: bool = False
    """Whether a fallback workflow answers where the program does not; a failure all the same."""
    longest: float = 600.0
    """In all. A program that waited for so long met an executor that fails."""


def run_all(pairs: Sequence[Pair], model: HelperModel, settings: RunSettings) -> list[Execution]:
    """What became of each completion, in order; several programs run at once.

    Raises RunFailure.
    """
    with ThreadPoolExecutor(min(AT_ONCE, max(len(pairs), 1)), "assay-workflow") as threads:
        return list(threads.map(lambda p: run_one(p[0], p[1], model, settings), pairs))


def run_one(
    row: Row, completion: Completion, model: HelperModel, settings: RunSettings
) -> Execution:
    """What became of one completion. Raises as `run_all`; any other error is the lab's own, and
    leaves this completion alone without a verdict."""
    draws = f"{row.id}#{visit_of(row, completion)}"
    setup = ExecutorSetup(model, row, draws, Caller(problem=row.id, completion=completion.id))
    try:
        ran = judged(row, run_text(completion.text, setup, settings))
        if settings.fallback and ran.outcome not in ("solved", "wrong", ABSTAINED):
            # The outcome stays the policy's failure, and so does its score.
            is_code = row.extra[PROBLEM_TYPE] == "code"
            answer = run_source(FALLBACK["code" if is_code else "text"], setup, settings)
            return replace(ran, fallback=True, answer=answer.answer, fallback_calls=answer.calls)
        return ran
    except AssayError:
        raise
    except Exception as error:
        why = whole_text(f"the lab failed: {type(error).__name__}: {error}")
        return Execution(ABSTAINED, error="lab", why=why)


def visit_of(row: Row, completion: Completion) -> str:
    """What the completions of a group share: `STEP` of a stage's `STEP/ROW#SAMPLE`, else the repeat
    of an evaluation's `ROW#REPEAT`."""
    evaluated = completion.id.startswith(f"{row.id}#")
    return completion.id.rpartition("#")[2] if evaluated else completion.id.partition("/")[0]


def run_text(text: str, setup: ExecutorSetup, settings: RunSettings) -> Execution:
    """What became of the program in a completion, not yet judged: "wrong" where it answered."""
    source = program_of(text)
    if source is None:
        why = "the completion has no program with a class Workflow"
        return Execution("invalid program", error="no_program", why=why)
    is_code = setup.row.extra[PROBLEM_TYPE] == "code"
    findings = validate(source, operators=offered(setup.row), code_problem=is_code)
    if findings:
        why, code = f"line {findings[0].line}: {findings[0].problem}", findings[0].code
        return Execution("invalid program", error=code, why=why, program=source)
    return run_source(source, setup, settings)


def offered(row: Row) -> dict[str, OperatorFacts]:
    """The operators that the program of a row may use."""
    return {name: OPERATORS[name] for name in row.extra.get(OFFERED, OPERATORS)}


def run_source(source: str, setup: ExecutorSetup, settings: RunSettings) -> Execution:
    """Run a valid program. A failure of the executor model is an outcome too."""
    host = OperatorHost(setup)
    row = setup.row
    arguments = {
        "program": source,
        "problem": row.extra[PROBLEM],
        "entry_point": row.extra.get(ENTRY_POINT) or "",
        "operators": described(offered(row)),
    }
    began = time.monotonic()
    try:
        pool = workers(INSIDE, chosen_isolation(), AT_ONCE, CallLimits(calls=settings.calls))
        done = pool.run(arguments, host, settings.seconds, settings.longest)
    except HelperFailed as failed:
        ended: Mapping[str, Any] = {"outcome": ABSTAINED, "error": "model", "why": str(failed)}
    else:
        ended = ending(done)
        if done.failure == "deadline" and done.why.endswith("in all"):
            why = "the executor model did not answer in time"
            ended = {"outcome": ABSTAINED, "error": "model", "why": why}
    calls = tuple(host.calls)
    return Execution(program=source, calls=calls, seconds=time.monotonic() - began, **ended)


def ending(returned: Returned) -> dict[str, Any]:
    """Outcome, answer, error and reason of what came out of the sandbox. Nothing in it is trusted:
    a program can only spoil its own answer."""
    if returned.failure is not None:
        late = returned.failure in ("deadline", "cpu")
        outcome: Outcome = "timeout" if late else "invalid program"
        return {"outcome": outcome, "error": f"limit {returned.failure}", "why": returned.why}
    value = checked_result(returned.value)
    if value is None:
        return {"outcome": "invalid program", "error": "limit protocol", "why": "no known reply"}
    if "answer" in value:
        return {"outcome": "wrong", "answer": value["answer"]}
    kind, why = value["error"], value["why"]
    outcome = "operator error" if kind.startswith("operator ") else "invalid program"
    return {"outcome": outcome, "error": kind, "why": why}


def judged(row: Row, execution: Execution) -> Execution:
    """An execution with the verdict on its answer; "executor failure" where there is none."""
    if execution.outcome != "wrong":
        return execution
    score, why = judge_answer(row, execution.answer)
    if score is None:
        return replace(execution, outcome=ABSTAINED, error="judge", why=why)
    outcome: Outcome = "solved" if score >= 1 else "wrong"
    return replace(execution, outcome=outcome, why=why, score=score)
