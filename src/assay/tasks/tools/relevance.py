"""BFCL's relevance categories: whether any function is called at all, never which one.

  irrelevance, live_irrelevance   1 if the answer calls nothing; silence is right too
  live_relevance                  1 if it holds at least one call

Source: bfcl_eval/eval_checker/eval_runner.py, _evaluate_single_relevance_entry. There the model's
handler decodes; here the parser does. To BFCL's parser a broken call is none; to the others, and so
to the reward, it is wrong in every category, as paying for it would teach to break calls. Being
right by saying nothing is upstream's rule: such a score says something only beside one of a
category that wants calls.
"""

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.data.wheels import WHEELS
from assay.tasks.tools.checker import WHEEL
from assay.tasks.tools.parsing import parse_strict
from assay.tasks.tools.rewards import GoldError, Parser

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

    Raises GoldError for a row of another category.
    """
    if row.extra.get("category") not in RELEVANCE:
        raise GoldError(f"row {row.id} has no relevance category", fix="use another reward")
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
