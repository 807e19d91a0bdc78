"""The template engine of all pages, how they are written, and the escaping of text in Markdown.

Knows no page: its callers make the values of each template.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from assay.data.files import atomic_write_text
from assay.pages.html import style
from assay.pages.words import visible


@cache
def environment() -> Environment:
    """The engine of all pages: HTML templates escape what they are given, and none writes control
    characters.
    """
    made = Environment(
        loader=PackageLoader("assay.pages"),
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
    refuse_containers(value)
    return visible(value) if isinstance(value, str) else value


def render(template: str, values: Mapping[str, Any]) -> str:
    """A template filled with `values`, which have the page's words as `w`; punctuation of its
    language is there by name (`colon`, `open`)."""
    marks = values["w"].sections["punctuation"]
    dress = {"style": style()}
    return environment().get_template(template).render({**marks, **dress, **values})


def write_pages(page: Path, template: str, values: Mapping[str, Any]) -> Path:
    """Write `page` (.html) and the same as .md beside it; returns `page`. Both are rendered before
    either is written. Raises OSError."""
    texts = {
        page.with_suffix(suffix): render(f"{template}{suffix}.j2", values)
        for suffix in (".md", ".html")
    }
    for file, text in texts.items():
        atomic_write_text(file, text)
    return page


def refuse_containers(value: object) -> None:
    """Raise TypeError for a list, tuple, set or mapping: a page would show Python's notation."""
    if isinstance(value, list | tuple | set | frozenset | Mapping):
        raise TypeError(f"a template prints a {type(value).__name__}: join its parts first")


def cell(text: object) -> str:
    """Text as one line of Markdown that starts no markup, HTML or table column."""
    refuse_containers(text)
    line = re.sub(r"\s+", " ", visible(str(text)))
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", line)


def fenced(text: str) -> str:
    """Text as a Markdown code block, behind a fence longer than any that it holds."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
