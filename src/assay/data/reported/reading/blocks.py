"""Cuts a Markdown text into sections with their quotes, list items, paragraphs and tables.

Emphasis, code marks and links are removed. Results are not recognised here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(.*)$")
RULE = re.compile(r"^\s*([-*_])(?:\s*\1){2,}\s*$")
FENCE = re.compile(r"^\s*(```|~~~)")
SEPARATOR = re.compile(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text without Markdown's marks, and its number in the file."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    number: int
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; one without a header has `header` ()."""

    header: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)


@dataclass(slots=True)
class Section:
    """A heading with what stands under it, up to the next heading."""

    path: tuple[str, ...]
    """The headings from the outermost to its own; () before the first heading."""
    line: int
    quotes: list[Line] = field(default_factory=list)
    items: list[Line] = field(default_factory=list)
    paragraphs: list[Line] = field(default_factory=list)
    code: list[Line] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Its own heading."""
        return self.path[-1] if self.path else ""

    @property
    def lines(self) -> list[Line]:
        """Everything but code and tables, in the order of the file."""
        return sorted([*self.quotes, *self.items, *self.paragraphs], key=lambda line: line.number)

    @property
    def texts(self) -> list[Line]:
        """Its heading and lines."""
        return [Line(self.line, self.title), *self.lines]

    def scope(self, number: int) -> str:
        """The line with a colon that stands above a line of the section, else its heading."""
        above = [line for line in self.paragraphs if line.number < number]
        ends = bool(above) and above[-1].text.endswith((":", "："))
        return above[-1].text if ends else self.title

    @property
    def empty(self) -> bool:
        """Whether nothing stands under the heading."""
        return not (self.lines or self.code or self.tables)


def plain(text: str) -> str:
    """The text without emphasis, code marks, links and HTML tags."""
    text = LINK.sub(r"\1", text)
    text = re.sub(r"<[^<>]*>", "", text)
    return re.sub(r"\*\*|__(?=\S)|(?<=\S)__|`|~~", "", text).strip()


def sections(text: str) -> list[Section]:
    """The sections of a Markdown text in order; the first may have no heading."""
    found = [Section((), 1)]
    levels: list[int] = []
    fenced, in_table = False, False
    lines = text.splitlines()
    for number, (raw, after) in enumerate(zip(lines, [*lines[1:], ""], strict=False), 1):
        here = found[-1]
        if FENCE.match(raw):
            if fenced:
                here.tables.extend(aligned(here.code))
            fenced, in_table = not fenced, False
        elif fenced:
            here.code.append(Line(number, raw.strip()))
        elif heading := HEADING.match(raw):
            depth = len(heading[1])
            path = [p for p, level in zip(here.path, levels, strict=True) if level < depth]
            levels = [level for level in levels if level < depth] + [depth]
            found.append(Section((*path, plain(heading[2])), number))
            in_table = False
        else:
            begins = "|" in raw and "|" in after and bool(SEPARATOR.match(after))
            in_table = _add(here, number, raw, in_table, begins)
    return found


def aligned(lines: list[Line]) -> Iterator[Table]:
    """The table that lines of a terminal make: names, then as many numbers in each line."""
    rows = [(line.number, tuple(re.split(r"\s{2,}|\t", line.text))) for line in lines if line.text]
    header = rows[0][1] if rows else ()
    body = [Row(number, cells) for number, cells in rows[1:]]
    alike = len(body) > 1 and all(len(row.cells) == len(header) for row in body)
    if alike and len(header) > 1 and not any(cell[:1].isdigit() for cell in header):
        yield Table(header, body)


def _add(section: Section, number: int, raw: str, in_table: bool, begins: bool) -> bool:
    """Add a line to its section; whether a table goes on after it.

    Outer bars may be left out of a row; its table `begins` above a separator.
    """
    text = raw.strip()
    if text.startswith("|") or begins or (in_table and "|" in text):
        _add_row(section, number, text, in_table)
        return True
    if not text or RULE.match(text):
        return False
    if text.startswith(">"):
        section.quotes.append(Line(number, plain(text.lstrip("> "))))
    elif item := ITEM.match(raw):
        if plain(item[1]):
            section.items.append(Line(number, plain(item[1])))
    else:
        section.paragraphs.append(Line(number, plain(text)))
    return False


def _add_row(section: Section, number: int, text: str, in_table: bool) -> None:
    """Add a row; a separator makes the row before it a header."""
    if not in_table:
        section.tables.append(Table(()))
    table = section.tables[-1]
    if SEPARATOR.match(text) and not table.header and len(table.rows) == 1:
        section.tables[-1] = Table(table.rows[0].cells)
        return
    cells = re.split(r"(?<!\\)\|", text.removeprefix("|").removesuffix("|"))
    table.rows.append(Row(number, tuple(plain(cell) for cell in cells)))


def leaves(found: list[Section]) -> Iterator[Section]:
    """Sections with no heading under theirs."""
    for section, after in zip(found, [*found[1:], None], strict=True):
        if after is None or after.path[: len(section.path)] != section.path:
            yield section
