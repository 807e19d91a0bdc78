"""The operators that a workflow program may call: names, signatures, results and prompts, as data.

Signatures and result keys are AFlow's (github.com/FoundationAgents/AFlow, `scripts/operators.py`);
the parameter `mode`, which changes nothing there, is left out, and the prompts are shorter, but for
Custom's, which has no words of its own. The executor's prompt, the validator, the policy's prompt,
the docs and the program's world are all made from this table. What a call does beside asking the
model is not here. Arguments go into prompts as they are, so that braces inside a model's text stay
text; a paragraph whose arguments are all empty or the operator's defaults is left out.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any, Literal

from assay.errors import nearest

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""By which an ensemble names its solutions."""
MOST_SOLUTIONS = len(LETTERS)
MOST_COUNT = 10
"""Of a parameter that says how often: a program cannot ask for thousands of answers in one call."""

AFLOW = ("workspace", "scripts", "prompt", "prompt_custom")
"""Roots of the modules of AFlow's repository, which the sandbox has stand-ins for."""
USAGE: Mapping[str, float] = {
    "total_input_tokens": 0,
    "total_output_tokens": 0,
    "total_tokens": 0,
    "total_cost": 0.0,
    "call_count": 0,
}
"""What AFlow's `get_usage_summary` tells of a program that has called nothing."""

Kind = Literal["text", "texts", "count"]


class OperatorError(Exception):
    """An operator gave no result; a program may catch it."""

    def __init__(self, kind: str, why: str):
        """`kind` as `execution.OperatorCall.error` has it: "arguments", "malformed", "code"."""
        super().__init__(why)
        self.kind, self.why = kind, why


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of an operator, given by keyword or by place."""

    name: str
    kind: Kind = "text"
    default: Any = None
    """None where a call has to give it."""

    @property
    def required(self) -> bool:
        """Whether a call has to give it."""
        return self.default is None


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """What there is to know of an operator."""

    name: str
    attribute: str
    """The attribute that the lab's own programs and the policy's prompt keep it in."""
    parameters: tuple[Parameter, ...]
    returns: Mapping[str, str]
    """The keys of its result and their types, as Python writes them."""
    prompt: str
    """What the executor is asked, with {NAME} for an argument; `question` fills it in."""
    unnamed: Mapping[str, str] = field(default_factory=dict)
    """Keys that AFlow's code gives and its documents do not name; a program may read them."""

    @property
    def keys(self) -> Mapping[str, str]:
        """All keys of its result and their types."""
        return {**self.returns, **self.unnamed}


OPERATORS: Mapping[str, OperatorFacts] = {
    name: OperatorFacts(
        **{"name": name, **table, "parameters": tuple(Parameter(**p) for p in table["parameters"])}
    )
    for name, table in tomllib.loads(
        files("assay.labs.workflows.programs")
        .joinpath("operators.toml")
        .read_text(encoding="utf-8")
    ).items()
}
"""All operators by AFlow's names."""
MD_VOTES = 5
"""AFlow's `vote_count`: how often MdEnsemble asks, each time with the solutions reordered."""


def described(operators: Mapping[str, OperatorFacts] = OPERATORS) -> list[dict[str, Any]]:
    """The operators' signatures as JSON, for the world inside the sandbox."""
    return [
        {"name": each.name, "parameters": [*map(asdict, each.parameters)]}
        for each in operators.values()
    ]


def checked_arguments(operator: OperatorFacts, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in the operator's order, defaults filled in.

    Raises OperatorError("arguments") for an unknown or missing name and for a wrong value.
    """
    known = {each.name for each in operator.parameters}
    for name in arguments:
        if name not in known:
            raise _wrong(operator, f"has no parameter {name!r} ({nearest(name, sorted(known))})")
    return {each.name: _value(operator, each, arguments) for each in operator.parameters}


def _value(operator: OperatorFacts, parameter: Parameter, arguments: Mapping[str, Any]) -> Any:
    """One argument or its default. Raises OperatorError."""
    if parameter.name not in arguments:
        if parameter.required:
            raise _wrong(operator, f"needs {parameter.name!r}")
        return parameter.default
    value = arguments[parameter.name]
    if (problem := PROBLEMS[parameter.kind](value)) is not None:
        raise _wrong(operator, f"{parameter.name!r} must be {problem}")
    return list(value) if parameter.kind == "texts" else value


def _no_text(value: Any) -> str | None:
    return None if isinstance(value, str) else f"text, not {type(value).__name__}"


def _no_texts(value: Any) -> str | None:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        return "a list of texts"
    if not 1 <= len(value) <= MOST_SOLUTIONS:
        return f"a list of 1 to {MOST_SOLUTIONS} texts, not of {len(value)}"
    return None


def _no_count(value: Any) -> str | None:
    whole = type(value) is int and 1 <= value <= MOST_COUNT
    return None if whole else f"a whole number from 1 to {MOST_COUNT}"


PROBLEMS = {"text": _no_text, "texts": _no_texts, "count": _no_count}
"""What a value of a kind should be instead; None where it is right."""


def _wrong(operator: OperatorFacts, why: str) -> OperatorError:
    return OperatorError("arguments", f"{operator.name} {why}")


FIELD = re.compile(r"\{([a-z_]+)\}")


def question(operator: OperatorFacts, arguments: Mapping[str, Any]) -> str:
    """The one user message that the executor is asked.

    `arguments` are those of `checked_arguments`, and besides, where there are any: `feedback`, what
    was wrong with the code that Programmer wrote before, and `failure`, what Test's tests said.
    """
    unsaid = {each.name: each.default for each in operator.parameters if not each.required}
    texts = {
        name: "" if value == unsaid.get(name, "") else as_text(value)
        for name, value in arguments.items()
    }
    filled = (paragraph(each, texts) for each in operator.prompt.split("\n\n"))
    return "\n\n".join(text for text in filled if text)


def paragraph(template: str, texts: Mapping[str, str]) -> str:
    """One paragraph of a template with its arguments; "" where all of them are empty."""
    names = FIELD.findall(template)
    if names and not any(texts.get(name) for name in names):
        return ""
    return FIELD.sub(lambda match: texts.get(match[1], ""), template)


def as_text(value: Any) -> str:
    """An argument as the executor reads it: solutions below each other, each under its letter."""
    if isinstance(value, list | tuple):
        lettered = zip(LETTERS, value, strict=False)
        return "\n\n".join(f"Solution {letter}:\n{each}" for letter, each in lettered)
    return str(value)
