"""The host's side of operator calls: asks the executor model, runs code, and notes what it took.

One `OperatorHost` serves one program. A call's failure is told to the program, which may catch it;
a failure of the model or a spent budget ends the program, see `run_program`. What the operators
are, what they ask and how an answer is read is data of `operators`.
"""

import ast
import random
import re
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from assay.data.files import sha256_text, whole_text
from assay.data.formats.problem_rows import ENTRY_POINT, PUBLIC_TESTS
from assay.data.row import Message, Row
from assay.labs.workflows.answers import passed, run_code
from assay.labs.workflows.execution import OperatorCall, total
from assay.labs.workflows.programs.operators import (
    LETTERS,
    MD_VOTES,
    OPERATORS,
    OperatorError,
    OperatorFacts,
    checked_arguments,
    question,
)
from assay.rl.policy import SampleKey
from assay.tasks.helper_model import Caller, HelperAnswer, HelperFailed, HelperModel, Question
from assay.tasks.running import is_reply

MOST_CHARACTERS = 100_000
MOST_PARSED = 1_000_000
"""Characters that are parsed in search of the longest run; what was found until then is taken."""
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What a text may do to Python's parser."""

_ANSWER_LINE = re.compile(r"^[ \t*_#]*(?:final )?answer[ \t*_]*:", re.IGNORECASE | re.MULTILINE)
_MARKED_PYTHON, _FENCED = (re.compile(rf"```{each}(.*?)```", re.DOTALL) for each in ("python", ""))
_OPENED = re.compile(r"<(\w+)>")
_VERDICTS = {"true": True, "false": False, "yes": True, "no": False}
_WORD = re.compile(r"[A-Za-z]+")
_LETTER = re.compile(
    r"^\W*([A-Z])(?:\W*$|[.:)*])"
    r"|\b(?i:solution|option|letter)\W*([A-Z])\b"
    r"|\b(?i:answer)(?: is)?\W*([A-Z])(?=\W*$|[.,:;)])"
)


def read_answer(operator: OperatorFacts, text: str, function: str = "") -> dict[str, str | bool]:
    """The fields that the operator's answer holds.

    Custom and Format: the text. Revise: `solution`. AnswerGenerate: `thought` and `answer`. Review:
    `review_result` as a real bool, and `feedback`. ScEnsemble, MdEnsemble: `solution_letter`.
    Programmer: `code`, which may be ""; Test: `solution`; CustomCodeGenerate: `response`;
    all three the code that defines `function`. Raises OperatorError("malformed").
    """
    reader, text = READERS[operator.name], text[:MOST_CHARACTERS]
    if operator.name in NOT_STRIPPED:
        return reader(operator, text, function)
    if not text.strip():
        raise malformed(operator, "the executor answered nothing")
    return reader(operator, text.strip(), function)


def malformed(operator: OperatorFacts, why: str) -> OperatorError:
    """The failure of an answer without what the operator needs."""
    return OperatorError("malformed", f"{operator.name}: {why}")


def _text(operator: OperatorFacts, text: str, function: str) -> dict[str, str | bool]:
    return dict.fromkeys(operator.keys, text)


def _solution(operator: OperatorFacts, text: str, function: str) -> dict[str, str | bool]:
    solution = tagged(text, "solution")
    return {"solution": text if solution is None else solution}


def _thought_and_answer(operator: OperatorFacts, text: str, function: str) -> dict[str, str | bool]:
    """The answer after the last mark; the thought is what stands before it."""
    thought, answer = tagged(text, "thought"), tagged(text, "answer")
    if answer is not None:
        before = text.rpartition("</answer>")[0].rpartition("<answer>")[0].strip()
        return {"thought": before if thought is None else thought, "answer": answer}
    thought, answer = _marked(text)
    if not answer:
        raise malformed(operator, "it marks no answer")
    return {"thought": thought, "answer": answer}


def _marked(text: str) -> tuple[str, str]:
    r"""What stands before and behind the last "Answer:" or "####", or the text and its last box; ""
    for no answer."""
    lines = list(_ANSWER_LINE.finditer(text))
    if lines:
        return text[: lines[-1].start()].strip(), text[lines[-1].end() :].strip(" \t\n*_")
    if "####" in text:
        thought, _, answer = text.rpartition("####")
        return thought.strip(), answer.strip()
    thought, mark, rest = text.rpartition(r"\boxed{")
    depth = list(accumulate({"{": 1, "}": -1}.get(c, 0) for c in rest))
    boxed = rest[: depth.index(-1)].strip() if -1 in depth else ""
    return (text, boxed) if mark else (thought, "")


def _verdict(operator: OperatorFacts, text: str, function: str) -> dict[str, str | bool]:
    """The verdict is the field's first word, else the answer's; the rest is the feedback."""
    verdict = tagged(text, "review_result")
    word = _WORD.search(text if verdict is None else verdict)
    result = _VERDICTS.get(word[0].lower()) if word else None
    if word is None or result is None:
        raise malformed(operator, "it starts with neither True nor False")
    feedback = tagged(text, "feedback")
    if feedback is None:
        rest = text[word.end() :] if verdict is None else text.rpartition("</review_result>")[2]
        feedback = rest.strip(" \t\n.,:;*_-")
    return {"review_result": result, "feedback": feedback}


def _letter(operator: OperatorFacts, text: str, function: str) -> dict[str, str | bool]:
    """The one letter that the first line is, or names; the article "A" is none."""
    letter = tagged(text, "solution_letter")
    line = (text if letter is None else letter).split("\n")[0].strip()
    if len(bare := line.strip(" \t.:()*")) == 1:
        line = bare.upper()
    letters = {"".join(match) for match in _LETTER.findall(line)}
    if len(letters) != 1:
        raise malformed(operator, "the answer names no letter of a solution, or several")
    return {"solution_letter": letters.pop()}


def _code(operator: OperatorFacts, text: str, function: str) -> dict[str, str | bool]:
    """The code; Programmer tells its program of none."""
    code = code_in_answer(text, function)
    if operator.name == "Programmer":
        return {"code": code}
    if not code.strip():
        raise malformed(operator, f"the answer defines no function {function}".rstrip())
    return {"solution" if operator.name == "Test" else "response": code}


def tagged(text: str, name: str) -> str | None:
    """What stands in the last `<name>...</name>`, stripped; None where there is none. One that lies
    in no other tags goes before one that does."""
    if (value := fields(text).get(name)) is not None:
        return value
    before, _, _ = text.rpartition(f"</{name}>")
    _, opened, body = before.rpartition(f"<{name}>")
    return body.strip() if opened else None


def fields(text: str) -> dict[str, str]:
    """What stands in the outermost tags of a text, by name; of equal names the last."""
    values: dict[str, str] = {}
    at, unclosed = 0, set[str]()
    while opened := _OPENED.search(text, at):
        name, at = opened[1], opened.end()
        end = -1 if name in unclosed else text.find(f"</{name}>", at)
        if end < 0:
            unclosed.add(name)
        else:
            values[name] = text[at:end].strip()
            at = end + len(f"</{name}>")
    return values


READERS: Mapping[str, Callable[[OperatorFacts, str, str], dict[str, str | bool]]] = {
    "Custom": _text,
    "AnswerGenerate": _thought_and_answer,
    "Programmer": _code,
    "ScEnsemble": _letter,
    "Review": _verdict,
    "Revise": _solution,
    "Test": _code,
    "CustomCodeGenerate": _code,
    "MdEnsemble": _letter,
    "Format": _text,
}
NOT_STRIPPED = ("Custom", "Programmer", "Format")
"""Operators whose answers are read with the space around them, also where that is all."""


def code_in_answer(text: str, function: str = "") -> str:
    """The code that defines `function`, or all that an answer defines without one; "" where it
    defines nothing. What is no Python at all is handed on, for whoever runs it to fail."""
    blocks = _MARKED_PYTHON.findall(text) or _FENCED.findall(text)
    code = longest_python("\n\n".join(map(str.strip, blocks)) or text)
    try:
        return needed(parsed(code).body, function)
    except UNREADABLE:
        return code


def longest_python(text: str) -> str:
    """The first of the runs of two lines or more that are Python and have most lines with text;
    the first line where there is none."""
    lines = text.split("\n")
    best, most, left = lines[0], 0, MOST_PARSED
    for first, line in enumerate(lines):
        last = len(lines) if line[:1].strip() else first
        while last - first > 1 and left > 0:
            run = lines[first:last]
            written = sum(map(bool, map(str.strip, run)))
            if written <= most:
                break
            left -= sum(map(len, run))
            try:
                parsed("\n".join(run))
            except UNREADABLE as error:
                # No longer run from here passes the line that the parser stops at.
                wrong = error.lineno if isinstance(error, SyntaxError) else None
                last = min(last - 1, first + (wrong or len(run)) - 1)
            else:
                best, most = "\n".join(run), written
    return best


def parsed(code: str) -> ast.Module:
    """The syntax tree. Raises one of UNREADABLE."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def needed(body: Sequence[ast.stmt], function: str) -> str:
    """The imports of a module's statements, then those that set what `function` reads, directly or
    through others; all that set a name where `function` is "". Raises one of UNREADABLE."""
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    others = [node for node in body if node not in imports]
    sets = [names_set(node) for node in others]
    reads = [{n.id for n in ast.walk(node) if isinstance(n, ast.Name)} for node in others]
    wanted, before = {function} if function else set[str]().union(*sets), -1
    while before != len(wanted):
        before = len(wanted)
        for own, more in zip(sets, reads, strict=True):
            wanted |= own | more if own & wanted else set()
    kept = [node for node, own in zip(others, sets, strict=True) if own & wanted]
    return "\n".join(ast.unparse(node) for node in (*imports, *kept))


def names_set(node: ast.stmt) -> set[str]:
    """The names that a statement binds, or whose values it changes where it stands, as
    `seen.add(1)` does."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    names = set[str]()
    for each in ast.walk(node):
        match each:
            case ast.alias(name=name, asname=other):
                names.add(other or name.partition(".")[0])
            case (
                ast.Name(ctx=ast.Store())
                | ast.Subscript(ctx=ast.Store() | ast.Del())
                | ast.Attribute(ctx=ast.Store())
                | ast.Expr(value=ast.Call(func=ast.Attribute()))
            ):
                target = each.value.func if isinstance(each, ast.Expr) else each  # pyright: ignore[reportAttributeAccessIssue]
                while isinstance(target, ast.Attribute | ast.Subscript):
                    target = target.value
                names |= {target.id} if isinstance(target, ast.Name) else set()
    return names


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


@dataclass(frozen=True)
class ExecutorSetup:
    """What the programs of a problem have to work with."""

    model: HelperModel
    """The executor model."""
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
        began, answers = time.monotonic(), list[HelperAnswer]()
        result, error, why = None, "", ""
        try:
            if (operator := OPERATORS.get(name)) is None:
                raise OperatorError("unknown operator", f"there is no operator {name}")
            values = checked_arguments(operator, arguments)
            call = OpenCall(self.setup, number, operator, values, answers)
            result = PROCEDURES.get(name, answered)(call)
            error = call.problem
        except OperatorError as failed:
            error, why = failed.kind, failed.why
        finally:
            seconds = time.monotonic() - began
            noted = OperatorCall(name, dict(arguments), result, error, answers, seconds)
            with self._lock:
                self.calls.append(noted)
        told = {"error": error, "why": why} if result is None else {"result": result}
        return {**told, "usage": self.usage()}

    def usage(self) -> dict[str, float | None]:
        """The totals that AFlow's `get_usage_summary` tells; a cost that is not known is None."""
        with self._lock:
            answers = [each for call in self.calls for each in call.answers]
        read, written = (
            sum(getattr(each, name) or 0 for each in answers)
            for name in ("prompt_tokens", "completion_tokens")
        )
        return {
            "total_input_tokens": read,
            "total_output_tokens": written,
            "total_tokens": read + written,
            "call_count": len(answers),
            "total_cost": total(each.cost for each in answers),
        }


@dataclass
class OpenCall:
    """One operator call: asks the executor model for it."""

    setup: ExecutorSetup
    number: int
    """The program's calls are numbered from 0 in the order in which it makes them."""
    operator: OperatorFacts
    arguments: Mapping[str, Any]
    answers: list[HelperAnswer]
    """Of the model, so far."""
    problem: str = ""
    """The kind of a failure that the program is told as its result."""

    def ask(self, function: str = "", **told: Any) -> dict[str, str | bool]:
        """One answer, read; of code what `function` needs. `told` stands beside the arguments, or
        in the place of one. Raises OperatorError, also where the question is longer than the model
        reads, HelperFailed and OverBudget."""
        setup = self.setup
        model = setup.model.called_by(replace(setup.caller, operator=self.operator.name))
        # What a program asks may hold half of a surrogate pair.
        text = whole_text(question(self.operator, {**self.arguments, **told}))
        # By the call's number and not by its arrival: calls that are open at once arrive anyhow.
        draw = self.number * MOST_QUESTIONS + len(self.answers)
        key = SampleKey(0, f"{setup.draws}|{sha256_text(text)[:16]}", draw)
        (completion,) = model.answer([Question([Message("user", text)], model.sampling, key)])
        self.answers.append(completion)
        if completion.too_long:
            raise OperatorError("arguments", f"the question is too long: {completion.failure}")
        if completion.failure:
            raise HelperFailed(f"{model.name} gave no answer: {completion.failure}")
        return read_answer(self.operator, completion.text, function)

    def named(self, solutions: Sequence[str]) -> str:
        """The solution whose letter the model writes. Raises as `ask`."""
        letter = str(self.ask(solutions=solutions)["solution_letter"])
        if (place := LETTERS.index(letter)) < len(solutions):
            return solutions[place]
        raise malformed(self.operator, f"no solution {letter!r}, there are {len(solutions)}")


def solved_by(code: str) -> tuple[str, str]:
    """What the code's `solve()` returns as text, and why it failed; "" for a success."""
    for module in BANNED:
        if f"import {module}" in code or f"from {module}" in code:
            return "", f"Prohibited import: {module} and graphing functionalities"
    done = run_code(code, SOLVE, CODE_SECONDS)
    if done.failure in ("deadline", "cpu"):
        return "", "Code execution timed out"
    if done.failure is not None:
        return "", f"{done.failure}: {done.why}"
    if not is_reply(done.value):
        return "", "its process answered in another form"
    return whole_text(done.value["output"]), whole_text(done.value["error"])[:LONGEST_ERROR]


def answered(call: OpenCall) -> Mapping[str, Any]:
    """One question and its answer."""
    return call.ask(str(call.arguments.get("entry_point", "")))


def ensemble(call: OpenCall) -> Mapping[str, Any]:
    """The solution whose letter the model names."""
    return {"response": call.named(call.arguments["solutions"])}


def vote(call: OpenCall) -> Mapping[str, Any]:
    """The solution that most of MD_VOTES questions name, each with the solutions in another order;
    of equally frequent ones the one that was named first. A vote that cannot be read is dropped."""
    solutions: Sequence[str] = call.arguments["solutions"]
    votes: Counter[str] = Counter()
    for number in range(MD_VOTES):
        shuffled = random.Random(number).sample(solutions, len(solutions))
        try:
            votes[call.named(shuffled)] += 1
        except OperatorError as failed:
            if failed.kind != "malformed":
                raise
    if not votes:
        raise malformed(call.operator, f"none of {MD_VOTES} votes names a solution")
    return {"solution": votes.most_common(1)[0][0]}


def programmer(call: OpenCall) -> Mapping[str, Any]:
    """A program's code and what its `solve()` returns. Code that fails is shown to the next attempt
    with its error; the last one's error is the output."""
    code, why, feedback = "", "", ""
    for _ in range(ATTEMPTS):
        code = str(call.ask(SOLVE, feedback=feedback)["code"])
        if not code:
            why = "No code generated"
            break
        output, why = solved_by(code)
        if not why:
            return {"code": code, "output": output}
        feedback = f"{code}\n\n{why[:LONGEST_FEEDBACK]}"
    call.problem = "code"
    return {"code": code, "output": why}


def tested(call: OpenCall) -> Mapping[str, Any]:
    """Whether a solution passes the problem's public tests; where it fails, it is written again at
    most `test_loop` times."""
    extra, solution = call.setup.row.extra, call.arguments["solution"]
    tests = extra.get(PUBLIC_TESTS) or ()
    if not tests:
        raise OperatorError("arguments", "the problem has no public tests")
    for left in range(call.arguments["test_loop"], -1, -1):
        _, failure = passed(solution, tests, extra[ENTRY_POINT])
        if not failure:
            return {"result": True, "solution": solution}
        if left:
            told = call.ask(solution=solution, failure=failure[:LONGEST_FEEDBACK])
            solution = str(told["solution"])
    return {"result": False, "solution": solution}


PROCEDURES: Mapping[str, Callable[[OpenCall], Mapping[str, Any]]] = {
    "ScEnsemble": ensemble,
    "MdEnsemble": vote,
    "Programmer": programmer,
    "Test": tested,
}
"""By operator; all others are `answered`."""
