"""What the executor model is asked for one operator call: the operator's template, filled in.

Templates are data of `operators`; arguments go in as they are, in one pass, so that braces and
placeholders inside a model's text stay text. A paragraph of a template whose arguments are all
empty or the operator's defaults, as the "None" of an analysis, is left out.
"""

import re
from collections.abc import Mapping
from typing import Any

from assay.tasks.workflows.programs.operators import LETTERS, Operator

FIELD = re.compile(r"\{([a-z_]+)\}")


def question(operator: Operator, arguments: Mapping[str, Any]) -> str:
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
    return FIELD.sub(lambda found: texts.get(found[1], ""), template)


def as_text(value: Any) -> str:
    """An argument as the executor reads it: solutions below each other, each under its letter."""
    if isinstance(value, list | tuple):
        lettered = zip(LETTERS, value, strict=False)
        return "\n\n".join(f"Solution {letter}:\n{each}" for letter, each in lettered)
    return str(value)
