"""The worker's side of single answers that BFCL's own runner decodes or checks.

Imported in worker processes only, which have the wheel on their path; the lab's side is
`single_turn`. Upstream evaluates sums that a model wrote. Here those of literals are computed,
and one with a name or a call in it makes the answer undecodable.
"""

import ast
import importlib
import operator
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from assay.tasks.tools.checker import prepare_worker

prepare_worker()
_runner = importlib.import_module("bfcl_eval.eval_checker.eval_runner")
_utils = importlib.import_module("bfcl_eval.model_handler.utils")

_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def _sum(source: str) -> Any:
    """The value of a sum of literals. Raises ValueError for anything else."""
    return _value(ast.parse(source, mode="eval").body)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.Constant(value=value):
            return value
    raise ValueError("not a sum of literals")


# The name that upstream's decoder looks up before Python's own.
vars(_utils)["eval"] = _sum


def judge(
    entry: Mapping[str, Any],
    answer: Sequence[Any],
    category: str,
    language: str,
    said: Any,
    form: str = "",
    tagged: bool = False,
) -> dict[str, Any]:
    """Upstream's verdict on one answer: `valid`, and `error_type` and `message`, "" when valid.

    `said` is text in the return format `form`, or the decoded calls where that is "". `category` is
    that of the possible `answer`; `entry` has the "function" docs.
    """
    forms = importlib.import_module("bfcl_eval.constants.enums").ReturnFormat
    decode = _utils.default_decode_ast_prompting if form else lambda calls, *_: calls
    verdict = _runner._evaluate_single_ast_entry(
        SimpleNamespace(decode_ast=decode),
        entry["id"],
        said,
        answer,
        entry,
        "assay",
        category,
        language=_runner.Language(language),
        return_format=forms(form or "python"),
        has_tool_call_tag=tagged,
    )
    if verdict["valid"]:
        return {"valid": True, "error_type": "", "message": ""}
    message = "; ".join(map(str, verdict["error"]))
    return {"valid": False, "error_type": verdict["error_type"], "message": message}
