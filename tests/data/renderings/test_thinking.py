"""What each rendering does with reasoning, under the three kinds of Qwen3-style templates."""

from dataclasses import replace

import pytest

from assay.data.episode import tokens_of
from assay.data.loaded import gather
from assay.data.renderings.hermes import LEFT_OUT, without_reasoning
from assay.data.renderings.rendering import Renderer
from assay.data.row import Message, Row, ToolCall
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
        (THINKING, "qwen3_fc", ThinkHandling(False, True, False, True, False)),
        (HYBRID, "hermes", ThinkHandling(False, True, True, True, False)),
        (CHATML, "hermes", ThinkHandling(False, True, False, True, True)),
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


ASKED = Message("user", "<think>\nmine\n</think>\n\nWhy?")
CALLED = Message("assistant", "", (ToolCall("f", {"a": 1}),), reasoning="So f.")
WRITTEN = Message("assistant", "<think>\nSo.\n</think>\n\nBecause.")


def test_both_ways_of_writing_reasoning_are_left_out_and_nothing_else():
    row = Row("r", (ASKED, CALLED, Message("tool", "1"), WRITTEN), gold="1", conversation="c")
    found = gather(without_reasoning([row]))
    plain = (
        ASKED,
        replace(CALLED, reasoning=""),
        row.messages[2],
        Message("assistant", "Because."),
    )
    assert found.rows == (replace(row, messages=plain),)
    assert found.remarks == {LEFT_OUT: ("r",)}
