"""The host's side of operator calls: asks the executor model, runs code, and notes what it took.

One `OperatorHost` serves one program. A call's failure is told to the program, which may catch it;
a failure of the model or a spent budget ends the program, see `run_program`. What the operators
are, what they ask and how an answer is read is data of `operators`.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.data.files import whole_text
from assay.data.formats.problem_rows import ENTRY_POINT, PUBLIC_TESTS
from assay.data.hashing import sha256_text
from assay.data.row import Message, Row
from assay.labs.workflows.answers import TestRunner
from assay.labs.workflows.execution import OperatorCall, total
from assay.labs.workflows.operator_answers import chosen, malformed, read_answer
from assay.labs.workflows.programs.operators import (
    MD_VOTES,
    OPERATORS,
    Operator,
    OperatorFailed,
    checked_arguments,
    question,
)
from assay.rl.policy import SampleKey
from assay.sandbox.limits import Outcome
from assay.tasks.helper_model import Caller, HelperAnswer, HelperFailed, HelperModel
from assay.tasks.running import is_reply

ATTEMPTS = 3
"""Programs that Programmer writes at most (AFlow)."""
MOST_QUESTIONS = 16
"""Of one call."""
LONGEST_FEEDBACK = 300
"""Characters of a failure that the next attempt is told."""
LONGEST_ERROR = 2_000
"""Characters of a failure that Programmer gives as its output."""
CODE_SECONDS = 10.0
"""For one run of code that an operator wrote."""
SOLVE = "solve"
"""The function that Programmer asks for."""
BANNED = (
    *("os", "sys", "subprocess", "multiprocessing", "matplotlib", "seaborn", "plotly", "bokeh"),
    *("ggplot", "pylab", "tkinter", "PyQt5", "wx", "pyglet"),
)
"""Modules whose import AFlow's Programmer refuses to run; what protects here is the sandbox."""


CodeRunner = Callable[[str, str, float], Outcome]
"""Runs (program, function, seconds) in the sandbox, see `sandbox.program.call_function`."""


@dataclass(frozen=True)
class ExecutorSetup:
    """What the programs of a problem have to work with."""

    model: HelperModel
    """The executor model."""
    code: CodeRunner
    tests: TestRunner
    row: Row
    draws: str
    """Names the random numbers. Programs with equal `draws` that ask the same with their nth call
    get the same answer, so that the programs of a group differ by what they do, not by luck."""
    caller: Caller = Caller()


@dataclass
class OperatorHost:
    """Answers the operator calls of one program; several may be open at once."""

    setup: ExecutorSetup
    calls: list[OperatorCall] = field(default_factory=list)
    """In the order in which they ended."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, name: str, arguments: Mapping[str, Any], number: int) -> Mapping[str, Any]:
        """The reply to the program's call of this number.

        Raises HelperFailed and OverBudget, which end the program.
        """
        began, asker = time.monotonic(), Asker(self, number)
        result, error, why = None, "", ""
        try:
            if (operator := OPERATORS.get(name)) is None:
                raise OperatorFailed("unknown operator", f"there is no operator {name}")
            given = checked_arguments(operator, arguments)
            asker.use(operator)
            result = PROCEDURES.get(name, answered)(asker, operator, given)
        except OperatorFailed as failed:
            error, why = failed.kind, failed.why
        finally:
            noted = asker.noted(name, arguments, result, error, time.monotonic() - began)
            with self._lock:
                self.calls.append(noted)
        if result is None:
            return {"error": error, "why": why, "usage": self.usage()}
        return {"result": result, "usage": self.usage()}

    def usage(self) -> dict[str, float | None]:
        """The totals that AFlow's `get_usage_summary` tells; a cost that is not known is None."""
        with self._lock:
            calls = list(self.calls)
        read, written = sum(c.prompt_tokens for c in calls), sum(c.completion_tokens for c in calls)
        return {
            "total_input_tokens": read,
            "total_output_tokens": written,
            "total_tokens": read + written,
            "call_count": sum(call.questions for call in calls),
            "total_cost": total(call.cost for call in calls),
        }


@dataclass
class Asker:
    """Asks the executor model for one operator call, and adds up what that took."""

    host: OperatorHost
    number: int
    """The program's calls are numbered from 0 in the order in which it makes them."""
    model: HelperModel = field(init=False)
    answers: list[HelperAnswer] = field(default_factory=list)
    problem: str = ""
    """The kind of a failure that the program is told as its result."""

    def use(self, operator: Operator) -> None:
        """Ask on behalf of an operator."""
        setup = self.host.setup
        self.model = setup.model.called_by(replace(setup.caller, operator=operator.name))

    def ask(self, operator: Operator, arguments: Mapping[str, Any]) -> str:
        """One answer. Raises OperatorFailed where the question is longer than the model reads,
        HelperFailed and OverBudget."""
        # What a program asks may hold half of a surrogate pair.
        text = whole_text(question(operator, arguments))
        # By the call's number and not by its arrival: calls that are open at once arrive anyhow.
        draw = self.number * MOST_QUESTIONS + len(self.answers)
        key = SampleKey(0, f"{self.host.setup.draws}|{sha256_text(text)[:16]}", draw)
        (said,) = self.model.answer([[Message("user", text)]], self.model.sampling, [key])
        self.answers.append(said)
        if said.too_long:
            raise OperatorFailed("arguments", f"the question is too long: {said.failure}")
        if said.failure:
            raise HelperFailed(f"{self.model.name} gave no answer: {said.failure}")
        return said.text

    def solve(self, code: str) -> tuple[str, str]:
        """What the code's `solve()` returns as text, and why it failed; "" for a success."""
        for module in BANNED:
            if f"import {module}" in code or f"from {module}" in code:
                return "", f"Prohibited import: {module} and graphing functionalities"
        done = self.host.setup.code(code, SOLVE, CODE_SECONDS)
        if done.failure in ("deadline", "cpu"):
            return "", "Code execution timed out"
        if done.failure is not None:
            return "", f"{done.failure}: {done.why}"
        if not is_reply(done.value):
            return "", "its process answered in another form"
        return whole_text(done.value["output"]), whole_text(done.value["error"])[:LONGEST_ERROR]

    def noted(
        self, name: str, arguments: Mapping[str, Any], result: Any, error: str, seconds: float
    ) -> OperatorCall:
        """The call as it is recorded."""
        return OperatorCall(
            name,
            dict(arguments),
            result,
            error or self.problem,
            questions=len(self.answers),
            remembered=sum(each.remembered for each in self.answers),
            prompt_tokens=sum(each.prompt_tokens or 0 for each in self.answers),
            completion_tokens=sum(each.completion_tokens or 0 for each in self.answers),
            cost=total(each.cost for each in self.answers),
            saved=total(each.saved for each in self.answers),
            seconds=seconds,
        )


Procedure = Callable[[Asker, Operator, Mapping[str, Any]], Mapping[str, Any]]


def answered(asker: Asker, operator: Operator, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """One question and its answer."""
    function = str(arguments.get("entry_point", ""))
    return read_answer(operator, asker.ask(operator, arguments), function)


def ensemble(asker: Asker, operator: Operator, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The solution whose letter the model names."""
    return {"response": _named(asker, operator, arguments)}


def vote(asker: Asker, operator: Operator, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The solution that most of MD_VOTES questions name, each with the solutions in another order;
    of equally frequent ones the one that was named first. A vote that cannot be read is dropped."""
    solutions: Sequence[str] = arguments["solutions"]
    votes: Counter[str] = Counter()
    for number in range(MD_VOTES):
        shuffled = random.Random(number).sample(solutions, len(solutions))
        try:
            votes[_named(asker, operator, {**arguments, "solutions": shuffled})] += 1
        except OperatorFailed as failed:
            if failed.kind != "malformed":
                raise
    if not votes:
        raise malformed(operator, f"none of {MD_VOTES} votes names a solution")
    return {"solution": votes.most_common(1)[0][0]}


def _named(asker: Asker, operator: Operator, arguments: Mapping[str, Any]) -> str:
    """The solution whose letter the model writes."""
    letter = read_answer(operator, asker.ask(operator, arguments))["solution_letter"]
    return chosen(operator, arguments["solutions"], str(letter))


def programmer(asker: Asker, operator: Operator, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """A program's code and what its `solve()` returns. Code that fails is shown to the next attempt
    with its error; the last one's error is the output."""
    code, why, feedback = "", "", ""
    for _ in range(ATTEMPTS):
        text = asker.ask(operator, {**arguments, "feedback": feedback})
        code = str(read_answer(operator, text, SOLVE)["code"])
        if not code:
            why = "No code generated"
            break
        output, why = asker.solve(code)
        if not why:
            return {"code": code, "output": output}
        feedback = f"{code}\n\n{why[:LONGEST_FEEDBACK]}"
    asker.problem = "code"
    return {"code": code, "output": why}


def tested(asker: Asker, operator: Operator, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whether a solution passes the problem's public tests; where it fails, it is written again at
    most `test_loop` times."""
    tests = asker.host.setup.row.extra.get(PUBLIC_TESTS) or ()
    if not tests:
        raise OperatorFailed("arguments", "the problem has no public tests")
    solution = arguments["solution"]
    for loop in range(arguments["test_loop"] + 1):
        failure = _failure(asker, solution, tests)
        if not failure:
            return {"result": True, "solution": solution}
        if loop < arguments["test_loop"]:
            told = {**arguments, "solution": solution, "failure": failure[:LONGEST_FEEDBACK]}
            solution = str(read_answer(operator, asker.ask(operator, told))["solution"])
    return {"result": False, "solution": solution}


def _failure(asker: Asker, solution: str, tests: Sequence[str]) -> str:
    """Why a solution fails the public tests; "" where it passes."""
    setup = asker.host.setup
    done = setup.tests(solution, tests, setup.row.extra[ENTRY_POINT])
    if done.failure is not None:
        return f"{done.failure}: {done.why}"
    return str(done.value["failure"])


PROCEDURES: Mapping[str, Procedure] = {
    "ScEnsemble": ensemble,
    "MdEnsemble": vote,
    "Programmer": programmer,
    "Test": tested,
}
"""By operator; all others are `answered`."""
