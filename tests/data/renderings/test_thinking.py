"""What each rendering does with reasoning, under the three kinds of Qwen3-style templates."""

import pytest

from assay.data.episode import tokens_of
from assay.data.renderings.rendering import Renderer
from assay.data.row import Message
from assay.lab.check.rendering_mismatch import ThinkHandling, think_handling
from tests.data.bfcl_handler import chat_template
from tests.data.chat import CHATML, SPECIAL, build
from tests.lab.tool_lab import PREFILLED

WORDS = ["<think>", "</think>", "<tool_call>"]
HYBRID = chat_template()
THINKING = HYBRID.replace("{{- '<|im_start|>assistant\\n' }}", PREFILLED)
QUESTION = Message("user", "Weather?")
THOUGHT = Message("assistant", "Sunny.", reasoning="Look outside.")


def renderer(template: str, name: str) -> Renderer:
    return Renderer(build(SPECIAL["qwen3"], template, WORDS), name)


@pytest.mark.parametrize(
    ("template", "name", "expected"),
    [
        (HYBRID, "template", ThinkHandling(False, True, True, True, False)),
        (THINKING, "template", ThinkHandling(True, True, True, True, False)),
        (HYBRID, "qwen3", ThinkHandling(False, True, True, True, False)),
        (THINKING, "qwen3_fc", ThinkHandling(False, True, False, True, False)),
        (HYBRID, "hermes", ThinkHandling(False, True, True, True, False)),
        (CHATML, "hermes", ThinkHandling(False, True, False, True, True)),
        (CHATML, "template", ThinkHandling(False, None, False, None, None)),
    ],
)
def test_the_handling_of_reasoning_is_measured(template, name, expected) -> None:
    assert think_handling(renderer(template, name)) == expected


def test_a_prefilled_tag_is_prompt_and_only_what_follows_is_trained() -> None:
    made = renderer(THINKING, "template")
    (turn,) = made.turns((QUESTION, THOUGHT))
    decode = made.tokenizer.decode
    assert decode(tokens_of(turn.context)).endswith("<|im_start|>assistant\n<think>\n")
    assert decode(list(turn.actions)) == "Look outside.\n</think>\n\nSunny.<|im_end|>"
    (silent,) = made.turns((QUESTION, Message("assistant", "Sunny.")))
    assert decode(list(silent.actions)) == "\n</think>\n\nSunny.<|im_end|>"


@pytest.mark.parametrize(
    ("name", "actions"),
    [
        ("qwen3", "<think>\n\n</think>\n\nSunny.<|im_end|>"),
        ("template", "<think>\n\n</think>\n\nSunny.<|im_end|>"),
        ("qwen3_fc", "Sunny.<|im_end|>"),
    ],
)
def test_an_answer_without_thought_has_an_empty_block_where_the_template_has(
    name: str, actions: str
) -> None:
    made = renderer(HYBRID, name)
    (turn,) = made.turns((QUESTION, Message("assistant", "Sunny.")))
    assert made.tokenizer.decode(list(turn.actions)) == actions


@pytest.mark.parametrize("name", ["qwen3", "qwen3_fc", "template"])
def test_thought_in_the_text_of_an_answer_is_thought(name: str) -> None:
    inline = Message("assistant", "<think>\nLook outside.\n</think>\n\nSunny.")
    made = renderer(HYBRID, name)
    assert made.turns((QUESTION, inline)) == made.turns((QUESTION, THOUGHT))
    later = (QUESTION, inline, Message("user", "And now?"))
    assert "Look outside" not in made.tokenizer.decode(list(made.prompt(later)))
