"""A console through which no text, whoever wrote it, can steer the terminal; lines on stderr.

Only prints: what is shown is made in `terminal`, `comparison_terminal` and `live_display`.
"""

import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

PLAIN_WIDTH = 100
"""Columns of tables where there is no terminal whose width could be asked."""


class SafeConsole(Console):
    """A console through which no text, whoever wrote it, can steer the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Rich's segments; those that are text have their control characters depicted."""
        from assay.pages.words import visible

        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(visible(text), style)


def console(stream: TextIO) -> Console:
    """A console that adds no colours or marks of its own to what is printed."""
    width = None if stream.isatty() else PLAIN_WIDTH
    return SafeConsole(file=stream, width=width, markup=False, highlight=False, emoji=False)


def tell(text: str) -> None:
    """One line on stderr, whatever the text holds; in a terminal broken between words."""
    from assay.pages.words import visible

    line = visible(text).replace("\n", " ")
    if (wide := columns()) is not None:  # a terminal breaks words; a log keeps a line for a line
        whole = {"break_long_words": False, "break_on_hyphens": False, "subsequent_indent": "  "}
        line = textwrap.fill(line, wide, **whole)
    print(line, file=sys.stderr, flush=True)


def columns() -> int | None:
    """Columns of the terminal that stderr is; None where it is none."""
    return shutil.get_terminal_size().columns if sys.stderr.isatty() else None
