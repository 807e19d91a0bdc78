"""What became of one workflow program: its outcome, its operator calls and what they cost.

Frozen data alone; `run_program` makes it, rewards and pages read it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assay.tasks.workflows.programs.validate import Finding

Outcome = Literal[
    "solved",
    "wrong",
    "invalid program",
    "operator error",
    "timeout",
    "over budget",
    "executor failure",
]
"""The answer is right; it is not; no program, one that the validator refuses, or one that raised or
broke a limit; an operator's error that the program did not catch; out of time; over the budget of a
problem; the executor model or the lab failed, which says nothing of the program."""
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
    questions: int = 0
    """Questions that the executor model was asked for it."""
    remembered: int = 0
    """Those of them whose answer was known from before; they cost nothing."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0
    """In the price table's currency; None where a price is not known."""
    saved: float | None = 0.0
    """What the remembered answers would have cost."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Execution:
    """One program on one problem."""

    outcome: Outcome
    answer: str = ""
    """What the program returned as its answer, as text; "" where it returned none."""
    error: str = ""
    """The kind of a failure for the error taxonomy: a finding's code, "no_program", "raised
    KeyError", "limit memory", "operator malformed", ...; "" for solved and wrong."""
    why: str = ""
    """A sentence about it."""
    program: str = ""
    """The source that ran, as it stands in the completion; "" where none was found."""
    findings: tuple[Finding, ...] = ()
    calls: tuple[OperatorCall, ...] = ()
    seconds: float = 0.0
    """Wall time of the program, its waiting for operators included."""
    fallback: bool = False
    """Whether a fallback workflow gave the answer in the end; the policy failed all the same."""
    fallback_calls: tuple[OperatorCall, ...] = ()
    """The fallback workflow's, which are no doing of the program."""

    @property
    def cost(self) -> float | None:
        """What was paid for all calls, the fallback's included; None where one is not known."""
        return total(call.cost for call in (*self.calls, *self.fallback_calls))

    @property
    def uncached_cost(self) -> float | None:
        """What the program's calls cost whoever asks first. Rewards look at this: equal programs
        earn the same, whichever of them found its answers remembered."""
        return total(cost for call in self.calls for cost in (call.cost, call.saved))


def total(costs: Iterable[float | None]) -> float | None:
    """The sum; None where one of them is not known."""
    known = [*costs]
    return None if None in known else sum(cost for cost in known if cost is not None)
