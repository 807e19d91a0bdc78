"""Renders a page as Markdown. Text that a model or a file wrote starts no markup, HTML or column;
drawings are left out.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from urllib.parse import quote

from assay.pages import page as model
from assay.pages.page import BADGES, Block, Line, Page, cell_of, column_of, parts, rendered
from assay.pages.words import Words, visible, worded


def page_markdown(page: Page) -> str:
    """The whole file; where it would pass `page.longest` lines, the folds of sections are left out,
    the longest first, and named at the end."""
    w, left = page.words, list[model.Folded]()
    folds = [x for s in page.sections for x in s.blocks if isinstance(x, model.Folded)]
    folds.sort(key=lambda fold: blocks_markdown([fold], w).count("\n"))
    text = _whole(page, left)
    while page.longest is not None and text.count("\n") > page.longest and folds:
        left.append(folds.pop())
        text = _whole(page, left)
    return text


def _whole(page: Page, left: Sequence[model.Folded]) -> str:
    w, kept = page.words, list[Block]()
    for each in page.blocks:
        if isinstance(each, model.Section):
            each = replace(each, blocks=[block for block in each.blocks if block not in left])
        kept.append(each)
    told = w("page.only_html", titles=w.listing.join(each.title for each in left))
    ends = [escaped(text) for text in (told if left else "", page.footer) if text]
    body = filter(None, [blocks_markdown(kept, w)])
    return "\n\n".join([f"# {escaped(page.title)}", *body, *ends]) + "\n"


def blocks_markdown(blocks: Iterable[Block], words: Words) -> str:
    """Blocks one after the other."""
    return "\n\n".join(rendered(blocks, words, _RENDER))


def escaped(text: str) -> str:
    """Text as one line that starts no markup, HTML or table column."""
    line = re.sub(r"\s+", " ", visible(text))
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", line)


def fenced(text: str, language: str = "text") -> str:
    """Text as a code block, behind a fence longer than any that it holds."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{visible(text)}\n{fence}"


def line_markdown(line: Line) -> str:
    """A line; what is strong and what names a state in bold."""
    return "".join(_mark(mark, bold=True) for mark in parts(line))


def _mark(mark: model.Mark, bold: bool) -> str:
    if mark.kind == "code":
        return f"`{visible(mark.text).replace('`', chr(39))}`"
    text = escaped(mark.text)
    if mark.link and not mark.link.startswith("#"):
        text = f"[{text}]({quote(mark.link)})"
    strong = mark.kind == "strong" or mark.kind in BADGES
    return f"**{text}**" if bold and strong else text


def _heading(block: model.Heading, words: Words) -> Iterator[str]:
    yield f"{'#' * block.level} {line_markdown(block.line)}"


def _paragraph(block: model.Text, words: Words) -> Iterator[str]:
    text = line_markdown(block.line)
    yield f"> {text}" if block.kind in ("error", "warning", "note") else text


def _bullets(block: model.Bullets, words: Words) -> Iterator[str]:
    if block.lines:
        yield "\n".join(f"- {line_markdown(line)}" for line in block.lines)


def _facts(block: model.Facts, words: Words) -> Iterator[str]:
    yield "\n".join(
        f"- {escaped(name)}{words.colon}{line_markdown(value)}" for name, value in block.pairs
    )


def _table(block: model.Table, words: Words) -> Iterator[str]:
    columns = [column_of(column) for column in block.columns]
    heads = [escaped(column.title) for column in columns]
    rules = ["---:" if column.right else "---" for column in columns]
    rows = [_row(row, words) for row in block.rows]
    yield from [f"**{escaped(block.title)}**"] if block.title else []
    yield "\n".join([f"| {' | '.join(heads)} |", f"|{'|'.join(rules)}|", *rows])
    yield from [escaped(block.note)] if block.note else []


def _row(row: model.Row, words: Words) -> str:
    texts: list[str] = []
    for cell in map(cell_of, row):
        texts += [_cell(cell, words), *[""] * (cell.span - 1)]
    return f"| {' | '.join(texts)} |"


def _cell(cell: model.Cell, words: Words) -> str:
    """The cell in one line; a state in a table is not bold."""
    lines = [cell.line, *cell.below]
    texts = ["".join(_mark(m, bold=m.kind == "strong") for m in parts(line)) for line in lines]
    return words.comma.join(filter(None, texts))


def _findings(block: model.Findings, words: Words) -> Iterator[str]:
    lines = []
    for index, finding in enumerate(worded(each, words) for each in block.findings):
        place = escaped(f"{block.places[index]}{words.colon}") if block.places else ""
        new = words.within(words("progress.new")) if block.new and block.new[index] else ""
        severity = f"**{words(f'severity.{finding.severity}')}**{new}"
        parts = [escaped(part) for part in (finding.what, finding.evidence, finding.fix) if part]
        lead = f" {place}" if place else words.colon
        lines.append(f"- {severity}{lead}{words('punctuation.stop').join(parts)}")
    yield "\n".join(lines)


def _folded(block: model.Folded, words: Words) -> Iterator[str]:
    yield f"### {escaped(block.title)}"
    yield blocks_markdown(block.blocks, words)


def _question(block: model.SideBySide, words: Words) -> Iterator[str]:
    if parts(block.title):
        yield f"### {line_markdown(block.title)}"
    if block.question:
        yield fenced(block.question)
    for answer in block.answers:
        note = words.within(escaped(answer.note)) if answer.note else ""
        yield f"{escaped(answer.title)}{words.colon}{escaped(answer.result)}{note}"
        yield fenced(answer.text)
        for name, value in answer.facts:
            yield escaped(name) + words.colon
            yield fenced(value)
    if block.gold:
        yield escaped(block.gold_title)
        yield fenced(block.gold)


def _code(block: model.Code, words: Words) -> Iterator[str]:
    yield fenced(block.text, block.language)


def _panels(block: model.Panels, words: Words) -> Iterator[str]:
    ends = ((f.caption, f"{f.first} → {f.last}") for f in block.figures if f.first)
    lines = [f"- {escaped(caption)}{words.colon}{escaped(change)}" for caption, change in ends]
    yield from ["\n".join(lines)] if lines else []


def _section(block: model.Section, words: Words) -> Iterator[str]:
    yield f"## {escaped(block.title)}"
    yield blocks_markdown(block.blocks, words)


_RENDER: dict[type, Callable[..., Iterator[str]]] = {
    model.Heading: _heading,
    model.Text: _paragraph,
    model.Bullets: _bullets,
    model.Facts: _facts,
    model.Table: _table,
    model.Findings: _findings,
    model.Folded: _folded,
    model.SideBySide: _question,
    model.Code: _code,
    model.Panels: _panels,
    model.Section: _section,
}
