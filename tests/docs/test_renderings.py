"""The page on renderings shows what they write, and says what the code says."""

import json
import re

import pytest

from assay.data.formats.formats import read_rows
from assay.data.renderings.rendering import RENDERINGS, Renderer
from assay.data.row import Message, Row
from tests.data.bfcl_handler import chat_template
from tests.data.chat import CHATML, SPECIAL, build
from tests.docs.pages import DOCS, blocks
from tests.lab.tool_lab import PREFILLED

PAGE = (DOCS / "renderings.md").read_text(encoding="utf-8")
HYBRID = chat_template()
THINKING = HYBRID.replace("{{- '<|im_start|>assistant\\n' }}", PREFILLED)
TEMPLATES = {"plain": CHATML, "hybrid": HYBRID, "thinking": THINKING}


@pytest.fixture(scope="module")
def row(tmp_path_factory) -> Row:
    """The conversation of the page."""
    file = tmp_path_factory.mktemp("page") / "talk.jsonl"
    (text,) = blocks("renderings.md", "json")
    file.write_text(json.dumps(json.loads(text)) + "\n", encoding="utf-8")
    (found,) = read_rows(file, "messages")
    return found


def renderer(template: str, name: str) -> Renderer:
    made = build(SPECIAL["qwen3"], TEMPLATES[template], ["<think>", "</think>"])
    made.eos_token = "<|im_end|>"
    return Renderer(made, name)


def shown_text(name: str) -> str:
    """The page's text of a rendering; two are described by `template`."""
    if name == "template_bare":
        assert "The text of `template` where a conversation has a system message" in PAGE
        return shown_text("template")
    if name == "qwen3":
        assert "the text of `template` without the last `<think>`" in " ".join(PAGE.split())
        return shown_text("template").removesuffix("<think>\n")
    section = PAGE.partition(f"### `{name}`")[2]
    return section.partition("```text\n")[2].partition("```\n")[0]


ANIMALS = (
    Message("system", "Which animal is it? Answer with one word."),
    Message("user", "Question: It barks.\nAnswer:"),
    Message("assistant", "dog"),
    Message("user", "Question: It purrs.\nAnswer:"),
)
SHOWN = {
    "template": "thinking",
    "template_bare": "thinking",
    "completion": "plain",
    "hermes": "plain",
    "qwen3": "plain",
    "qwen3_fc": "plain",
}


def test_every_rendering_has_its_section() -> None:
    assert re.findall(r"^### `(\w+)`", PAGE, re.MULTILINE) == list(RENDERINGS) == list(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_the_text_of_the_page_is_what_the_rendering_writes(name: str, row: Row) -> None:
    made = renderer(SHOWN[name], name)
    if name == "completion":  # it has no place for tools
        row = Row("animals", ANIMALS)
    text = made.tokenizer.decode(list(made.prompt(row.messages, row.tools)))
    assert all(part in text for part in shown_text(name).split("...<|im_end|>"))
