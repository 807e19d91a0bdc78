"""Every trained answer ends with a trained end token, the template's or else the tokenizer's."""

from typing import Any

import pytest

from assay.data.episode import tokens_of
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError
from assay.data.row import Message
from tests.data.chat import SPECIAL, build, tokenizer
from tests.models.folders import tiny_tokenizer

ASKED, AGAIN = Message("user", "How are you?"), Message("user", "And you?")
TALK = (ASKED, Message("assistant", "I am fine."), AGAIN, Message("assistant", "Fine, thank you."))
RENDERERS = [
    ("chatml", "hermes"),
    ("chatml", "template"),
    ("chatml", "template_bare"),
    ("llama", "hermes"),
    ("llama", "template"),
    ("qwen3", "template"),
    ("qwen3", "qwen3"),
    ("qwen3", "qwen3_fc"),
]
PLAIN = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)
"""A template without any special token."""


def endless(template: str = PLAIN) -> Any:
    """A tokenizer whose template ends no answer, with an end-of-sequence token."""
    made = build(SPECIAL["chatml"], template, ["<think>"])
    made.eos_token = "<|im_end|>"
    return made


@pytest.mark.parametrize("loss", ["all", "last"])
@pytest.mark.parametrize(("style", "name"), RENDERERS)
def test_where_the_template_ends_answers_nothing_is_added(style: str, name: str, loss: Any) -> None:
    made = Renderer(tokenizer(style), name)
    turns = made.turns(TALK, (), loss)
    assert not made.adds_end
    for turn in turns:
        assert turn.actions[-1] == made.end_token and turn.loss_mask[-1]
    # The end stands where the template wrote it, once.
    whole = made.conversation(TALK).tokens
    assert whole.count(made.end_token) == made.tokenizer.decode(list(whole)).count(
        made.tokenizer.decode([made.end_token])
    )
    last = turns[-1]
    assert tokens_of(last.context) + last.actions == whole[: whole_end(made)]


def whole_end(made: Renderer) -> int:
    return made.conversation(TALK).message_spans[-1][2]


def test_where_the_template_ends_none_the_end_of_sequence_is_trained() -> None:
    made = Renderer(endless(), "template")
    end = made.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert made.adds_end and made.end_token == end
    decode = made.tokenizer.decode
    first, second = made.turns(TALK)
    assert decode(list(first.actions)) == "I am fine.<|im_end|>"
    assert decode(list(second.actions)) == "Fine, thank you.<|im_end|>"
    for turn in (first, second):
        assert turn.actions[-1] == end and all(turn.loss_mask)
    (last,) = made.turns(TALK, loss="last")
    assert last == second


def test_without_any_end_and_without_a_template_a_tokenizer_is_refused() -> None:
    none = build(SPECIAL["chatml"], PLAIN, [])
    with pytest.raises(RenderingError, match=r"no end-of-sequence token.*never learn to stop"):
        Renderer(none, "template").turns(TALK)
    plain = tiny_tokenizer()
    plain.chat_template = None
    # With ChatML's tokens its layout is assumed, ends included; else there is nothing to render by.
    assert Renderer(plain, "template").turns(TALK)[0].actions[-1] == 258
    with pytest.raises(RenderingError, match="no chat template"):
        Renderer(build(["<s>"], None, []), "template").turns(TALK)
