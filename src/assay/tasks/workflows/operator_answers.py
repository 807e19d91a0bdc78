"""Reads what the executor model answered to an operator's question; a malformed answer is an error.

AFlow puts an error into the dictionary that it returns, and leaves "False" a text that counts as
true. Here the one is raised and the other is a bool.
"""

import re
from typing import Any

from assay.tasks.workflows.operators import Operator, OperatorFailed

_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
_LETTER = re.compile(r"\(?\s*([A-Z])\b")
BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}


def read_answer(operator: Operator, text: str) -> dict[str, Any]:
    """The values by key; of a letter under "letter", of code under the operator's key for it.

    Raises OperatorFailed("malformed").
    """
    if operator.answer == "text":
        return {key: text.strip() for key in operator.returns}
    if operator.answer == "code":
        return {code_key(operator): code_in(text)}
    if operator.answer == "letter":
        return {"letter": letter_in(text)}
    return {key: field_in(text, key, kind) for key, kind in operator.returns.items()}


def code_key(operator: Operator) -> str:
    """The key that code is returned under."""
    return next(key for key in ("code", "solution", "response") if key in operator.returns)


def field_in(text: str, key: str, kind: str) -> Any:
    """What stands between the tags of a key; the first of several."""
    found = re.search(rf"<{key}>(.*?)</{key}>", text, re.DOTALL)
    if found is None:
        raise OperatorFailed("malformed", f"the answer has no <{key}>...</{key}>")
    value = found[1].strip()
    if kind != "bool":
        return value
    if value.lower() not in BOOLEANS:
        raise OperatorFailed("malformed", f"<{key}> is {value[:40]!r}, not True or False")
    return BOOLEANS[value.lower()]


def code_in(text: str) -> str:
    """The first block of code, else a text that begins like code."""
    found = _BLOCK.search(text)
    code = found[1] if found else text
    if found is None and not re.match(r"\s*(def|import|from|class|@)\b", text):
        raise OperatorFailed("malformed", "the answer has no block of code")
    if not code.strip():
        raise OperatorFailed("malformed", "the block of code is empty")
    return code.rstrip()


def letter_in(text: str) -> str:
    """The letter that an answer begins with."""
    found = _LETTER.match(text.strip())
    if found is None:
        raise OperatorFailed("malformed", f"the answer {text[:40]!r} begins with no letter")
    return found[1]
