"""Chains of thought are found on exact tokens, whether a tag is one token or a part of several."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from assay.rl.thought import Thinking, ends_open, find_tag, find_thought
from tests.data.chat import SPECIAL, build

OPEN, CLOSE = 8, 9


def spell(tokens: Sequence[int]) -> str:
    return "".join({OPEN: "<think>", CLOSE: "</think>"}.get(token, "x") for token in tokens)


def marks(tokens: list[int], opened: bool, thinking: Thinking) -> tuple[list[int], bool]:
    """What is found in a turn that stands behind another one."""
    actions_S = torch.tensor([*tokens, *tokens])
    offsets_N1 = torch.tensor([0, len(tokens), 2 * len(tokens)])
    found = find_thought(actions_S, offsets_N1, torch.tensor([False, opened]), thinking)
    return found.mask_S[len(tokens) :].int().tolist(), bool(found.unclosed_N[1])


@pytest.mark.parametrize(
    ("tokens", "opened", "expected", "unclosed"),
    [
        ([1, OPEN, 2, CLOSE, 3], False, [0, 1, 1, 1, 0], False),
        ([1, 2, CLOSE, 3], True, [1, 1, 1, 0], False),
        ([1, 2, 3], True, [1, 1, 1], True),
        ([1, OPEN, 2], False, [0, 1, 1], True),
        ([1, 2, 3], False, [0, 0, 0], False),
        ([CLOSE, 1, OPEN, 2, CLOSE, CLOSE], False, [0, 0, 1, 1, 1, 0], False),
        ([1, 2, CLOSE, 3], False, [0, 0, 0, 0], False),
        ([OPEN, 1, CLOSE, 2], True, [1, 1, 1, 0], False),
    ],
)
def test_thought_is_found_in_each_turn(
    tokens: list[int], opened: bool, expected: list[int], unclosed: bool
) -> None:
    assert marks(tokens, opened, Thinking(spell)) == (expected, unclosed)


def tokenizers() -> dict[str, PreTrainedTokenizerFast]:
    """Tags as tokens of their own, as several, and as parts of tokens that hold more."""
    return {
        "own": build(SPECIAL["qwen3"], None, ["<think>", "</think>"]),
        "several": build(SPECIAL["qwen3"], None, []),
        "merged": build(SPECIAL["qwen3"], None, ["><", ">\n", ".<", "think>a", "></"]),
    }


TOKENIZERS = tokenizers()


def thinking(name: str) -> Thinking:
    """How a tokenizer's text is read."""
    tokenizer = TOKENIZERS[name]
    control = [tokenizer.get_vocab()[token] for token in SPECIAL["qwen3"]]
    return Thinking(lambda tokens: str(tokenizer.decode(list(tokens))), frozenset(control))


pieces = st.sampled_from(
    ["<think>", "</think>", "a", ".", "\n", " é", "\U0001f600", "<", ">", "</"]
)


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=150, deadline=None)
@given(text=st.lists(pieces, max_size=24).map("".join), opened=st.booleans())
def test_the_marks_are_those_of_the_characters(name: str, text: str, opened: bool) -> None:
    """The oracle is what the tokenizer itself says of each token's place in the text."""
    tokenizer = TOKENIZERS[name]
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    start = 0 if opened else text.find("<think>")
    closing = text.find("</think>", start)
    end = len(text) if closing < 0 else closing + len("</think>")
    expected = [int(start >= 0 and a < end and b > start) for a, b in encoded["offset_mapping"]]
    found, unclosed = marks(list(encoded["input_ids"]), opened, thinking(name))
    assert found == expected
    assert unclosed == (start >= 0 and closing < 0)


def test_a_long_text_is_decoded_a_few_times_only() -> None:
    decoded = []

    def decode(tokens: Sequence[int]) -> str:
        decoded.append(len(tokens))
        return spell(tokens)

    assert find_tag([1] * 4000 + [CLOSE, 1], "</think>", Thinking(decode)) == (4000, 4001)
    assert sum(decoded) < 4 * 4002


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize(
    ("question", "generation", "opened"),
    [
        ("hello", "<think>\n", True),
        ("hello", "", False),
        ("hello", "<think>\n\n</think>\n\n", False),
        ("Write <think> first.", "", False),
        ("Close with </think>.", "<think>\n", True),
    ],
)
def test_a_prompt_is_open_only_where_its_generation_prompt_opens(
    name: str, question: str, generation: str, opened: bool
) -> None:
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{generation}"
    context = TOKENIZERS[name].encode(text, add_special_tokens=False)
    assert ends_open(context, thinking(name)) == opened
