"""Fenced blocks of code in text that a model wrote, as CommonMark reads them: with any info string,
either kind of fence and line end, indented or not; one that is never closed goes to the end."""

import re
from dataclasses import dataclass

from markdown_it import MarkdownIt

_MARKDOWN = MarkdownIt("zero").enable("fence")
_INLINE = re.compile(r"(?<=[^\s`])[ \t]*(```[ \t]*[A-Za-z]\w*[ \t]*\r?\n)")
"""A fence at the end of a line of text, which CommonMark does not know: "Here it is: ```python"."""
PYTHON = ("", "python", "py", "python3", "python2", "py3", "ipython")
"""Languages, in small letters, whose blocks may hold Python; "" is none."""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    language: str
    """The first word of the info string in small letters, without a brace or a dot."""
    code: str
    """Its lines, each with a line feed."""


def fenced_blocks(text: str) -> list[Block]:
    """The blocks of a text in their order."""
    tokens = _MARKDOWN.parse(_INLINE.sub(r"\n\1", text))
    return [
        Block(re.split(r"[\s,:{}]+", token.info.strip(" {}.") + " ")[0].lower(), token.content)
        for token in tokens
        if token.type == "fence"
    ]
