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


def body_html(page: Page) -> Markup:
    """All blocks and the footer. Contents stand before the first section."""
    first = list(takewhile(lambda block: not isinstance(block, model.Section), page.blocks))
    rest = page.blocks[len(first) :]
    contents = _contents(page) if page.contents else Markup("")
    footer = Markup("<footer>{}</footer>\n").format(_text(page.footer)) if page.footer else ""
    body = (blocks_html(first, page.words), contents, blocks_html(rest, page.words))
    return Markup("").join(body) + footer


def _contents(page: Page) -> Markup:
    entry = Markup('<li><a href="#{}">{}</a></li>')
    entries = Markup("").join(entry.format(s.anchor, _text(s.title)) for s in page.sections)
    nav = Markup('<nav class="contents" aria-label="{}"><ul>{}</ul></nav>\n')
    return nav.format(page.words("page.contents"), entries)


def blocks_html(blocks: Iterable[Block], words: Words) -> Markup:
    """Blocks one after the other."""
    return Markup("\n").join([*(_RENDER[type(block)](block, words) for block in blocks), ""])


def inline_html(blocks: Iterable[Block], words: Words) -> str:
    """Blocks for the cell of a notebook: without drawings, which need the style sheet."""
    bare = [_without_drawings(block) for block in blocks if not isinstance(block, model.Figure)]
    return Markup('<div class="assay">\n{}</div>').format(blocks_html(bare, words))


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
        text = Markup('<a href="{}">{}</a>').format(mark.link, text)
    if mark.kind in BADGES:
        kind = mark.kind.replace(" ", "-")
        return Markup('<span class="badge {}">{}</span>').format(kind, text)
    tags = {"strong": "<b>{}</b>", "code": "<code>{}</code>"}
    if mark.kind in tags:
        return Markup(tags[mark.kind]).format(text)
    return Markup('<span class="{}">{}</span>').format(mark.kind, text) if mark.kind else text


def _heading(block: model.Heading, words: Words) -> Markup:
    return Markup("<h{0}>{1}</h{0}>").format(block.level, line_html(block.line))


def _paragraph(block: model.Text, words: Words) -> Markup:
    if block.kind in ("error", "warning", "note"):
        return Markup('<div class="warn {}">{}</div>').format(block.kind, line_html(block.line))
    kind = Markup(' class="{}"').format(block.kind) if block.kind else ""
    return Markup("<p{}>{}</p>").format(kind, line_html(block.line))


def _bullets(block: model.Bullets, words: Words) -> Markup:
    items = Markup("").join(Markup("<li>{}</li>").format(line_html(line)) for line in block.lines)
    return Markup('<ul class="says">{}</ul>').format(items) if block.lines else items


def _facts(block: model.Facts, words: Words) -> Markup:
    if block.chips:
        chip = Markup("<li>{} <b>{}</b></li>")
        chips = [chip.format(_text(name), line_html(value)) for name, value in block.pairs]
        return Markup('<ul class="chips">{}</ul>').format(Markup("").join(chips))
    entry = Markup("<dt>{}</dt><dd>{}</dd>")
    entries = [entry.format(_text(name), line_html(value)) for name, value in block.pairs]
    return Markup("<dl>{}</dl>").format(Markup("").join(entries))


def _table(block: model.Table, words: Words) -> Markup:
    columns = [column_of(column) for column in block.columns]
    title = Markup("<h4>{}</h4>").format(_text(block.title)) if block.title else ""
    heads = Markup("").join(_head(column) for column in columns)
    rows = Markup("\n").join(_row(row, columns) for row in block.rows)
    note = Markup('<p class="soft small">{}</p>').format(_text(block.note)) if block.note else ""
    form = Markup(
        '{}<div class="scroll"><table class="{}"><thead><tr>{}</tr></thead>\n'
        "<tbody>{}</tbody></table></div>{}"
    )
    return form.format(title, block.kind, heads, rows, note)


def _head(column: model.Column) -> Markup:
    below = Markup("").join(
        Markup('<br><span class="soft">{}</span>').format(_text(each)) for each in column.below
    )
    kind = Markup(' class="num"') if column.right else ""
    return Markup("<th{}>{}{}</th>").format(kind, _text(column.title), below)


def _row(row: model.Row, columns: Sequence[model.Column]) -> Markup:
    cells, place = [], 0
    for cell in map(cell_of, row):
        cells.append(_cell(cell, columns[place], first=place == 0))
        place += cell.span
    return Markup("<tr>{}</tr>").format(Markup("").join(cells))


def _cell(cell: model.Cell, column: model.Column, first: bool) -> Markup:
    kinds = [cell.kind or "head" * first, "num" * column.right, "graph" if cell.figure else ""]
    below = Markup("").join(
        Markup('<span class="sub">{}</span>').format(line_html(each))
        for each in cell.below
        if parts(each)
    )
    attributes = Markup(' class="{}"').format(" ".join(filter(None, kinds))) if any(kinds) else ""
    attributes += Markup(' data-label="{}"').format(_text(column.title)) if not first else ""
    attributes += Markup(' colspan="{}"').format(cell.span) if cell.span > 1 else ""
    line = Markup('<span class="sub">{}</span>') if cell.figure else Markup("{}")
    text = line.format(line_html(cell.line)) + below
    body = (
        Markup("{}<span>{}</span>").format(cell.figure or "", text) if text else cell.figure or ""
    )
    body = (_field(cell.field) if cell.field else Markup("")) + body
    return Markup("<td{}>{}</td>").format(attributes, body)


def _figure(block: model.Figure, words: Words) -> Markup:
    drawing = Markup(visible(str(block.drawing)))
    if not block.caption:
        return Markup('<div class="wide">{}</div>').format(drawing)
    last = Markup("<i>{}</i>").format(_text(block.last)) if block.last else ""
    form = Markup("<figure><figcaption><span>{}</span>{}</figcaption>{}</figure>")
    return form.format(_mark(model.Mark(block.caption, "", block.link)), last, drawing)


def _panels(block: model.Panels, words: Words) -> Markup:
    figures = Markup("").join(_figure(figure, words) for figure in block.figures)
    return Markup('<div class="panels">{}</div>').format(figures)


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
    form = Markup("<details{}{}><summary>{}</summary>\n{}</details>")
    anchor = Markup(' id="{}"').format(block.anchor) if block.anchor else ""
    inner = blocks_html(block.blocks, words)
    return form.format(anchor, " open" * block.open, _text(block.title), inner)


def _question(block: model.SideBySide, words: Words) -> Markup:
    say, pre = Markup('<div class="say"><span>{}</span></div>'), Markup('<pre class="{}">{}</pre>')
    answers = []
    for answer in block.answers:
        facts = Markup("").join(
            say.format(_text(name)) + pre.format("fact", _text(value))
            for name, value in answer.facts
        )
        form = Markup(
            '<div><div class="say"><span>{}</span><span>{}</span></div>{}<pre>{}</pre>{}{}</div>'
        )
        folded = Markup("<details><summary>{}</summary><pre>{}</pre></details>")
        thought = folded.format(_text(words("page.thought")), _text(answer.thought))
        thought = thought if answer.thought else ""
        note = say.format(_text(answer.note)) if answer.note else ""
        title = line_html(model.Mark(answer.title, "", answer.link)) if answer.title else ""
        head = (title, _text(answer.result), thought, _text(answer.text))
        answers.append(form.format(*head, facts, note))
    question = pre.format("question", _text(block.question)) if block.question else ""
    gold = say.format(_text(block.gold_title)) + pre.format("gold", _text(block.gold))
    form = Markup('<article class="example">{}{}<div class="pair">{}</div>{}</article>')
    title, both = line_html(block.title), Markup("").join(answers)
    title = Markup("<h3>{}</h3>").format(title) if title else title
    return form.format(title, question, both, gold if block.gold else "")


def _code(block: model.Code, words: Words) -> Markup:
    return Markup("<pre>{}</pre>").format(_text(block.text))


def _form(block: model.Form, words: Words) -> Markup:
    head = Markup('<form action="{}" method="get"><div class="fields">{}</div>\n{}')
    form = head + Markup('<p class="send">{}</p></form>')
    button = Markup('<button formaction="{}">{}</button>')
    buttons = Markup(" ").join(
        button.format(address, _text(label)) for label, address in block.buttons
    )
    fields = Markup("").join(map(_field, block.fields))
    if not block.blocks:  # in one line with the fields
        return form.format(block.action, fields + buttons, "", "")
    return form.format(block.action, fields, blocks_html(block.blocks, words), buttons)


def _field(field: model.Field) -> Markup:
    name, value, label = field.name, visible(field.value), _text(field.label)
    if field.kind == "hidden":
        return Markup('<input type="hidden" name="{}" value="{}">').format(name, value)
    if field.kind == "tick":
        on = Markup(" checked") if field.on else ""
        box = Markup('<input type="checkbox" name="{}" value="{}" {}>')
        return Markup('<label class="tick">{} <span>{}</span></label>').format(
            box.format(name, value, on), label
        )
    if field.kind == "choice":
        option = Markup('<option value="{}"{}>{}</option>')
        options = Markup("").join(
            option.format(key, Markup(" selected") if key == field.value else "", _text(text))
            for key, text in field.choices
        )
        control = Markup('<select name="{}">{}</select>').format(name, options)
    else:
        kind = Markup('type="number" step="any"' if field.kind == "number" else 'type="search"')
        control = Markup('<input {} name="{}" value="{}">').format(kind, name, value)
    return Markup("<label><span>{}</span>{}</label>").format(label, control)


def _section(block: model.Section, words: Words) -> Markup:
    form = Markup('<section id="{}">\n<h2>{}</h2>\n{}</section>')
    return form.format(block.anchor, _text(block.title), blocks_html(block.blocks, words))


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
