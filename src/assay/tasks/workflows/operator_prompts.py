"""What an operator asks the executor model, from the operator's data and a call's arguments.

Arguments are put in as they are: no text of a model is ever taken for a template.
"""

import re
from collections.abc import Mapping
from typing import Any

from assay.tasks.workflows.operators import Operator

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_HOLE = re.compile(r"\{(\w+)\}")


def question(operator: Operator, arguments: Mapping[str, Any]) -> str:
    """The question of a call with checked arguments. A piece is left out where its argument is
    empty or has its default."""
    defaults = {each.name: each.default for each in operator.parameters}

    def said(piece: str) -> str:
        names = _HOLE.findall(piece)
        if any(arguments[name] in ("", defaults[name]) for name in names):
            return ""
        return _HOLE.sub(lambda hole: shown(arguments[hole[1]]), piece)

    return "".join(map(said, spaced(operator, arguments))).strip()


def spaced(operator: Operator, arguments: Mapping[str, Any]) -> list[str]:
    """The pieces of a question; an instruction that does not end a line is set off from the
    input."""
    pieces = list(operator.question)
    if pieces[0] == "{instruction}":
        given = str(arguments["instruction"])
        if given and not given[-1].isspace():
            pieces.insert(1, "\n\n")
    return pieces


def shown(value: Any) -> str:
    """A value inside a question; solutions get letters."""
    if isinstance(value, list):
        return "\n".join(f"{LETTERS[n % 26]}: {text}" for n, text in enumerate(value))
    return str(value)
