"""BFCL's AST checker as a reward in killable workers, where decoding or checking needs one.

Answers in the prompt formats of BFCL and in Java and JavaScript are decoded by upstream's own
code, which evaluates sums; arguments in Java and JavaScript are read by patterns that a short text
keeps busy for years. The worker's side is `upstream_answers`. `rewards` judges other answers.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.tasks.running import WorkerReward
from assay.tasks.tools.checker import LANGUAGES
from assay.tasks.tools.parsing import answer_of
from assay.tasks.tools.prompts import call_text
from assay.tasks.tools.rewards import GoldError, Parser
from assay.tasks.tools.simulation import wheel_folders

JUDGE = "assay.tasks.tools.upstream_answers:judge"
SOURCE = "source"
"""The parser of calls written in their language, as models write them that are prompted."""
RIGHT = "right"


def answer_text(text: str) -> str:
    """What a model answers after its last thought."""
    return answer_of(text).lstrip("\n")


def in_worker(parse: Parser | None = None) -> WorkerReward:
    """1 if upstream accepts the answer, else 0; the outcome is upstream's type of error.

    Calls are read by `parse`; without it upstream decodes the text after the last thought, in the
    row's `extra["form"]` or language. Raises GoldError for a row that is not BFCL's.
    """
    return WorkerReward(JUDGE, partial(_ask, parse), _read, folders=wheel_folders, gold=_gold)


def _ask(parse: Parser | None, row: Row, completion: Completion) -> Reward | Mapping[str, Any]:
    category = row.extra.get("category", "")
    if row.gold is None or "functions" not in row.extra:
        raise GoldError(f"row {row.id} has no possible answers of BFCL in another form")
    language = LANGUAGES.get(category, "python")
    request = {
        "entry": {"id": row.id, "function": row.extra["functions"]},
        "answer": row.gold,
        "category": category,
        "language": language,
    }
    if parse is None:
        form = {"form": language, "tagged": False, **row.extra.get("form", {})}
        return {**request, **form, "said": answer_text(completion.text)}
    parsed = parse(completion.text)
    if parsed.error:
        return _reward(0.0, parsed.error)
    return {**request, "said": [{call.name: dict(call.arguments)} for call in parsed.calls]}


def _read(row: Row, completion: Completion, value: Mapping[str, Any]) -> Reward:
    return _reward(float(value["valid"]), value["error_type"])


def _reward(value: float, error: str) -> Reward:
    # Upstream's checkers say "kind:error"; parsers, and upstream's where it decodes, say no more.
    decoded = not error or (":" in error and not error.startswith("ast_decoder"))
    return Reward(value, {"format": float(decoded), "arguments": value}, outcome=error or RIGHT)


def _gold(row: Row) -> Completion:
    target = row.messages[-1]
    return Completion(call_text(target.tool_calls) if target.tool_calls else target.content)
