"""Reads a page as a browser would: elements, attributes and the text that a reader sees."""

import io
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path

from rich.console import Console

from assay.pages.page import Block
from assay.pages.safe_console import SafeConsole
from assay.pages.terminal import blocks_shown
from assay.pages.words import words

VOID = {"meta", "br", "line", "rect", "circle", "path"}


class Page(HTMLParser):
    """A parsed page."""

    def __init__(self, file: Path):
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.rows: list[list[str]] = []
        self.blocks: list[str] = []
        """The text of every <pre>."""
        self.visible = ""
        """What is read while nothing is unfolded, without drawings."""
        self._open: list[str] = []
        self.source = file.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "pre":
            self.blocks.append("")

    def handle_endtag(self, tag):
        while tag not in VOID and self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if "svg" in self._open:
            return
        if "td" in self._open or "th" in self._open:
            self.rows[-1][-1] += data
        if "pre" in self._open:
            self.blocks[-1] += data
        folded = self._open.count("details") > ("summary" in self._open)
        if "main" in self._open and not folded:
            self.visible += f" {data}"

    def row(self, *starts: str) -> list[str]:
        """The cells of the first row whose first cells begin so, with single spaces."""
        plain = [[" ".join(cell.split()) for cell in row] for row in self.rows]
        return next(
            row
            for row in plain
            if len(row) >= len(starts)
            and all(cell.startswith(s) for cell, s in zip(row, starts, strict=False))
        )


def printed(blocks: Iterable[Block], lang: str = "en", width: int = 5000) -> str:
    """Blocks as a terminal of this width shows them, without colours."""
    console: Console = SafeConsole(file=io.StringIO(), width=width, color_system=None)
    for each in blocks_shown(blocks, words(lang)):
        console.print(each, markup=False, highlight=False, soft_wrap=isinstance(each, str))
    return console.file.getvalue()  # type: ignore[attr-defined]
