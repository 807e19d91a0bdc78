"""Rewards of tool calls: the published ones, made strict, and BFCL's checker as a reward.

All are pure and read the completion as text, by the strict parser and without thoughts
(`parsing.answer_of`). Parts are 0 or 1; `format` is worth `FORMAT_BONUS`
in the fine-grained rewards only.

  reward               full   rule
  ast                  1.0    the strict parser's calls pass BFCL's AST checker
  fine_grained         1.1    0.1 if both tags occur, 1.0 more if the calls equal the gold calls
  strict_binary        1.0    1 if both tags occur and the calls equal the gold calls
  strict_binary_think  1.0    strict_binary of the text after the last "</think>" + empty line;
                              0 without one. A `<think>` that the prompt prefilled is not asked for

Where the gold answer calls nothing, the right answer is text without any call: not blank, and no
`<tool_call>` tag, as rewarding a broken call would teach to break it. Its format part is the same.

BFCL's own AST checker is imported from its wheel into this process without its dependencies. It
compares decoded calls with possible answers; it evaluates and imports nothing that a model wrote,
and so may run here. Its table of hosted models, which imports their packages, is answered by a
stand-in, and nothing of it stays in `sys.modules` or `sys.path`.
"""

import functools
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.row import Row, ToolCall
from assay.data.wheels import WHEELS, wheel_directory
from assay.errors import InputError
from assay.labs.tools.parsing import (
    CLOSE,
    OPEN,
    THINK_END,
    TextCalls,
    answer_of,
    call_text,
    parse_strict,
)

WHEEL = "bfcl-eval"
CHECKER = f"{WHEEL}=={WHEELS[WHEEL].version} ast_checker"
MULTI_TURN_CHECKER = f"{WHEEL}=={WHEELS[WHEEL].version} multi_turn_checker"
"""They name the checkers in fingerprints."""
_LOADING = threading.Lock()
_MODELS = "bfcl_eval.constants.model_config"


class _AnyModel(dict[str, Any]):
    """Upstream's table of models: only this flag is read, and no function name is rewritten."""

    def __missing__(self, key: str) -> SimpleNamespace:
        return SimpleNamespace(underscore_to_dot=False)


@dataclass(frozen=True, slots=True)
class AstVerdict:
    """Upstream's verdict; `error_type` and `message` are its own words, "" when valid."""

    valid: bool
    error_type: str = ""
    message: str = ""


def ast_check(row: Row, calls: Sequence[ToolCall]) -> AstVerdict:
    """Compare `calls` with the possible answers `row.gold` as BFCL scores `extra["category"]`.

    An error inside upstream's code is raised as it is.
    """
    module = _checker()
    output = [{call.name: dict(call.arguments)} for call in calls]
    known = list(row.tools), output, row.gold, module.Language.PYTHON, row.extra["category"]
    verdict = module.ast_checker(*known, "assay")
    if verdict["valid"]:
        return AstVerdict(True)
    return AstVerdict(False, verdict["error_type"], "; ".join(map(str, verdict["error"])))


@functools.cache
def _checker() -> ModuleType:
    with _LOADING, _importable(wheel_directory(WHEEL)):
        return import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")


@contextmanager
def _importable(directory: Path) -> Iterator[None]:
    """`bfcl_eval` can be imported from `directory` inside, and was never seen outside."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_upstream(name)}
    sys.modules[_MODELS] = ModuleType(_MODELS)
    vars(sys.modules[_MODELS])["MODEL_CONFIG_MAPPING"] = _AnyModel()
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))
        for name in [name for name in sys.modules if _is_upstream(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def _is_upstream(name: str) -> bool:
    return name == "bfcl_eval" or name.startswith("bfcl_eval.")


def same_calls(first: Iterable[ToolCall], second: Iterable[ToolCall]) -> bool:
    """Whether both hold the same calls: equal names and equal JSON values of equal types."""
    return Counter(map(_canonical, first)) == Counter(map(_canonical, second))


def _canonical(call: ToolCall) -> str:
    return json.dumps([call.name, dict(call.arguments)], sort_keys=True)


FORMAT_BONUS = 0.1
THOUGHT_END = f"{THINK_END}\n\n"

Parser = Callable[[str], TextCalls]
Judge = Callable[[Row, str], tuple[bool, bool]]
"""Says of a text whether its format and whether its calls are right."""


def gold_text(row: Row) -> str:
    """The gold answer in Hermes form: `row.gold` where it is a string, else the target message.

    Raises InputError when there is neither.
    """
    if isinstance(row.gold, str):
        return row.gold
    target = row.messages[-1] if row.messages else None
    if target is None or target.role != "assistant":
        raise InputError(f"row {row.id} has no gold answer", file=row.origin or None)
    return call_text(target.tool_calls) if target.tool_calls else target.content


def gold_calls(row: Row) -> tuple[ToolCall, ...]:
    """The calls of the gold answer; none where it is plain text. Raises InputError."""
    parsed = parse_strict(gold_text(row))
    if parsed.error not in ("", "no_call"):
        problem = f"the gold answer of row {row.id} is no call: {parsed.error}"
        raise InputError(problem, file=row.origin or None, fix="write it in <tool_call> form")
    return parsed.calls


def judge_strict(row: Row, text: str) -> tuple[bool, bool]:
    """Format and calls by JSON value; handles gold answers without calls."""
    gold, text = gold_calls(row), answer_of(text)
    parsed = parse_strict(text)
    if not gold:
        plain = bool(text.strip()) and parsed.error == "no_call"
        return plain, plain
    return both_tags(text), not parsed.error and same_calls(parsed.calls, gold)


def fine_grained(row: Row, completion: Completion, judge: Judge = judge_strict) -> Reward:
    """0, 0.1 or 1.1 (source: hardtry, reward_fn.py)."""
    form, calls = judge(row, completion.text)
    return Reward(FORMAT_BONUS * form + calls, _parts(form, calls))


def strict_binary(row: Row, completion: Completion, judge: Judge = judge_strict) -> Reward:
    """0 or 1, whatever the text says around the calls (source: hardtry, reward_fn_grpo.py)."""
    form, calls = judge(row, completion.text)
    return Reward(float(form and calls), _parts(form, calls))


def strict_binary_think(row: Row, completion: Completion, judge: Judge = judge_strict) -> Reward:
    """0 or 1, judging only what follows the reasoning (source: hardtry, reward_fn_egpo.py)."""
    _, end, answer = completion.text.rpartition(THOUGHT_END)
    form, calls = judge(row, answer) if end else (False, False)
    return Reward(float(form and calls), {**_parts(form, calls), "think": float(bool(end))})


def ast(row: Row, completion: Completion, parse: Parser = parse_strict) -> Reward:
    """1 if the parsed calls pass BFCL's AST checker, else 0.

    Parts: `format`, the text parses as calls; `name`, they name the gold functions as often as the
    gold answer does; `arguments`, the checker finds nothing wrong. Raises InputError for a row that
    is not BFCL's.
    """
    if "category" not in row.extra or row.gold is None or "entry" in row.extra:
        raise InputError(
            f"row {row.id} has no possible answers of BFCL", fix="use a reward that needs none"
        )
    parsed, result = _checked(row, completion.text, parse)
    gold = Counter(name for call in row.gold for name in call)
    name = Counter(call.name for call in parsed.calls) == gold
    parts = {
        "format": float(bool(parsed.calls)),
        "name": float(name),
        "arguments": float(result.valid),
    }
    return Reward(float(result.valid), parts)


def ast_error(row: Row, completion: Completion, parse: Parser = parse_strict) -> str:
    """Why `ast` is 0: the parser's error, else BFCL's error type; "" when it is 1."""
    return _checked(row, completion.text, parse)[1].error_type


def _checked(row: Row, text: str, parse: Parser) -> tuple[TextCalls, AstVerdict]:
    parsed = parse(text)
    if parsed.error:
        return parsed, AstVerdict(False, parsed.error)
    return parsed, ast_check(row, parsed.calls)


def both_tags(text: str) -> bool:
    """Whether a call is opened and closed somewhere."""
    return OPEN in text and CLOSE in text


def _parts(form: bool, calls: bool) -> dict[str, float]:
    return {"format": float(form), "calls": float(calls)}


REWARDS = {
    "ast": ast,
    "fine_grained": fine_grained,
    "strict_binary": strict_binary,
    "strict_binary_think": strict_binary_think,
}
REWARD_MAXIMUM = {"fine_grained": 1.0 + FORMAT_BONUS}


RELEVANCE = ("irrelevance", "live_irrelevance", "live_relevance")
SILENT = ("", "no_call", "ast_decoder:decoder_failed")
"""Errors of answers that call nothing: to BFCL even one whose calls cannot be decoded."""
RELEVANCE_CHECKER = f"{WHEEL}=={WHEELS[WHEEL].version} relevance rule"

_ERRORS = {
    "irrelevance": "irrelevance_error:decoder_success",
    "live_irrelevance": "irrelevance_error:decoder_success",
    "live_relevance": "relevance_error:decoder_failed",
}


def relevance(row: Row, completion: Completion, parse: Parser = parse_strict) -> Reward:
    """0 or 1 by the rule of the row's category; the part `called` says whether anything was called.

    Raises InputError for a row of another category.
    """
    if row.extra.get("category") not in RELEVANCE:
        raise InputError(f"row {row.id} has no relevance category", fix="use another reward")
    parsed = parse(completion.text)
    called = bool(parsed.calls)
    wanted = row.extra["category"] == "live_relevance"
    right = called if wanted else not called and parsed.error in SILENT
    return Reward(float(right), {"called": float(called)})


def relevance_error(row: Row, completion: Completion, parse: Parser = parse_strict) -> str:
    """Upstream's error type, or the parser's of a broken call; "" where the answer is right."""
    if relevance(row, completion, parse).value:
        return ""
    error, category = parse(completion.text).error, row.extra["category"]
    return _ERRORS[category] if category == "live_relevance" or not error else error
