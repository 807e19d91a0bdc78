"""One page in three media: the same words everywhere, and no text can act in any of them."""

import re

import pytest
from markupsafe import Markup

from assay.errors import Finding
from assay.pages.html import blocks_html, page_html
from assay.pages.markdown import blocks_markdown, fenced, page_markdown
from assay.pages.page import (
    Answer,
    Bullets,
    Cell,
    Code,
    Column,
    Facts,
    Field,
    Figure,
    Findings,
    Folded,
    Form,
    Heading,
    Mark,
    Page,
    Panels,
    Section,
    SideBySide,
    Table,
    Text,
)
from assay.pages.words import words
from tests.pages.pages import printed

EVIL = "</pre><script>alert(1)</script> | [a](b) `c` \x1b[2J\u202e [bold red]x[/]"


def every_block(text: str) -> list:
    """Each kind of block once, with a text wherever one fits."""
    finding = Finding("error", text, text, text)
    figure = Figure(Markup("<svg>{}</svg>").format(text), text, text)
    cell = Cell((text, Mark(text, "better")), [text], Markup("<svg></svg>"), 1, "soft")
    blocks = [
        Heading(text),
        Text((text, Mark(text, "code"), Mark(text, "strong")), "warning"),
        Text(text, fit="cut"),
        Bullets([text, Mark(text, "undecided")]),
        Facts([(text, text)], chips=True),
        Facts([(text, text)]),
        Table([Column(text, True), text], [[cell, text], [Cell(text, span=2)]], text, text),
        figure,
        Panels([figure]),
        Findings([finding], [text], [True]),
        SideBySide(text, text, [Answer(text, text, text, [(text, text)], text)], text, text),
        Code(text),
    ]
    return [*blocks, Folded(text, blocks), Section("a", text, blocks)]


@pytest.fixture(params=["en", "zh"])
def page(request):
    return Page(words(request.param), EVIL, every_block(EVIL), EVIL, contents=True)


def test_no_text_is_markup_in_html(page):
    source = page_html(page)
    assert "<script" not in source and "\x1b" not in source and "\u202e" not in source
    assert source.count("&lt;script&gt;") > 30 and f'lang="{page.words.lang}"' in source


def test_no_text_is_markup_in_markdown(page):
    text = re.sub(r"^(`{3,})text\n.*?^\1$|`[^`\n]+`", "", page_markdown(page), flags=re.M | re.S)
    assert not re.search(r"(?<!\\)<script|(?<!\\)\[a|\x1b", text)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows and all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)


def test_no_text_steers_a_terminal(page):
    shown = printed(page.blocks, page.words.lang)
    assert "\x1b" not in shown and "␛[2J" in shown and "[bold red]x[/]" in shown


def test_the_values_of_a_form_are_no_markup():
    kinds = ("text", "number", "choice", "tick", "hidden")
    evil = f'"{EVIL}'
    fields = [Field("a", evil, evil, kind, [("b", evil)]) for kind in kinds]
    table = Table([evil], [[Cell(evil, field=fields[3])]])
    form = Form("/", fields, [(evil, "/")], [table])
    source = blocks_html([form], words("en"))
    assert "<script" not in source and "</pre>" not in source and "\x1b" not in source
    assert not re.search(r"""=\"[^"<>]*\"[^\s>]""", source)


def test_the_same_words_stand_in_all_media():
    blocks, w = every_block("word"), words("en")
    for text in (blocks_html(blocks, w), blocks_markdown(blocks, w), printed(blocks)):
        assert text.count("word") > 40


@pytest.mark.parametrize("value", [("a", ["b"]), {"a": 1}, 3])
def test_no_page_prints_a_container_in_pythons_notation(value):
    for render in (blocks_html, blocks_markdown, lambda blocks, w: printed(blocks)):
        with pytest.raises(TypeError):
            render([Text(value)], words("en"))


@pytest.mark.parametrize("text", ["plain", "```\ninner\n```", "a ````` b"])
def test_a_fence_is_longer_than_any_it_holds(text):
    opening, *body, closing = fenced(text).split("\n")
    assert "\n".join(body) == text and opening == closing + "text" and closing not in text


def test_a_narrow_terminal_breaks_lines_and_keeps_cut_ones_short():
    shown = printed([Text("word " * 40), Text("word " * 40, fit="cut")], width=40).splitlines()
    assert len(shown) > 4 and all(len(line) <= 40 for line in shown) and shown[-1].endswith("…")
