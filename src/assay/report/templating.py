"""The template engine of all pages, and the escaping of text in Markdown.

Knows no page: its callers make the values of each template.
"""

import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from assay.report.words import visible


@cache
def environment() -> Environment:
    """The engine of all pages: HTML templates escape what they are given, and none writes control
    characters.
    """
    made = Environment(
        loader=PackageLoader("assay.report"),
        autoescape=lambda name: bool(name and name.endswith(".html.j2")),
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["cell"] = cell
    made.filters["fenced"] = fenced
    return made


def shown(value: object) -> object:
    """Text of a value in a template: without control characters and line breaks."""
    if isinstance(value, Markup):
        return Markup(visible(str(value)))
    return visible(value) if isinstance(value, str) else value


def cell(text: object) -> str:
    """Text as one line of Markdown that starts no markup, HTML or table column."""
    line = re.sub(r"\s+", " ", visible(str(text)))
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", line)


def fenced(text: str) -> str:
    """Text as a Markdown code block, behind a fence longer than any that it holds."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
