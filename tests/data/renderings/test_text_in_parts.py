"""Templates that read a text only as a list of parts, as SmolVLM's, lose no text."""

import copy
from typing import Any

import pytest

from assay.data.renderings.exported_template import chat_template
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import check_template, reads_parts_alone, undressed
from assay.data.row import Message
from tests.data.chat import TEMPLATES, tokenizer

PARTS = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}<image>{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TALK = (Message("system", "s"), Message("user", "a {{ b }}"), Message("assistant", "c"))


def with_parts() -> Any:
    made = copy.copy(tokenizer("chatml"))  # other tests share it
    made.chat_template = PARTS
    return made


def test_a_text_is_written_as_by_the_template_that_reads_strings() -> None:
    check_template(with_parts())
    parts, strings = Renderer(with_parts(), "template"), Renderer(tokenizer("chatml"), "template")
    assert "a {{ b }}" in with_parts().decode(parts.prompt(TALK[:2], ()))
    assert parts.prompt(TALK[:2], ()) == strings.prompt(TALK[:2], ())
    assert parts.conversation(TALK, ()).tokens == strings.conversation(TALK, ()).tokens


@pytest.mark.parametrize("style", TEMPLATES)
def test_a_template_that_reads_strings_gets_strings(style: str) -> None:
    assert not reads_parts_alone(tokenizer(style), TEMPLATES[style])


def test_the_exported_hermes_template_writes_what_was_trained() -> None:
    made = with_parts()
    renderer = Renderer(made, "hermes")
    exported = chat_template(renderer)
    assert undressed(exported) == PARTS
    talk = [{"role": m.role, "content": m.content} for m in TALK[:2]]
    text = made.apply_chat_template(
        talk, chat_template=exported, tokenize=False, add_generation_prompt=True
    )
    assert made.encode(text, add_special_tokens=False) == list(renderer.prompt(TALK[:2], ()))
    shown = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "x"}]}]
    assert "<image>x" in made.apply_chat_template(shown, chat_template=exported, tokenize=False)
