"""The codes of what the validator has against programs, and how a finding is made.

What each code means stands here alone; docs and pages show these sentences.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

MOST_CHARACTERS = 200
"""Of a finding's sentence: names in it are a model's."""

CODES: Mapping[str, str] = {
    "syntax": "it is not Python",
    "too_long": "the source is longer than the validator reads",
    "too_deep": "it nests deeper than the validator follows",
    "no_workflow": "there is no class `Workflow` at the top level",
    "no_init": "`Workflow` has no plain `__init__` that takes (self, name, llm_config, dataset)",
    "no_call": "`Workflow` has no method `__call__`",
    "not_async": "`__call__` is no `async def`, or it yields",
    "call_arguments": "`__call__` does not take (self, problem), for code (self, problem, "
    "entry_point)",
    "no_return": "a path through `__call__` returns nothing",
    "return_shape": "what is returned is neither an answer nor (answer, cost)",
    "result_returned": "a whole operator result is returned instead of the text under a key",
    "import_not_allowed": "an import from outside the allow-list",
    "unknown_attribute": "a module or an operator has nothing of that name for programs",
    "forbidden_name": "a name that reaches beyond the program: eval, exec, open, files, network",
    "dunder": "a name in double underscores other than `__init__` and `__call__`",
    "undefined_name": "a name that nothing in the program binds",
    "unset_attribute": "an attribute of `self` that nothing sets",
    "unknown_operator": "an operator that there is not",
    "operator_setup": "an operator is not made as `operator.NAME(self.llm)`",
    "not_instantiated": "an operator or method is called that was not made before",
    "not_awaited": "a call of an operator or an async function is not awaited",
    "needless_await": "something is awaited that is not async",
    "unknown_parameter": "a keyword that the operator does not have",
    "repeated_parameter": "an argument is given twice",
    "missing_parameter": "a required argument is not given",
    "too_many_arguments": "more arguments than the operator has",
    "wrong_type": "an argument is no text, no list or no number where the operator needs one",
    "unknown_key": "a key that the operator's result does not have",
    "llm_attribute": "something of the llm other than `get_usage_summary()`",
    "llm_called": "the llm is called itself, without an operator",
    "unknown_prompt": "a prompt module has no such prompt; a program of one file has none at all",
}
"""Every code, and what is wrong."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the validator has against a program."""

    code: str
    """A name of `CODES`, such as "unknown_operator"."""
    line: int
    """From 1; 0 where the program as a whole is meant."""
    problem: str
    hint: str
    """How to write it right."""


def found(code: str, where: ast.AST | int, problem: str, hint: str) -> Finding:
    """A finding at a node or a line; text that no record could hold is spelled out."""
    line = where if isinstance(where, int) else getattr(where, "lineno", 0)
    if code not in CODES:
        raise KeyError(code)
    return Finding(code, line, plain(problem), plain(hint))


def plain(text: str) -> str:
    """One bounded line of text that UTF-8 holds."""
    line = " ".join(text.split())
    return line[:MOST_CHARACTERS].encode("utf-8", "backslashreplace").decode("utf-8")
