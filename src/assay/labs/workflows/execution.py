"""What became of one workflow program: its outcome, its operator calls and what they cost; and the
facts that rewards keep of it, with how records and pages read them.

Frozen data and functions over it; `run_program` makes executions. Default rewards: `solved` pays
correctness, minus terms of cost and length that can never outweigh it; `accuracy` is the score
alone; `net` is the score minus price x cost, whatever the answer is worth.

  outcome             solved                                    accuracy       net
  solved              1 - cost term - length term, above 0.5    1              1 - price x cost
  wrong               the same shares of half the score: of     the score      the score
                      an answer in words its F1, else 0                        - price x cost
  invalid program,    FAILED, below every answer                0              FAILED
  operator error,                                                              - price x cost
  timeout
  executor failure    an abstention                             an abstention  an abstention
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay.data.episode import Reward
from assay.data.formats.problem_rows import PROBLEM_TYPE, TOPIC
from assay.data.row import Row
from assay.errors import InputError
from assay.labs.workflows.programs.program import shape_of
from assay.tasks.helper_model import HelperAnswer
from assay.tasks.reward_metrics import FactReading, GroupMetric

Outcome = Literal[
    "solved",
    "wrong",
    "invalid program",
    "operator error",
    "timeout",
    "executor failure",
]
"""The answer is right; it is not; no program, one that the validator refuses, or one that raised or
broke a limit; an operator's error that the program did not catch; out of time; the executor model
or the lab failed, which says nothing of the program."""
ABSTAINED: Outcome = "executor failure"
"""The only outcome that is not the policy's doing."""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One call of an operator, as the host saw it."""

    operator: str
    """A name of `operators.OPERATORS`."""
    arguments: Mapping[str, Any]
    result: Mapping[str, Any] | None
    """What the program was given; None where the call failed."""
    error: str = ""
    """The kind of its failure: "arguments", "malformed", "unknown operator"; "code" where the
    output of Programmer is an error; "" if none."""
    answers: Sequence[HelperAnswer] = ()
    """Of the executor model, which was asked for it."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Execution:
    """One program on one problem."""

    outcome: Outcome
    score: float | None = None
    """0 to 1; None where nothing was judged."""
    answer: str = ""
    """What the program returned as its answer, as text; "" where it returned none."""
    error: str = ""
    """The kind of a failure for the error taxonomy: a finding's code, "no_program", "raised
    KeyError", "limit memory", "operator malformed", ...; "" for solved and wrong."""
    why: str = ""
    """A sentence about it."""
    program: str = ""
    """The source that ran, as it stands in the completion; "" where none was found."""
    calls: tuple[OperatorCall, ...] = ()
    seconds: float = 0.0
    """Wall time of the program, its waiting for operators included."""
    fallback: bool = False
    """Whether a fallback workflow gave the answer in the end; the policy failed all the same."""
    fallback_calls: tuple[OperatorCall, ...] = ()
    """The fallback workflow's, which are no doing of the program."""

    @property
    def answers(self) -> list[HelperAnswer]:
        """What the executor model answered to the program's calls."""
        return [each for call in self.calls for each in call.answers]

    @property
    def cost(self) -> float | None:
        """What was paid for all calls, the fallback's included; None where one is not known."""
        fallback = [each for call in self.fallback_calls for each in call.answers]
        return total(each.cost for each in (*self.answers, *fallback))

    @property
    def uncached_cost(self) -> float | None:
        """What the program's calls cost whoever asks first. Rewards look at this: equal programs
        earn the same, whichever of them found its answers remembered."""
        return total(cost for each in self.answers for cost in (each.cost, each.saved))

    @property
    def tokens(self) -> int:
        """What the executor model read and wrote for the program."""
        return sum((a.prompt_tokens or 0) + (a.completion_tokens or 0) for a in self.answers)


def total(costs: Iterable[float | None]) -> float | None:
    """The sum; None where one of them is not known."""
    known = [*costs]
    return None if None in known else sum(cost for cost in known if cost is not None)


COUNTED = ("remembered", "prompt_tokens", "completion_tokens")
"""Of the executor's answers."""
DIFFICULTIES = ("level", "operations")
"""Fields of a row that say how hard its problem is: MATH's level, ASDiv's operations."""
CODES = {
    "format": "no_program no_workflow no_init no_call not_async call_arguments no_return"
    " return_shape result_returned no_answer",
    "syntax": "syntax too_long too_deep",
    "llm attribute": "llm_attribute llm_called unknown_attribute",
    "operator misuse": "unknown_operator operator_setup not_instantiated not_awaited"
    " needless_await unknown_parameter repeated_parameter missing_parameter too_many_arguments"
    " wrong_type unknown_key unknown_prompt",
    "forbidden": "forbidden_name import_not_allowed dunder",
    "undefined name": "undefined_name unset_attribute",
    "timeout": "deadline cpu",
    "executor failure": "model judge lab",
}
"""Codes of the validator and of runs by family, those that the validator once had among them."""
FAMILY_OF = {code: family for family, codes in CODES.items() for code in codes.split()}
REFUSED = (*CODES,)[:6]
"""Families of programs that did not run, but for "no_answer", which a run finds."""
OTHER = "other"
FAMILIES = (*REFUSED, "raised", "timeout", "limit", "operator error", "executor failure", OTHER)
"""In the order in which a program meets them."""
KINDS = {"raised": "raised", "operator": "operator error", "limit": "limit"}
"""By the first of two words, such as "raised KeyError"."""


def facts_of(execution: Execution, row: Mapping[str, Any]) -> dict[str, str | float]:
    """The facts by name, `row` being the fields of the problem's row; `cost` is missing where a
    price is not known, and topic and the fields of DIFFICULTIES where the row has none.

    `operators` lists the operators called with their counts ("AnswerGenerate:1 Programmer:2"), by
    name; `program` is the source; `format` is 0 where there is none of the right form.
    """
    calls, answers = execution.calls, execution.answers
    counts = sorted(Counter(call.operator for call in calls).items())
    cost = execution.cost
    return {
        "problem_type": row[PROBLEM_TYPE],
        "error": execution.error,
        "format": float(not execution.error or family_of(execution.error) not in READING.malformed),
        "why": execution.why,
        "answer": execution.answer,
        "program": execution.program,
        "operators": " ".join(f"{name}:{count}" for name, count in counts),
        "calls": float(len(calls)),
        "failed_calls": float(sum(bool(call.error) for call in calls)),
        "questions": float(len(answers)),
        **{name: float(sum(getattr(each, name) or 0 for each in answers)) for name in COUNTED},
        **({} if cost is None else {"cost": cost}),
        **({TOPIC: row[TOPIC]} if TOPIC in row else {}),
        **difficulties(row),
        "seconds": execution.seconds,
        "fallback": float(execution.fallback),
    }


def difficulties(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that say how hard a problem is; MATH writes "Level 3"."""
    texts = {name: str(row[name]).removeprefix("Level ") for name in DIFFICULTIES if name in row}
    return {name: float(text) for name, text in texts.items() if text.isdecimal()}


def fact(facts: Mapping[str, Any], name: str) -> Any:
    """The fact of this name, or of a sum of rewards the first "REWARD/NAME"; None for none."""
    if name in facts:
        return facts[name]
    return next((v for key, v in facts.items() if key.rpartition("/")[2] == name), None)


def valid_program(facts: Mapping[str, Any]) -> str | None:
    """The source of a program that the validator let through; None for any other completion."""
    source, error = fact(facts, "program"), fact(facts, "error")
    refused = error != "no_answer" and family_of(str(error)) in REFUSED
    return source if isinstance(source, str) and source and not refused else None


def family_of(error: str) -> str:
    """The family of a fact `error`, such as "raised KeyError" or "llm_attribute"."""
    kind, _, what = error.partition(" ")
    if kind == "limit" and FAMILY_OF.get(what) == "timeout":
        return "timeout"
    return KINDS.get(kind) or FAMILY_OF.get(error, OTHER)


READING = FactReading(FAMILIES, family_of, frozenset({"format", "syntax"}))


def different_trees(groups: Sequence[Sequence[Reward]]) -> float | None:
    """How different the programs of a group are, as a mean over groups.

    A group of equal programs gives equal rewards, and so nothing to learn from.
    (different trees - 1) / (programs - 1): 0 where all are alike, 1 where no two are. Groups with
    fewer than two valid programs do not count; None where no group has two.
    """
    programs = [[valid_program(reward.facts) for reward in group] for group in groups]
    shapes = [[shape_of(source) for source in group if source is not None] for group in programs]
    shares = [(len(set(each)) - 1) / (len(each) - 1) for each in shapes if len(each) > 1]
    return sum(shares) / len(shares) if shares else None


GROUP_DIVERSITY: Mapping[str, GroupMetric] = {"different_trees_share": different_trees}
"""By name; a health rule looks at it."""


EXECUTOR = "executor"
"""The helper model that answers operator calls: `[model.executor]`."""
FAILED = -0.2
"""Of a program that gave no answer."""
MOST_TERMS = 0.5
"""Cost and length together take less than this share, and no wrong answer earns more than it."""


@dataclass(frozen=True, slots=True)
class ScoreTerms:
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


def solved(execution: Execution, score: float | None, row: Row, terms: ScoreTerms) -> Reward:
    """correct * (1 - cost term - length term) for an answer, FAILED for none.

    `correct` is 1 for a right answer and MOST_TERMS times its score for a wrong one, so that any
    right answer earns more than any wrong one, whatever they cost.
    """
    if score is None:
        return scored(execution, row, FAILED, {"correct": 0.0})
    correct = 1.0 if score >= 1 else MOST_TERMS * score
    cost, length = terms.taken(execution.uncached_cost, execution.tokens)
    parts = {"correct": correct, "cost_term": -cost * correct, "length_term": -length * correct}
    return scored(execution, row, correct * (1 - cost - length), parts)


def accuracy(execution: Execution, score: float | None, row: Row) -> Reward:
    """The score of the answer alone; 0 for none."""
    return scored(execution, row, score or 0.0, {"correct": score or 0.0})


def net(
    execution: Execution, score: float | None, row: Row, price: float, failed: float = FAILED
) -> Reward:
    """score - price x cost: what an answer is worth to someone for whom a unit of the executor's
    currency is worth `price` right answers. `failed` stands for the score of no answer. An
    abstention where the cost is not known: taken for nothing, it would be free."""
    cost = execution.uncached_cost
    if cost is None:
        why = execution.why or "the executor's price is not known"
        return Reward(None, why=why, facts=facts_of(execution, row.extra))
    parts = {"correct": score or 0.0, "cost_term": -price * cost}
    worth = failed if score is None else score
    return scored(execution, row, worth - price * cost, parts)


def scored(execution: Execution, row: Row, value: float, parts: dict[str, float]) -> Reward:
    """The reward of a program: an abstention where it gave no answer and that is not its doing.
    Records call a solved problem right."""
    facts = facts_of(execution, row.extra)
    if execution.outcome == ABSTAINED:
        return Reward(None, why=execution.why, facts=facts)
    outcome = "right" if execution.outcome == "solved" else execution.outcome
    return Reward(value, parts, execution.why, outcome, facts)
