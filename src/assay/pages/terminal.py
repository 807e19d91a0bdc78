"""Renders blocks for a terminal, as rich renderables that know its width.

Square brackets and control characters of a model's text are shown as text.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from rich.box import SQUARE
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from assay.errors import Finding
from assay.pages import page as model
from assay.pages.page import Block, Line, cell_of, column_of, parts, rendered
from assay.pages.words import Words, flat, worded

STYLES = {
    "better": "green",
    "worse": "red",
    **dict.fromkeys(("undecided", "allowed", "warning"), "yellow"),
    **dict.fromkeys(("equivalent", "declared", "tested"), "cyan"),
    **dict.fromkeys(("not comparable", "confound", "error"), "bold red"),
    **dict.fromkeys(("note", "strong", "score", "big"), "bold"),
    **dict.fromkeys(("chosen", "plain", "soft"), "dim"),
}
"""Kind of a mark or text -> how a terminal shows it."""
BLANK_LINES = re.compile(r"\n\s*\n")
"""Several in a row: a weak model writes hundreds."""


def blocks_shown(blocks: Iterable[Block], words: Words) -> list[RenderableType]:
    """Blocks one after the other."""
    return list(rendered(blocks, words, _RENDER))


def line_text(line: Line, style: str = "") -> Text:
    """A line with its marks in colours."""
    return Text.assemble(*((m.text, STYLES.get(m.kind, "") or style) for m in parts(line)))


def _heading(block: model.Heading, words: Words) -> Iterator[RenderableType]:
    yield line_text(block.line, "bold")


def _paragraph(block: model.Text, words: Words) -> Iterator[RenderableType]:
    text = line_text(block.line, STYLES.get(block.kind, ""))
    if block.fit == "cut":
        text.no_wrap, text.overflow = True, "ellipsis"
        yield Group(text)
    else:
        yield text if block.fit == "wrap" else text.plain


def _bullets(block: model.Bullets, words: Words) -> Iterator[RenderableType]:
    for line in block.lines:
        yield Text.assemble("- ", line_text(line))


def _facts(block: model.Facts, words: Words) -> Iterator[RenderableType]:
    for name, value in block.pairs:
        yield Text.assemble((name, "dim"), words.colon, line_text(value))


def _table(block: model.Table, words: Words) -> Iterator[RenderableType]:
    """Names are folded rather than cut: two that are cut may read alike."""
    title = Text(block.title) if block.title else None
    stacked = block.kind == "heat"
    box = SQUARE if stacked else None
    table = Table(title=title, title_justify="left", title_style="bold", box=box)
    table.show_lines = stacked
    for place, column in enumerate(map(column_of, block.columns)):
        justify = "right" if column.right else "left"
        fold = "ellipsis" if place else "fold"
        table.add_column(Text(column.title), justify=justify, overflow=fold, header_style="bold")
    for row in block.rows:
        table.add_row(*(_cell(cell_of(cell), "\n" if stacked else "", words) for cell in row))
    yield table
    if block.note:
        yield Text(block.note, "dim")


def _cell(cell: model.Cell, between: str, words: Words) -> Text:
    text = line_text(cell.line, STYLES.get(cell.kind, ""))
    for index, line in enumerate(each for each in cell.below if parts(each)):
        text.append(between or (words.semicolon if index else " "))
        text.append_text(line_text(line, "dim"))
    return text


def _findings(block: model.Findings, words: Words) -> Iterator[RenderableType]:
    for index, finding in enumerate(worded(each, words) for each in block.findings):
        place = f"{block.places[index]}{words.colon}" if block.places else ""
        new = words.within(words("progress.new")) if block.new and block.new[index] else ""
        yield finding_text(finding, words, new + words.colon + place)


def finding_text(finding: Finding, words: Words, between: str = "") -> Text:
    """The finding, its evidence and the fix, each on its own line; `between` its severity and it
    stands a colon, where nothing else does."""
    severity = (words(f"severity.{finding.severity}"), STYLES[finding.severity])
    text = Text.assemble(severity, between or words.colon, flat(finding.what))
    if finding.evidence:
        text.append(f"\n    {flat(finding.evidence)}", style="dim")
    if finding.fix:
        text.append(f"\n    {words('terminal.to_do')}{words.colon}{flat(finding.fix)}")
    return text


def _titled(block: model.Folded | model.Section, words: Words) -> Iterator[RenderableType]:
    yield Text(block.title, "bold")
    yield from blocks_shown(block.blocks, words)


def _question(block: model.SideBySide, words: Words) -> Iterator[RenderableType]:
    if parts(block.title):
        yield Text.assemble("\n", line_text(block.title, "bold"))
    if block.question:
        yield Padding(Text(block.question, "italic"), (0, 0, 0, 2))
    for answer in block.answers:
        title = f"{answer.title}{words.colon}{answer.result}"
        yield Padding(Text(title, "dim"), (0, 0, 0, 2))
        yield Padding(Text(BLANK_LINES.sub("\n\n", answer.text)), (0, 0, 0, 4))


def _code(block: model.Code, words: Words) -> Iterator[RenderableType]:
    yield Padding(Text(block.text), (0, 0, 0, 4))


_RENDER: dict[type, Callable[..., Iterator[RenderableType]]] = {
    model.Heading: _heading,
    model.Text: _paragraph,
    model.Bullets: _bullets,
    model.Facts: _facts,
    model.Table: _table,
    model.Findings: _findings,
    model.Folded: _titled,
    model.SideBySide: _question,
    model.Code: _code,
    model.Section: _titled,
}
