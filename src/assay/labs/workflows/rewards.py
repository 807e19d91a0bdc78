"""The default rewards of workflow programs: from an execution and the score of its answer.

`solved` pays correctness, minus terms of cost and length that can never outweigh it; `accuracy` is
the score alone; `net` is the score minus price x cost, whatever the answer is worth.

  outcome             solved                                    accuracy       net
  solved              1 - cost term - length term, above 0.5    1              1 - price x cost
  wrong               the same shares of half the score: of     the score      the score
                      an answer in words its F1, else 0                        - price x cost
  invalid program,    FAILED, below every answer                0              FAILED
  operator error,                                                              - price x cost
  timeout, over
  budget
  executor failure    an abstention                             an abstention  an abstention
"""

import math
from dataclasses import dataclass, replace

from assay.data.episode import Reward
from assay.data.row import Row
from assay.errors import InputError
from assay.labs.workflows.execution import ABSTAINED, Execution, facts_of

EXECUTOR = "executor"
"""The helper model that answers operator calls: `[model.executor]`."""
FAILED = -0.2
"""Of a program that gave no answer."""
MOST_TERMS = 0.5
"""Cost and length together take less than this share, and no wrong answer earns more than it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What cost and length take off a score, as shares of it."""

    cost: float = 0.1
    """At `full_cost` and above; in proportion below."""
    full_cost: float = 0.01
    """In the currency of the executor's price."""
    length: float = 0.1
    """At `full_tokens` that the executor reads and writes, and above; in proportion below."""
    full_tokens: float = 2000.0

    def __post_init__(self) -> None:
        """Raise InputError unless a right answer earns more than half, whatever it costs."""
        shares, scales = (self.cost, self.length), (self.full_cost, self.full_tokens)
        if not all(math.isfinite(v) and v >= 0 for v in shares) or sum(shares) >= MOST_TERMS:
            problem = f"cost {self.cost:g} and length {self.length:g} could outweigh correctness"
            fix = f"let them add up to less than {MOST_TERMS:g}"
            raise InputError(problem, field="options.cost", fix=fix)
        if not all(math.isfinite(v) and v > 0 for v in scales):
            problem = f"full_cost {self.full_cost:g} and full_tokens {self.full_tokens:g}"
            raise InputError(problem, field="options.full_cost", fix="numbers above 0")

    def taken(self, cost: float | None, tokens: float) -> tuple[float, float]:
        """The shares that cost and length take; an unknown cost takes nothing."""
        return (
            self.cost * min(1.0, (cost or 0.0) / self.full_cost),
            self.length * min(1.0, tokens / self.full_tokens),
        )


def solved(execution: Execution, score: float | None, row: Row, terms: Terms) -> Reward:
    """correct * (1 - cost term - length term) for an answer, FAILED for none.

    `correct` is 1 for a right answer and MOST_TERMS times its score for a wrong one, so that any
    right answer earns more than any wrong one, whatever they cost.
    """
    if execution.outcome == ABSTAINED or score is None:
        return without_score(execution, row, FAILED)
    correct = 1.0 if score >= 1 else MOST_TERMS * score
    tokens = sum(call.prompt_tokens + call.completion_tokens for call in execution.calls)
    cost, length = terms.taken(execution.uncached_cost, tokens)
    parts = {"correct": correct, "cost_term": -cost * correct, "length_term": -length * correct}
    return scored(execution, row, correct * (1 - cost - length), parts)


def accuracy(execution: Execution, score: float | None, row: Row) -> Reward:
    """The score of the answer alone; 0 for none."""
    if execution.outcome == ABSTAINED or score is None:
        return without_score(execution, row, 0.0)
    return scored(execution, row, score, {"correct": score})


def net(
    execution: Execution, score: float | None, row: Row, price: float, failed: float = FAILED
) -> Reward:
    """score - price x cost: what an answer is worth to someone for whom a unit of the executor's
    currency is worth `price` right answers. `failed` stands for the score of no answer. An
    abstention where the cost is not known: taken for nothing, it would be free."""
    cost = execution.uncached_cost
    if execution.outcome == ABSTAINED or cost is None:
        why = execution.why or "the executor's price is not known"
        return Reward(None, why=why, facts=facts_of(execution, row.extra))
    parts = {"correct": score or 0.0, "cost_term": -price * cost}
    if score is None:
        value = failed - price * cost
        return replace(without_score(execution, row, value), parts=parts)
    return scored(execution, row, score - price * cost, parts)


def without_score(execution: Execution, row: Row, failed: float) -> Reward:
    """The reward of a program that gave no answer: an abstention where that is not its doing."""
    facts = facts_of(execution, row.extra)
    if execution.outcome == ABSTAINED:
        return Reward(None, why=execution.why, facts=facts)
    return Reward(failed, {"correct": 0.0}, execution.why, execution.outcome, facts)


def scored(execution: Execution, row: Row, value: float, parts: dict[str, float]) -> Reward:
    """The reward of a program that gave an answer; records call a solved problem right."""
    outcome = "right" if execution.outcome == "solved" else execution.outcome
    facts = facts_of(execution, row.extra)
    return Reward(value, parts, execution.why, outcome, facts)
