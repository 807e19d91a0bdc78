"""Renders a page as one HTML file, and blocks as a piece of HTML for a notebook.

All text is escaped and shows its control characters. The file loads nothing, and its content
security policy forbids it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import takewhile
from pathlib import Path

from markupsafe import Markup, escape

from assay.data.files import atomic_write_text
from assay.pages import page as model
from assay.pages.markdown import page_markdown
from assay.pages.page import BADGES, Block, Line, Page, cell_of, column_of, parts
from assay.pages.words import Words, visible, worded

HEAD = Markup("""<!doctype html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<header><h1>{heading}</h1></header>
""")  # noqa: E501
END = Markup("</main>\n</body>\n</html>\n")


@cache
def style() -> Markup:
    """The one style sheet of all pages."""
    return Markup((files("assay.pages") / "style.css").read_text(encoding="utf-8"))


def page_html(page: Page) -> str:
    """The whole file."""
    return headed(page, HEAD, style=style()) + body_html(page) + END


def headed(page: Page, head: Markup, **values: object) -> Markup:
    """The beginning of a document, with the page's language and titles."""
    title, heading = _text(page.document or page.title), _text(page.title)
    return head.format(lang=page.words.lang, title=title, heading=heading, **values)


def tag(name: str, /, *inner: str, **attributes: str | int | None) -> Markup:
    """An element; what is no markup is escaped, and attributes that are None are left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{''.join(map(escape, inner))}</{name}>")


def body_html(page: Page) -> Markup:
    """All blocks and the footer. Contents stand before the first section."""
    first = list(takewhile(lambda block: not isinstance(block, model.Section), page.blocks))
    rest = page.blocks[len(first) :]
    contents = _contents(page) if page.contents else ""
    footer = tag("footer", _text(page.footer)) + "\n" if page.footer else ""
    body = (blocks_html(first, page.words), contents, blocks_html(rest, page.words), footer)
    return Markup("").join(body)


def _contents(page: Page) -> Markup:
    links = (tag("a", _text(each.title), href=f"#{each.anchor}") for each in page.sections)
    entries = tag("ul", *(tag("li", link) for link in links))
    return tag("nav", entries, class_="contents", aria_label=page.words("page.contents")) + "\n"


def blocks_html(blocks: Iterable[Block], words: Words) -> Markup:
    """Blocks one after the other."""
    return Markup("\n").join([*(_RENDER[type(block)](block, words) for block in blocks), ""])


def inline_html(blocks: Iterable[Block], words: Words) -> str:
    """Blocks for the cell of a notebook: without drawings, which need the style sheet."""
    bare = [_without_drawings(block) for block in blocks if not isinstance(block, model.Figure)]
    return tag("div", "\n", blocks_html(bare, words), class_="assay")


def _without_drawings(block: Block) -> Block:
    if not isinstance(block, model.Table):
        return block
    rows = [[replace(cell_of(cell), figure=None) for cell in row] for row in block.rows]
    return replace(block, rows=rows)


def _text(text: str) -> Markup:
    return escape(visible(text))


def line_html(line: Line) -> Markup:
    """A line with its marks."""
    return Markup("").join(_mark(mark) for mark in parts(line))


def _mark(mark: model.Mark) -> Markup:
    text = _text(mark.text)
    if mark.link:
        text = tag("a", text, href=mark.link)
    if mark.kind in BADGES:
        return tag("span", text, class_=f"badge {mark.kind.replace(' ', '-')}")
    if mark.kind in ("strong", "code"):
        return tag("b" if mark.kind == "strong" else "code", text)
    return tag("span", text, class_=mark.kind) if mark.kind else text


def _heading(block: model.Heading, words: Words) -> Markup:
    return tag(f"h{block.level}", line_html(block.line))


def _paragraph(block: model.Text, words: Words) -> Markup:
    if block.kind in ("error", "warning", "note"):
        return tag("div", line_html(block.line), class_=f"warn {block.kind}")
    return tag("p", line_html(block.line), class_=block.kind or None)


def _bullets(block: model.Bullets, words: Words) -> Markup:
    items = (tag("li", line_html(line)) for line in block.lines)
    return tag("ul", *items, class_="says") if block.lines else Markup("")


def _facts(block: model.Facts, words: Words) -> Markup:
    pairs = [(_text(name), line_html(value)) for name, value in block.pairs]
    if block.chips:
        chips = (tag("li", name, " ", tag("b", value)) for name, value in pairs)
        return tag("ul", *chips, class_="chips")
    return tag("dl", *(tag("dt", name) + tag("dd", value) for name, value in pairs))


def _table(block: model.Table, words: Words) -> Markup:
    columns = [column_of(column) for column in block.columns]
    heads = (tag("th", _text(c.title), class_="num" if c.right else None) for c in columns)
    rows = Markup("\n").join(_row(row, columns) for row in block.rows)
    table = tag(
        "table", tag("thead", tag("tr", *heads)), "\n", tag("tbody", rows), class_=block.kind
    )
    title = tag("h4", _text(block.title)) if block.title else ""
    note = tag("p", _text(block.note), class_="soft small") if block.note else ""
    return Markup("").join((title, tag("div", table, class_="scroll"), note))


def _row(row: model.Row, columns: Sequence[model.Column]) -> Markup:
    cells, place = [], 0
    for cell in map(cell_of, row):
        cells.append(_cell(cell, columns[place], first=place == 0))
        place += cell.span
    return tag("tr", *cells)


def _cell(cell: model.Cell, column: model.Column, first: bool) -> Markup:
    kinds = [cell.kind or "head" * first, "num" * column.right, "graph" if cell.figure else ""]
    line = line_html(cell.line)
    lines = [tag("span", line, class_="sub") if cell.figure else line]
    lines += [tag("span", line_html(each), class_="sub") for each in cell.below if parts(each)]
    text = Markup("").join(lines)
    return tag(
        "td",
        _field(cell.field) if cell.field else "",
        cell.figure or "",
        tag("span", text) if text else "",
        class_=" ".join(filter(None, kinds)) or None,
        data_label=None if first else visible(column.title),
        colspan=cell.span if cell.span > 1 else None,
    )


def _figure(block: model.Figure, words: Words) -> Markup:
    drawing = Markup(visible(str(block.drawing)))
    if not block.caption:
        return tag("div", drawing, class_="wide")
    last = tag("i", _text(block.last)) if block.last else ""
    title = tag("span", _mark(model.Mark(block.caption, "", block.link)))
    return tag("figure", tag("figcaption", title, last), drawing)


def _panels(block: model.Panels, words: Words) -> Markup:
    return tag("div", *(_figure(figure, words) for figure in block.figures), class_="panels")


def _findings(block: model.Findings, words: Words) -> Markup:
    names = ["severity", "finding", "evidence"]
    names += ["advice"] if any(worded(each, words).fix for each in block.findings) else []
    rows = []
    for index, finding in enumerate(worded(each, words) for each in block.findings):
        place = f"{block.places[index]}{words.colon}" if block.places else ""
        badge = model.Mark(words(f"severity.{finding.severity}"), finding.severity)
        row = (badge, place + finding.what, finding.evidence, finding.fix)
        rows.append(row[: len(names)])
    return _table(model.Table([words(f"table.{name}") for name in names], rows), words)


def _folded(block: model.Folded, words: Words) -> Markup:
    inner = "\n", blocks_html(block.blocks, words)
    state = {"id": block.anchor or None, "open": "" if block.open else None}
    return tag("details", tag("summary", _text(block.title)), *inner, **state)


def _question(block: model.SideBySide, words: Words) -> Markup:
    def say(*texts: str) -> Markup:
        return tag("div", *(tag("span", text) for text in texts), class_="say")

    def written(text: str, kind: str | None = None) -> Markup:
        return tag("pre", _text(text), class_=kind)

    title, answers = line_html(block.title), []
    for each in block.answers:
        own = [say(line_html(model.Mark(each.title, "", each.link)), _text(each.result))]
        if each.thought:
            summary = tag("summary", _text(words("page.thought")))
            own.append(tag("details", summary, written(each.thought)))
        own.append(written(each.text))
        for name, value in each.facts:
            own += say(_text(name)), written(value, "fact")
        own += [say(_text(each.note))] if each.note else []
        answers.append(tag("div", *own))
    whole = [tag("h3", title)] if title else []
    whole += [written(block.question, "question")] if block.question else []
    whole.append(tag("div", *answers, class_="pair"))
    whole += [say(_text(block.gold_title)), written(block.gold, "gold")] if block.gold else []
    return tag("article", *whole, class_="example")


def _code(block: model.Code, words: Words) -> Markup:
    return tag("pre", _text(block.text))


def _form(block: model.Form, words: Words) -> Markup:
    buttons = Markup(" ").join(
        tag("button", _text(label), formaction=address) for label, address in block.buttons
    )
    fields = [*map(_field, block.fields)]
    if not block.blocks:  # in one line with the fields
        fields, buttons = [*fields, buttons], Markup("")
    above = tag("div", *fields, class_="fields"), "\n", blocks_html(block.blocks, words)
    return tag("form", *above, tag("p", buttons, class_="send"), action=block.action, method="get")


def _field(field: model.Field) -> Markup:
    name, value, label = field.name, visible(field.value), tag("span", _text(field.label))
    if field.kind == "hidden":
        return Markup('<input type="hidden" name="{}" value="{}">').format(name, value)
    if field.kind == "tick":
        box = Markup('<input type="checkbox" name="{}" value="{}">').format(name, value)
        return tag("label", box, " ", label, class_="tick")
    if field.kind == "choice":
        options = (
            tag("option", _text(text), value=key, selected="" if key == field.value else None)
            for key, text in field.choices
        )
        return tag("label", label, tag("select", *options, name=name))
    kind = Markup('type="number" step="any"' if field.kind == "number" else 'type="search"')
    return tag("label", label, Markup('<input {} name="{}" value="{}">').format(kind, name, value))


def _section(block: model.Section, words: Words) -> Markup:
    title, inner = tag("h2", _text(block.title)), blocks_html(block.blocks, words)
    return tag("section", "\n", title, "\n", inner, id=block.anchor)


_RENDER: dict[type, Callable[..., Markup]] = {
    model.Heading: _heading,
    model.Text: _paragraph,
    model.Bullets: _bullets,
    model.Facts: _facts,
    model.Table: _table,
    model.Figure: _figure,
    model.Panels: _panels,
    model.Findings: _findings,
    model.Folded: _folded,
    model.SideBySide: _question,
    model.Code: _code,
    model.Form: _form,
    model.Section: _section,
}


def write_page(page: Page, file: Path) -> Path:
    """Write `file` (.html) and the same as .md beside it; returns `file`. Both are rendered before
    either is written. Raises OSError."""
    texts = {file.with_suffix(".md"): page_markdown(page), file: page_html(page)}
    for target, text in texts.items():
        atomic_write_text(target, text)
    return file
