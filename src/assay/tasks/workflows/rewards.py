"""Rewards of workflow programs: from an execution and the score of its answer.

The default pays correctness, minus terms of cost and length that can never outweigh it.
"""

from dataclasses import dataclass

from assay.data.episode import Reward
from assay.data.row import Row
from assay.tasks.workflows.execution import ABSTAINED, Execution
from assay.tasks.workflows.facts import facts_of
from assay.tasks.workflows.problems import PROBLEM_TYPE

EXECUTOR = "executor"
"""The helper model that answers operator calls: `[model.executor]`."""
FAILED = -0.2
"""Of a program that gave no answer."""
MOST_TERMS = 0.5
"""Cost and length together take less than this share of the smallest right score."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What cost and length take off."""

    cost: float = 0.1
    """At `full_cost` and above; in proportion below."""
    full_cost: float = 0.01
    length: float = 0.1
    """At `full_tokens` that the executor reads and writes, and above."""
    full_tokens: float = 2000.0


def solved(execution: Execution, score: float | None, row: Row, terms: Terms) -> Reward:
    """The default reward: score * (1 - terms) for an answer, FAILED for none.

    An answer that is right earns at least 1 - cost - length, one that is wrong at most 0.
    """
    facts = facts_of(execution, row.extra[PROBLEM_TYPE])
    if execution.outcome == ABSTAINED:
        return Reward(None, why=execution.why, facts=facts)
    outcome = "right" if execution.outcome == "solved" else execution.outcome
    if score is None:
        return Reward(FAILED, {"correct": 0.0}, execution.why, outcome, facts)
    tokens = sum(call.prompt_tokens + call.completion_tokens for call in execution.calls)
    cost = terms.cost * min(1.0, (execution.cost or 0.0) / terms.full_cost)
    length = terms.length * min(1.0, tokens / terms.full_tokens)
    parts = {"correct": score, "cost_term": -cost * score, "length_term": -length * score}
    return Reward(score * (1 - cost - length), parts, execution.why, outcome, facts)


def accuracy(execution: Execution, score: float | None, row: Row) -> Reward:
    """The score of the answer alone; 0 for none."""
    facts = facts_of(execution, row.extra[PROBLEM_TYPE])
    if execution.outcome == ABSTAINED:
        return Reward(None, why=execution.why, facts=facts)
    outcome = "right" if execution.outcome == "solved" else execution.outcome
    return Reward(score or 0.0, {"correct": score or 0.0}, execution.why, outcome, facts)
