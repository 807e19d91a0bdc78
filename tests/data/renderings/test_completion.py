"""`completion` is bare text without roles: questions and answers, one after the other."""

import copy

import pytest

from assay.data.renderings.exported_template import chat_template
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError, apply_template
from assay.data.row import Message, ToolCall
from tests.data.chat import tokenizer

SHOTS = (
    Message("system", "Name the animal."),
    Message("user", "It barks.\nAnimal:"),
    Message("assistant", "dog"),
    Message("user", "It purrs.\nAnimal:"),
)
TEXT = "Name the animal.\n\nIt barks.\nAnimal:\ndog\n\nIt purrs.\nAnimal:\n"


def endless():
    made = copy.deepcopy(tokenizer("chatml"))
    made.eos_token = "<|im_end|>"
    return made


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(endless(), "completion")


def test_the_prompt_is_the_text_and_nothing_else(renderer):
    assert renderer.tokenizer.decode(renderer.prompt(SHOTS)) == TEXT


def test_a_trained_answer_continues_its_prompt_and_ends(renderer):
    whole = renderer.conversation((*SHOTS, Message("assistant", "cat")))
    prompt = renderer.prompt(SHOTS)
    assert whole.tokens[: len(prompt)] == prompt
    _, start, end = whole.message_spans[-1]
    assert start == len(prompt)
    assert whole.tokens[start:end] == (*renderer.text("cat"), renderer.end_token)


def test_other_programs_write_the_same_text(renderer):
    written = apply_template(renderer.tokenizer, chat_template(renderer), SHOTS, (), True)
    assert written == TEXT


@pytest.mark.parametrize(
    "message",
    [Message("assistant", "", (ToolCall("f", {}),)), Message("assistant", "x", (), "", "r")],
)
def test_what_has_no_place_is_refused(renderer, message):
    with pytest.raises(RenderingError, match="no place for tools and reasoning"):
        renderer.prompt((SHOTS[1], message, SHOTS[3]))


def test_a_tokenizer_without_a_template_will_do():
    made = endless()
    made.chat_template = None
    with_template = Renderer(endless(), "completion")
    assert Renderer(made, "completion").fingerprint == with_template.fingerprint
