"""The operators of workflow programs as data: signatures, return keys, and what each asks a model.

AFlow's (FoundationAgents/AFlow, `workspace/*/workflows/template/operator.py`), with its parameters
and keys. The same data builds the policy's prompt, the executor's questions, the validator, the
documentation and the run. What a call does beyond one question is `executor`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

REQUIRED = object()
"""The default of a parameter that has none."""

Kind = Literal["text", "texts", "count"]
WORDS: Mapping[Kind, str] = {"text": "str", "texts": "list[str]", "count": "int"}
"""Kinds of values as signatures write them."""
MOST_COUNT = 10
LONGEST_TEXT = 100_000
"""Characters of an argument."""


class OperatorFailed(Exception):
    """A call of an operator failed; the program is told and may catch it."""

    def __init__(self, kind: str, why: str):
        """`kind` is "arguments", "malformed", "code" or "unknown operator"."""
        super().__init__(f"{kind}: {why}")
        self.kind, self.why = kind, why


@dataclass(frozen=True, slots=True)
class Parameter:
    """A keyword parameter of an operator."""

    name: str
    kind: Kind = "text"
    default: Any = REQUIRED

    @property
    def required(self) -> bool:
        """Whether a call must give it."""
        return self.default is REQUIRED

    @property
    def written(self) -> str:
        """As signatures have it."""
        value = "" if self.required else f" = {self.default!r}"
        return f"{self.name}: {WORDS[self.kind]}{value}"


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator."""

    name: str
    """The class: `operator.NAME(self.llm)`."""
    attribute: str
    """What programs call it: `self.ATTRIBUTE(...)`."""
    about: str
    parameters: tuple[Parameter, ...]
    returns: Mapping[str, str]
    """Key -> type of the returned dictionary."""
    question: tuple[str, ...]
    """What the executor model is asked: texts, and the arguments named by `{NAME}` alone. A piece
    whose argument has its default is left out."""
    answer: Literal["text", "fields", "code", "letter"]
    """How the model's answer is read: all of it, tags of the keys, a block of code, a letter."""

    @property
    def signature(self) -> str:
        """As a program calls it, with what it returns."""
        given = ", ".join(each.written for each in self.parameters)
        keys = ", ".join(f'"{key}": {kind}' for key, kind in self.returns.items())
        return f"{self.attribute}({given}) -> {{{keys}}}"


TEXT = "str"
PROBLEM = Parameter("problem")
SOLUTION = Parameter("solution")
SOLUTIONS = Parameter("solutions", "texts")
ENTRY_POINT = Parameter("entry_point")

_ALL = (
    Operator(
        "Custom",
        "custom",
        "Ask anything: the instruction, then the input.",
        (Parameter("input"), Parameter("instruction")),
        {"response": TEXT},
        ("{instruction}", "{input}"),
        "text",
    ),
    Operator(
        "AnswerGenerate",
        "answer_generate",
        "Think step by step, then answer.",
        (Parameter("input"),),
        {"thought": TEXT, "answer": TEXT},
        (
            "{input}",
            "\n\nThink step by step. Write <thought>your steps</thought> and "
            "<answer>the answer</answer>.",
        ),
        "fields",
    ),
    Operator(
        "Programmer",
        "programmer",
        "Write Python that computes the answer, and run it.",
        (PROBLEM, Parameter("analysis", default="None")),
        {"code": TEXT, "output": TEXT},
        (
            "{problem}",
            "\n\nAnalysis: {analysis}",
            "\n\nWrite a Python function solve() that returns the answer.",
        ),
        "code",
    ),
    Operator(
        "ScEnsemble",
        "sc_ensemble",
        "Pick the answer that agrees most with the others.",
        (SOLUTIONS, PROBLEM),
        {"response": TEXT},
        (
            "{problem}",
            "\n\nAnswers:\n{solutions}",
            "\nWhich answer do most of them agree on? Write its letter alone.",
        ),
        "letter",
    ),
    Operator(
        "Review",
        "review",
        "Check a solution.",
        (PROBLEM, SOLUTION),
        {"review_result": "bool", "feedback": TEXT},
        (
            "{problem}",
            "\n\nSolution: {solution}",
            "\n\nIs the solution right? Write <review_result>True or False</review_result> and "
            "<feedback>why</feedback>.",
        ),
        "fields",
    ),
    Operator(
        "Revise",
        "revise",
        "Mend a solution by feedback.",
        (PROBLEM, SOLUTION, Parameter("feedback")),
        {"solution": TEXT},
        (
            "{problem}",
            "\n\nSolution: {solution}",
            "\n\nFeedback: {feedback}",
            "\n\nWrite the mended solution: <solution>...</solution>.",
        ),
        "fields",
    ),
    Operator(
        "Test",
        "test",
        "Run code on the problem's public tests, and mend it where it fails.",
        (PROBLEM, SOLUTION, ENTRY_POINT, Parameter("test_loop", "count", 3)),
        {"result": "bool", "solution": TEXT},
        (
            "{problem}",
            "\n\nThis code fails its tests:\n{solution}",
            "\n\nWrite the mended function {entry_point} in a block of Python.",
        ),
        "code",
    ),
    Operator(
        "CustomCodeGenerate",
        "custom_code_generate",
        "Write a Python function.",
        (PROBLEM, ENTRY_POINT, Parameter("instruction")),
        {"response": TEXT},
        (
            "{instruction}",
            "{problem}",
            "\n\nWrite the Python function {entry_point} in a block of Python.",
        ),
        "code",
    ),
    Operator(
        "MdEnsemble",
        "md_ensemble",
        "Vote five times on the best solution, in another order each time.",
        (SOLUTIONS, PROBLEM),
        {"solution": TEXT},
        (
            "{problem}",
            "\n\nSolutions:\n{solutions}",
            "\nWhich solution is best? Write its letter alone.",
        ),
        "letter",
    ),
    Operator(
        "Format",
        "format",
        "Take the bare answer out of a solution.",
        (PROBLEM, SOLUTION),
        {"solution": TEXT},
        (
            "{problem}",
            "\n\nSolution: {solution}",
            "\n\nWrite the final answer alone: <solution>...</solution>.",
        ),
        "fields",
    ),
)
OPERATORS: Mapping[str, Operator] = {operator.name: operator for operator in _ALL}
"""By the name of the class."""
ATTRIBUTES: Mapping[str, Operator] = {operator.attribute: operator for operator in _ALL}
"""By the name that programs usually give them."""


def described() -> list[dict[str, Any]]:
    """The operators as JSON values, for the process of a program."""
    return [
        {
            "name": operator.name,
            "attribute": operator.attribute,
            "parameters": [
                {
                    "name": each.name,
                    "kind": each.kind,
                    "required": each.required,
                    "default": None if each.required else each.default,
                }
                for each in operator.parameters
            ],
        }
        for operator in OPERATORS.values()
    ]


def checked_arguments(operator: Operator, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call with the defaults of those not given.

    Raises OperatorFailed("arguments") for unknown, missing and wrongly typed ones.
    """
    known = {each.name: each for each in operator.parameters}
    for name in arguments:
        if name not in known:
            raise OperatorFailed("arguments", f"{operator.signature} has no parameter {name!r}")
    found = {}
    for name, parameter in known.items():
        if name in arguments:
            found[name] = _value(operator, parameter, arguments[name])
        elif parameter.required:
            raise OperatorFailed("arguments", f"{operator.signature} needs {name!r}")
        else:
            found[name] = parameter.default
    return found


def _value(operator: Operator, parameter: Parameter, value: Any) -> Any:
    if not FITS[parameter.kind](value):
        wanted = f"{operator.attribute}: {parameter.name} must be {WORDS[parameter.kind]}"
        raise OperatorFailed("arguments", f"{wanted}, not {type(value).__name__} or so long")
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_COUNT


FITS = {"text": _is_text, "texts": _is_texts, "count": _is_count}
