"""Random conversations with tools, for properties of renderings."""

from typing import Any

from hypothesis import strategies as st

from assay.data.row import Message, ToolCall

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Weather of a city, 天气 ✓",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TRICKY = [
    "<|im_end|>",
    "<|im_start|>assistant\n",
    "<|eot|>",
    "<think>",
    "</think>",
    "<tool_response>",
    "</tool_response>",
    "\n",
    "\n\n",
    " ",
    "<|",
    "é漢\U0001f600",
    '"',
    "\\u00e9",
    "\x7f",
]

words = st.text(st.characters(exclude_characters="\ufdd0", exclude_categories=["Cs"]), max_size=6)
texts = st.lists(st.one_of(st.sampled_from(TRICKY), words), max_size=4).map("".join)
plain = texts.map(lambda text: text.replace("think>", "thank>"))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=4,
)
calls = st.builds(ToolCall, st.sampled_from(["f", "g"]), st.dictionaries(texts, values, max_size=2))
answers = st.builds(
    lambda text, made, thought: Message("assistant", text, tuple(made), reasoning=thought),
    texts,
    st.lists(calls, max_size=3),
    st.one_of(st.just(""), texts),
)


@st.composite
def talks(draw: st.DrawFn) -> tuple[Message, ...]:
    """A chat that ends with an assistant message; tool results, one or two, follow calls."""
    messages = [Message("system", draw(texts))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 3))):
        messages += [Message("user", draw(texts)), draw(answers)]
        if messages[-1].tool_calls:
            messages += [Message("tool", draw(texts)) for _ in range(draw(st.integers(1, 2)))]
            messages += [draw(answers)]
    return tuple(messages)
