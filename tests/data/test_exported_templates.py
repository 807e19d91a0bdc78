"""Other programs write what Assay trains on, by the template that a checkpoint carries."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from assay.data.conversation import dump_messages
from assay.data.renderings.checkpoint_template import chat_template, save_tokenizer
from assay.data.renderings.rendering import Renderer, automatic
from assay.data.renderings.template import RenderingError
from assay.data.row import Message, ToolCall
from assay.data.tools import openai_tool
from tests.data.bfcl_handler import chat_template as published_template
from tests.data.bfcl_handler import trl_template
from tests.data.chat import QWEN3, SPECIAL, build, tokenizer
from tests.data.renderings.test_rendering import RENDERERS
from tests.data.talks import WEATHER, talks

EXPORTED = [*RENDERERS, ("chatml", "qwen3"), ("chatml", "qwen3_fc")]
SEARCH = {
    "name": "搜索",
    "description": 'It\'s a search; "quoted" \\ back',
    "parameters": {"type": "object", "properties": {"词": {"type": "string", "default": 1.5}}},
}
CALL = ToolCall("get_weather", {"city": "Zürich", "days": [1, 2.5, None, True]}, "call_1")
ASKED = (Message("system", "Be brief."), Message("user", "What is the weather in Zürich?"))
TALKS: dict[str, tuple[Message, ...]] = {
    "equal calls, two results": (
        *ASKED,
        Message("assistant", "", (CALL, CALL, ToolCall("f", {}))),
        Message("tool", "21"),
        Message("tool", "22"),
    ),
    "text next to calls": (
        *ASKED,
        Message("assistant", "I look.", (CALL,), reasoning="Look outside.\n"),
        Message("tool", "1"),
    ),
    "line ends before an answer": (
        *ASKED,
        Message("assistant", "\n\nSunny.", reasoning="Warm."),
        Message("user", "<tool_response>\n22\n</tool_response> so?"),
        Message("assistant", "\n\nNo.", reasoning="\nCold."),
        Message("tool", "1"),
    ),
    "中文": (
        Message("system", "请简短回答。"),
        Message("user", "苏黎世天气如何？"),
        Message("assistant", "", (ToolCall("搜索", {"词": "苏黎世 ☀"}),)),
        Message("tool", "晴，21度"),
    ),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """By style and rendering: the tokenizer of a checkpoint, loaded by Transformers alone."""
    found = {}
    for style, name in EXPORTED:
        folder = tmp_path_factory.mktemp(f"{style}-{name}")
        save_tokenizer(Renderer(tokenizer(style), name), folder)
        assert (folder / "chat_template.jinja").is_file()
        found[style, name] = AutoTokenizer.from_pretrained(folder)
    return found


def outside(theirs: Any, messages: Any, tools: Any, generation: bool, tokenize: bool) -> Any:
    """What somebody without Assay gets for OpenAI's messages and tools."""
    made = theirs.apply_chat_template(
        dump_messages(tuple(messages)),
        tools=[openai_tool(tool) for tool in tools] or None,
        add_generation_prompt=generation,
        tokenize=tokenize,
    )
    return made["input_ids"] if tokenize else made


def able(style: str, name: str, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The conversation without reasoning, where the template knows none."""
    if (style, name) != ("llama", "template"):
        return messages
    return tuple(replace(message, reasoning="") for message in messages)


@pytest.mark.parametrize("tools", [(), (WEATHER, SEARCH)], ids=["no tools", "tools"])
@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize(("style", "name"), EXPORTED)
def test_a_checkpoint_prompts_elsewhere_as_it_was_trained(
    saved: Any, style: str, name: str, talk: str, tools: tuple
) -> None:
    made, messages = Renderer(tokenizer(style), name), able(style, name, TALKS[talk])
    tokens = list(made.prompt(messages, tools))
    theirs = saved[style, name]
    assert outside(theirs, messages, tools, True, False) == theirs.decode(tokens)
    # The head of Llama's turns ends in line ends that its tokenizer joins with what follows.
    if style != "llama":
        assert outside(theirs, messages, tools, True, True) == tokens


@pytest.mark.parametrize(("style", "name"), EXPORTED)
@given(messages=talks(), whole=st.booleans(), with_tools=st.booleans())
def test_any_conversation_reads_elsewhere_as_it_does_here(
    saved: Any, style: str, name: str, messages: Any, whole: bool, with_tools: bool
) -> None:
    tools = (WEATHER, SEARCH) if with_tools else ()
    messages = able(style, name, messages if whole else messages[:-1])
    made = Renderer(tokenizer(style), name)
    try:
        written = (
            made.conversation(messages, tools).tokens if whole else made.prompt(messages, tools)
        )
    except RenderingError:  # what stands on the wrong side of a think tag
        return
    expected = made.tokenizer.decode(list(written))
    assert outside(saved[style, name], messages, tools, not whole, False) == expected


@pytest.mark.parametrize("published", [published_template, lambda: trl_template("qwen3")])
def test_a_template_that_writes_the_rendering_already_is_kept(published: Any) -> None:
    template = published()
    made = build(SPECIAL["qwen3"], template, ["<think>"])
    assert chat_template(Renderer(made, "qwen3")) == template
    assert chat_template(Renderer(made, "template")) == template
    assert chat_template(Renderer(made, "qwen3_fc")) != template
    assert chat_template(Renderer(tokenizer("qwen3"), "qwen3")) != QWEN3, "it has other words"


@pytest.mark.parametrize(("style", "name"), [("chatml", "hermes"), ("llama", "hermes")])
def test_a_run_that_starts_from_a_checkpoint_renders_as_one_that_starts_from_its_base(
    saved: Any, style: str, name: str
) -> None:
    base, child = Renderer(tokenizer(style), name), Renderer(saved[style, name], name)
    assert base.fingerprint == child.fingerprint
    assert automatic(child.tokenizer) == automatic(base.tokenizer)
    twice = chat_template(child)
    assert twice == chat_template(base)


def test_the_date_of_training_stands_unless_another_is_given(saved: Any) -> None:
    theirs, messages = saved["llama", "template"], [{"role": "user", "content": "a"}]
    assert "Today: 26 Jul 2024" in theirs.apply_chat_template(messages, tokenize=False)
    other = theirs.apply_chat_template(messages, tokenize=False, date_string="1 Jan 2030")
    assert "Today: 1 Jan 2030" in other
