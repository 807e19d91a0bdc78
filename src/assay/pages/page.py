"""The model of every page: typed blocks that are built once and shown by three renderers.

`html`, `markdown` and `terminal` render it. A builder words and formats; a renderer only lays out,
and makes text that a model or a file wrote safe to show.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from markupsafe import Markup

from assay.errors import Finding
from assay.pages.words import Words

BADGES = frozenset(
    {"better", "worse", "undecided", "equivalent", "not comparable", "chosen", "plain"}
    | {"error", "warning", "note", "confound", "allowed", "declared", "tested", "same"}
)
"""Kinds of marks that name a state: verdicts, severities, states of settings."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A piece of text with a meaning."""

    text: str
    kind: str = "strong"
    """"strong", "soft", "score", "code", "" or one of BADGES."""
    link: str = ""
    """Address within the page's folder, or `#anchor`."""


Line: TypeAlias = str | Mark | Sequence[str | Mark]
"""Text in one line, a part of which may be marked."""


class Block:
    """A part of a page: all that follows but a page itself, and what blocks are made of."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Heading(Block):
    """A title inside a section."""

    line: Line
    level: int = 3


@dataclass(frozen=True, slots=True)
class Text(Block):
    """A paragraph."""

    line: Line
    kind: str = ""
    """"" or "soft", "lead", "big", or the severity of a box: "error", "warning", "note"."""
    fit: Literal["wrap", "cut", "whole"] = "wrap"
    """At the edge of a terminal: "whole" leaves it to the terminal, so that a path stays one."""


@dataclass(frozen=True, slots=True)
class Bullets(Block):
    """A list."""

    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Facts(Block):
    """Names with their values."""

    pairs: Sequence[tuple[str, Line]]
    chips: bool = False
    """Beside one another where the medium has room."""


@dataclass(frozen=True, slots=True)
class Field:
    """A value of a form that a reader may set."""

    name: str
    label: str
    value: str = ""
    kind: Literal["text", "number", "choice", "tick", "hidden"] = "text"
    choices: Sequence[tuple[str, str]] = ()
    """Values with their labels."""


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column."""

    title: str
    right: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with smaller lines below its own, and a drawing where the medium can show one."""

    line: Line
    below: Sequence[Line] = ()
    figure: Markup | None = None
    span: int = 1
    kind: str = ""
    """"head" of a row, "soft", or a class of the style sheet."""
    field: Field | None = None
    """A tick of the form that the table is in."""


Row: TypeAlias = Sequence[Cell | Line]


@dataclass(frozen=True, slots=True)
class Table(Block):
    """Rows under heads."""

    columns: Sequence[Column | str]
    rows: Sequence[Row]
    title: str = ""
    note: str = ""
    kind: str = "cards"
    """A class of the style sheet; "cards" stacks the cells of a row on a narrow screen."""


@dataclass(frozen=True, slots=True)
class Figure(Block):
    """A drawing with its caption; media without drawings show the ends of those of `Panels`."""

    drawing: Markup
    caption: str = ""
    last: str = ""
    """The last value, at the end of the caption."""
    first: str = ""
    """The first one, for media without drawings."""
    link: str = ""
    """Where the caption leads."""


@dataclass(frozen=True, slots=True)
class Panels(Block):
    """Small figures beside one another."""

    figures: Sequence[Figure]


@dataclass(frozen=True, slots=True)
class Findings(Block):
    """Findings with the place of each, worst first; worded by their codes."""

    findings: Sequence[Finding]
    places: Sequence[str] = ()
    new: Sequence[bool] = ()


@dataclass(frozen=True, slots=True)
class Folded(Block):
    """Blocks behind a title that opens them."""

    title: str
    blocks: Sequence[Block]
    open: bool = False
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to a question."""

    title: str
    result: str
    text: str
    facts: Sequence[tuple[str, str]] = ()
    note: str = ""
    link: str = ""
    """Where the title leads."""
    thought: str = ""
    """What was thought before the answer, folded where the medium can."""


@dataclass(frozen=True, slots=True)
class SideBySide(Block):
    """A question with answers side by side."""

    title: Line
    question: str
    answers: Sequence[Answer]
    gold: str = ""
    gold_title: str = ""


@dataclass(frozen=True, slots=True)
class Code(Block):
    """Text as it was written."""

    text: str
    language: str = "text"


@dataclass(frozen=True, slots=True)
class Form(Block):
    """Fields whose values make the address of another page, for media that have fields."""

    action: str
    fields: Sequence[Field]
    buttons: Sequence[tuple[str, str]]
    """Labels, each with the address that it leads to."""
    blocks: Sequence[Block] = ()
    """Above the buttons, with ticks in the cells of tables."""


@dataclass(frozen=True, slots=True)
class Section(Block):
    """A part of a page with an anchor."""

    anchor: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page in one language."""

    words: Words
    title: str
    blocks: Sequence[Block]
    footer: str = ""
    document: str = ""
    """The title of the window; that of the page if empty."""
    contents: bool = False
    """Whether a list of the sections leads to each."""
    longest: int | None = None
    """Lines of its Markdown: for these, what sections fold is left out, the longest first."""

    @property
    def sections(self) -> list[Section]:
        """The sections among the blocks."""
        return [block for block in self.blocks if isinstance(block, Section)]


def rendered(
    blocks: Iterable[Block], words: Words, render: Mapping[type, Callable[..., Any]]
) -> Iterator[Any]:
    """What a medium makes of blocks, one after the other; `render` has no drawings where the medium
    has none."""
    for block in blocks:
        if type(block) in render:
            yield from render[type(block)](block, words)


def parts(line: Line) -> list[Mark]:
    """The pieces of a line; empty ones are left out. Raises TypeError for what is no text: a page
    would show Python's notation."""
    pieces: Sequence[object] = line if isinstance(line, list | tuple) else [line]
    marks: list[Mark] = []
    for piece in pieces:
        mark = Mark(piece, "") if isinstance(piece, str) else piece
        if not isinstance(mark, Mark) or not isinstance(mark.text, str):
            raise TypeError(f"a page prints a {type(piece).__name__}: join its parts first")
        marks += [mark] if mark.text else []
    return marks


def joined(*lines: Line, by: str = "") -> tuple[str | Mark, ...]:
    """Lines behind one another as one line; empty ones are left out."""
    marks: list[str | Mark] = []
    for line in lines:
        pieces = parts(line)
        if pieces:
            marks += [by, *pieces] if marks and by else pieces
    return tuple(marks)


def cell_of(cell: Cell | Line) -> Cell:
    """A cell of what may be its text alone."""
    return cell if isinstance(cell, Cell) else Cell(cell)


def column_of(column: Column | str) -> Column:
    """A column of what may be its title alone."""
    return column if isinstance(column, Column) else Column(column)
