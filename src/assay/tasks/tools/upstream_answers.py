"""The worker's side of single answers that BFCL's own runner decodes or checks.

Imported in worker processes only, which have the wheel on their path; the lab's side is
`decoded_answers`. Upstream evaluates sums that a model wrote: here only those of literals are, and
what is called or named inside one makes the answer undecodable.
"""

import ast
import importlib
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from assay.tasks.tools.stand_ins import prepare_worker

prepare_worker()
_runner = importlib.import_module("bfcl_eval.eval_checker.eval_runner")
_utils = importlib.import_module("bfcl_eval.model_handler.utils")

_LITERAL = (ast.Expression, ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop)


def _of_literals(source: str) -> Any:
    """The value of a sum of literals. Raises ValueError for anything else."""
    tree = ast.parse(source, mode="eval")
    if not all(isinstance(node, _LITERAL) for node in ast.walk(tree)):
        raise ValueError("not a sum of literals")
    return eval(compile(tree, "answer", "eval"), {"__builtins__": {}})


# The name that upstream's decoder looks up before Python's own.
vars(_utils)["eval"] = _of_literals


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
