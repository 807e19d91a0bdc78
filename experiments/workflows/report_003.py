"""The rewards of report 003's project, as its code computed them.

    task = "path:experiments/workflows/report_003.py"

The rewards of report 003's project (rl-agentflow-qwen 8c35b92), as its code computed them, faults
included:

  report_v1      .7 correct + .2 efficiency + .1 simplicity
  report_v2      .65 correct + .15 efficiency + .1 simplicity + .05 format + .05 repetition
  report_levels  the later one: 0, .2, .4, .7 or 1, times 10

Each term is one of a few levels, see the tables below; both sums are held in [-10, 10], and a
failed program earns -10. Near misses are paid: 8 points for a number that is within 0.1, 5 for code
that merely has the function's name. Its operator count was never filled in and stayed 1. What is
different here: an executor that failed is an abstention, and there is no fallback that earns.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from assay.data.episode import Reward
from assay.data.formats.problem_rows import ENTRY_POINT, PROBLEM_TYPE
from assay.data.row import Row
from assay.labs.math.sentences import number
from assay.labs.workflows.answers import ALTERNATIVES
from assay.labs.workflows.execution import Execution, scored
from assay.labs.workflows.run_program import RunSettings
from assay.labs.workflows.task import WorkflowsTask, judged_by
from assay.tasks.judge_reward import JudgeReward

LOWEST, HIGHEST = -10.0, 10.0
CORRECT = 5.0
"""The report calls an answer of at least so many points correct."""
Levels = Sequence[tuple[float, float]]
"""(bound, value) in order: the value of the first bound that is not exceeded."""

NUMBER_MISS: Levels = ((1e-4, 10), (0.1, 8), (1.0, 5), (10.0, 2), (float("inf"), -5))
"""By the difference to the right number; strictly below each bound."""
NO_NUMBER = -8.0
COST: Levels = ((0.001, 10), (0.005, 5), (0.01, 0), (0.05, -3), (float("inf"), -8))
"""By the cost in dollars; a cost of 0 earns 0."""
SECONDS: Levels = ((5, 10), (15, 5), (30, 0), (60, -3), (float("inf"), -5))
OVERLAP: Levels = ((0.2, -5), (0.5, 0), (0.8, 3), (1.0, 6))
"""By the share of the right answer's words that an answer has; strictly above each bound."""
UNIQUE: Levels = ((0.5, -2), (0.7, -1), (0.9, -0.5), (1.0, 0))
"""By the share of different three-word sequences; strictly above each bound."""
ONE_OPERATOR = 10.0
"""The points of at most two operators: the report's count was always 1."""


def level(levels: Levels, value: float, strict: bool = False) -> float:
    """The value of the first level whose bound is not exceeded; with `strict`, not reached."""
    for bound, points in levels:
        if value < bound or (not strict and value == bound):
            return points
    return levels[-1][1]


def correct(row: Row, answer: str) -> float:
    """The points of an answer by the type of its problem, -8 to 10."""
    return CORRECTNESS[row.extra[PROBLEM_TYPE]](row, answer)


def of_number(row: Row, answer: str) -> float:
    """By the distance of the last number."""
    wanted, given = last_number(str(row.gold)), last_number(answer)
    if wanted is None or given is None:
        return NO_NUMBER
    return level(NUMBER_MISS, abs(wanted - given), strict=True)


def last_number(text: str) -> float | None:
    """The number in the last box, else the last number of a text."""
    boxed = re.findall(r"\\boxed\{([^{}]*)\}", text)
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", boxed[-1] if boxed else text)
    value = number(found[-1]) if found else None
    return None if value is None else float(value)


def of_code(row: Row, answer: str) -> float:
    """10 where one text contains the other, 5 for the function's name, else -5."""
    truth = str(row.gold or "").strip()
    if truth and answer.strip() and (truth in answer or answer.strip() in truth):
        return 10.0
    return 5.0 if f"def {row.extra[ENTRY_POINT]}" in answer else -5.0


def of_text(row: Row, answer: str) -> float:
    """10 for the right text, 8 for one that contains it, else by the share of its words."""
    given = answer.strip().lower()
    best = -5.0
    for truth in str(row.gold).lower().split(ALTERNATIVES):
        if given == truth.strip():
            return 10.0
        if truth.strip() in given:
            best = max(best, 8.0)
        words = truth.split()
        shared = len({*words} & {*given.split()}) / max(len({*words}), 1)
        best = max(best, above(OVERLAP, shared))
    return best


def above(levels: Levels, share: float) -> float:
    """The value of the highest level whose lower bound is exceeded."""
    lows = [float("-inf"), *(bound for bound, _ in levels[:-1])]
    return max((low, points) for low, (_, points) in zip(lows, levels, strict=True) if share > low)[
        1
    ]


CORRECTNESS: dict[str, Callable[[Row, str], float]] = {
    "math": of_number,
    "code": of_code,
    "qa": of_text,
}


def efficiency(cost: float | None) -> float:
    """The points of a cost in dollars; 0 for one that is 0 or not known."""
    return level(COST, cost) if cost else 0.0


def simplicity(seconds: float) -> float:
    """The mean of the points of the time and of the operators."""
    return (level(SECONDS, seconds) + ONE_OPERATOR) / 2


def form(row: Row, answer: str) -> float:
    """2, 0 or -2 by the tags of reasoning and answer, or the fence of code; 0 for questions."""
    kind = row.extra[PROBLEM_TYPE]
    if kind == "code":
        return 2.0 if "```" in answer else -2.0
    if kind == "math":
        tagged = "<answer>" in answer
        return (2.0 if "<think>" in answer else 0.0) if tagged else -2.0
    return 0.0


def repetition(answer: str) -> float:
    """By the share of different three-word sequences; 0 for fewer than three words."""
    words = answer.split()
    grams = [tuple(words[i : i + 3]) for i in range(len(words) - 2)]
    return above(UNIQUE, len({*grams}) / len(grams)) if grams else 0.0


@dataclass(frozen=True, slots=True)
class Weights:
    """What the terms are multiplied by."""

    correct: float
    efficiency: float
    simplicity: float
    format: float = 0.0
    repetition: float = 0.0


V1 = Weights(0.7, 0.2, 0.1)
V2 = Weights(0.65, 0.15, 0.10, 0.05, 0.05)


def weighted(execution: Execution, score: float | None, row: Row, weights: Weights) -> Reward:
    """The weighted sum of the terms, held in [-10, 10]; -10 for a failed program."""
    if score is None:
        return scored(execution, row, LOWEST, {"correct": 0.0})
    answer = execution.answer
    parts = {
        "correct": weights.correct * correct(row, answer),
        "efficiency": weights.efficiency * efficiency(execution.uncached_cost),
        "simplicity": weights.simplicity * simplicity(execution.seconds),
        "format": weights.format * form(row, answer),
        "repetition": weights.repetition * repetition(answer),
    }
    value = min(max(sum(parts.values()), LOWEST), HIGHEST)
    return scored(execution, row, value, parts)


SCORE_LEVELS = ((1.0, 1.0), (0.7, 0.7), (0.4, 0.4), (0.2, 0.2), (0.0, 0.0))
"""(least score, level)."""


def levels(execution: Execution, score: float | None, row: Row) -> Reward:
    """The later reward: the level of the score, times 10; 0 for a failed program."""
    if score is None:
        return scored(execution, row, 0.0, {"correct": 0.0})
    found = next(points for least, points in SCORE_LEVELS if score >= least)
    return scored(execution, row, HIGHEST * found, {"level": found})


def report_reward(
    rewarding: Callable[..., Reward], seconds: float = 180.0, calls: int = 16
) -> JudgeReward:
    """A reward of the report, with its deadline."""
    maker = partial(report_reward, rewarding)
    return judged_by(rewarding, RunSettings(seconds, calls), maker, HIGHEST)


class Report003(WorkflowsTask):
    """Workflows with the report's rewards."""

    name = "workflows-report-003"
    rewards = {  # noqa: RUF012
        **WorkflowsTask.rewards,
        "report_v1": report_reward(partial(weighted, weights=V1)),
        "report_v2": report_reward(partial(weighted, weights=V2)),
        "report_levels": report_reward(levels),
    }


TASK = Report003()
