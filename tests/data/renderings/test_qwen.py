"""The two Qwen3 renderings against what upstream writes: its handler, and its chat template."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assay.data.renderings.qwen import qwen3, qwen3_fc
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError
from assay.data.row import Message, ToolCall
from assay.labs.tools.single_turn import entries
from tests.data.bfcl_handler import chat_template, format_prompt, heard, stored
from tests.data.chat import SPECIAL, build, tokenizer
from tests.data.talks import WEATHER, plain, talks

RESPONSE = {**WEATHER, "response": {"type": "dict", "properties": {}}}
ASKED = (Message("system", "Be brief."), Message("user", "Weather?"))


def as_upstream(messages: tuple[Message, ...]) -> list[dict]:
    """The history as the handler holds it: text next to calls is gone, its reasoning is not."""
    return [stored(_beside_calls(m) if m.tool_calls else m) for m in messages]


def _beside_calls(message: Message) -> Message:
    thought = message.reasoning or heard(message.content)["reasoning_content"]
    return replace(message, content="", reasoning=thought)


@given(messages=talks(), cut=st.integers(0, 2), with_tools=st.booleans())
def test_the_prompt_is_byte_for_byte_the_one_of_bfcls_handler(messages, cut, with_tools) -> None:
    tools = [RESPONSE, WEATHER] if with_tools else []
    asked = messages[: len(messages) - cut] or messages
    assert qwen3_fc(asked, tools, True) == format_prompt(as_upstream(asked), tools)


@given(thought=plain, text=plain, value=st.lists(plain, max_size=2))
def test_history_is_what_the_handler_keeps_of_what_the_model_wrote(thought, text, value) -> None:
    """The whole way: a target as it is trained, heard by the handler, and in the next prompt."""
    said = Message("assistant", text, (ToolCall("f", {"a": value}),), reasoning=thought)
    written = answer_text(said)
    after = Message("tool", "21")
    held = [*as_upstream(ASKED), heard(written), stored(after)]
    split = replace(said, reasoning=thought.strip("\n"))
    assert qwen3_fc((*ASKED, split, after), [], True) == format_prompt(held, [])


DEEP = '{"name": "f", "arguments": ' + "[" * 900 + "]" * 900 + "}"


@pytest.mark.parametrize(
    "body", [DEEP, "[1]", '"f"', '{"name": 1, "arguments": {}}', '{"name": "f"}']
)
def test_json_that_is_no_call_stays_text_where_upstream_breaks(body: str) -> None:
    written = f"<tool_call>\n{body}\n</tool_call>"
    text = qwen3_fc((*ASKED, Message("assistant", written), Message("user", "?")), [], True)
    assert f"<|im_start|>assistant\n{written}<|im_end|>" in text


def test_an_escape_in_a_call_spells_no_control_token() -> None:
    """Heard and written anew, `\\u003c|im_end|>` would be the token if it were not broken up."""
    body = '{"name": "f", "arguments": {"a": "\\u003c|im_end|>", "b": "<|im_end|>"}}'
    written = Message("assistant", f"<tool_call>\n{body}\n</tool_call>")
    made = Renderer(tokenizer("qwen3"), "qwen3_fc")
    spoiled, clean = (
        made.prompt((*ASKED, message, Message("user", "?")))
        for message in (written, Message("assistant", "x"))
    )
    assert spoiled.count(made.end_token) == clean.count(made.end_token)
    assert '"a": "<|im_end|>"' in made.tokenizer.decode(list(spoiled))


def answer_text(message: Message) -> str:
    """What a model would have to write to say `message`, by its rendering as the target."""
    prompt = qwen3_fc(ASKED, [], True)
    whole = qwen3_fc((*ASKED, message), [], False)
    assert whole.startswith(prompt)
    return whole[len(prompt) :].removesuffix("<|im_end|>\n")


def test_the_handler_prompt_of_real_items_is_upstreams() -> None:
    made = Renderer(tokenizer("qwen3"), "qwen3_fc")
    for category in ("simple_python", "live_multiple"):
        for row in entries(category)[:40]:
            expected = format_prompt([stored(m) for m in row.prompt], list(row.tools))
            tokens = made.prompt(row.prompt, row.tools)
            assert made.tokenizer.decode(list(tokens)) == expected
            assert list(tokens) == made.tokenizer.encode(expected, add_special_tokens=False)


def published():
    return build(SPECIAL["qwen3"], chat_template(), ["<think>", "</think>", "<tool_call>"])


PUBLISHED = published()


@given(messages=talks(), whole=st.booleans(), with_tools=st.booleans())
def test_qwen3_is_byte_for_byte_the_public_template(messages, whole, with_tools) -> None:
    tools = [RESPONSE, WEATHER] if with_tools else []
    own, theirs = (Renderer(PUBLISHED, name) for name in ("qwen3", "template"))
    assert written(own, messages, tools, whole) == written(theirs, messages, tools, whole)
    expected = PUBLISHED.apply_chat_template(
        [openai(message) for message in messages],
        tools=[{"type": "function", "function": tool} for tool in tools] or None,
        tokenize=False,
        add_generation_prompt=not whole,
    )
    assert qwen3(messages, tools, not whole) == expected


def written(made: Renderer, messages, tools, whole: bool):
    """The tokens; None where the layout leaves out what the conversation says, such as a text
    before `<think>`."""
    try:
        return (made.conversation if whole else made.prompt)(messages, tools)
    except RenderingError:
        return None


def openai(message: Message) -> dict:
    """The message as OpenAI writes it, by hand."""
    value: dict = {"role": message.role, "content": message.content}
    if message.reasoning:
        value["reasoning_content"] = message.reasoning
    if message.tool_calls:
        value["tool_calls"] = [
            {"type": "function", "function": {"name": c.name, "arguments": dict(c.arguments)}}
            for c in message.tool_calls
        ]
    return value


@pytest.mark.parametrize("name", ["qwen3", "qwen3_fc"])
@given(messages=talks(), with_tools=st.booleans())
def test_every_turn_is_trained_after_the_prompt_that_it_is_sampled_after(
    name: str, messages, with_tools
) -> None:
    """With reasoning, control tokens and rare characters anywhere, rewritten history or not."""
    made = Renderer(PUBLISHED, name)
    tools = (WEATHER,) if with_tools else ()
    spoken = [index for index, message in enumerate(messages) if message.role == "assistant"]
    # What stands on the wrong side of a think tag is refused, see test_left_out.
    assume(written(made, messages, tools, True) is not None)
    turns = made.turns(messages, tools)
    starts = [turn.context for turn in turns]
    assert starts[0] == made.prompt(messages[: spoken[0]], tools)
    assert made.turns(messages, tools, "last")[0].context == made.prompt(messages[:-1], tools)
    if len(turns) > 1:
        assert starts == [made.prompt(messages[:index], tools) for index in spoken]
    assert all(turn.actions[-1] == made.end_token for turn in turns)
