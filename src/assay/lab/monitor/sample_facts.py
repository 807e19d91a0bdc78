"""Reads what the samples of a stage's steps record of each completion, for the progress report.

Facts of a reward are taken by their names, whatever the task; what a task does not note is None.
The facts of a step are kept as long as its file does not change. Nothing is counted here.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.data.episode import Reward
from assay.data.hashing import sha256_text
from assay.runs.records import FACTS, OUTCOME, VISIT, outcome, read_columns
from assay.runs.run_directory import RunDirectory
from assay.tasks.fact_reading import operators_in, plain_facts
from assay.tasks.reward_metrics import marked

COLUMNS = ["sample_id", "step", "row_id", "sample", "text", "reward", "parts"]


@dataclass(frozen=True, slots=True)
class SampleFacts:
    """One completion."""

    sample_id: str
    step: int
    row_id: str
    group: str
    """Its group: row and visit."""
    sample: int
    text_key: str
    """Equal for equal texts."""
    reward: float | None
    outcome: str
    error: str | None
    """The kind of its failure; "" where it has none, None where the task notes no errors."""
    form: bool | None
    """Whether it has the right form, as its reward says; None where it does not."""
    operators: tuple[str, ...] | None
    fallback: bool | None
    cost: float | None
    problem_type: str


@dataclass(frozen=True, slots=True)
class SampleText:
    """What a completion says, for those that are shown."""

    facts: SampleFacts
    program: str
    """Its program; the completion where the task notes none."""
    why: str


def sampled_steps(run: RunDirectory, stage: str, steps: Sequence[int]) -> list[int]:
    """The steps whose samples are kept."""
    return [step for step in steps if run.samples(stage, step).exists()]


def facts_of_steps(run: RunDirectory, stage: str, steps: Sequence[int]) -> list[SampleFacts]:
    """The completions of the steps whose samples are kept, in order. Raises DamagedRecord."""
    found: list[SampleFacts] = []
    for step in sampled_steps(run, stage, steps):
        file = run.samples(stage, step)
        found += _facts(file, file.stat().st_mtime_ns)
    return found


def programs_of_step(run: RunDirectory, stage: str, step: int) -> list[SampleText]:
    """The completions of one step with their programs; none where no sample is kept."""
    file = run.samples(stage, step)
    return list(_programs(file, file.stat().st_mtime_ns)) if file.exists() else []


@lru_cache(maxsize=4096)
def _facts(file: Path, written: int) -> tuple[SampleFacts, ...]:
    return tuple(_sample(line, facts) for line, facts in _lines(file))


@lru_cache(maxsize=32)
def _programs(file: Path, written: int) -> tuple[SampleText, ...]:
    return tuple(
        SampleText(
            _sample(line, facts), str(facts.get("program") or line["text"]), facts.get("why", "")
        )
        for line, facts in _lines(file)
    )


def _lines(file: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The lines of a step's samples with the facts of each."""
    columns = read_columns(file, COLUMNS, (VISIT, FACTS, OUTCOME))
    for values in zip(*columns.values(), strict=True):
        line = dict(zip(columns, values, strict=True))
        yield line, plain_facts(json.loads(line.get(FACTS) or "{}"))


def _sample(line: dict[str, Any], facts: dict[str, Any]) -> SampleFacts:
    noted = Reward(None, json.loads(line["parts"] or "{}"), facts=facts)
    operators, fallback, error = facts.get("operators"), facts.get("fallback"), facts.get("error")
    return SampleFacts(
        sample_id=line["sample_id"],
        step=line["step"],
        row_id=line["row_id"],
        group=f"{line['row_id']}#{line.get(VISIT) or 0}@{line['step']}",
        sample=line["sample"],
        text_key=sha256_text(line["text"] or "")[:16],
        reward=line["reward"],
        outcome=line.get(OUTCOME) or outcome(line["reward"], str(error or "")),
        error=None if error is None else str(error),
        form=marked(noted, "format"),
        operators=None if operators is None else operators_in(str(operators)),
        fallback=None if fallback is None else fallback > 0,
        cost=facts.get("cost"),
        problem_type=str(facts.get("problem_type", "")),
    )
