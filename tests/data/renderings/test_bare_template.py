"""`template_bare` writes what the template does, without the system text that it adds itself."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from assay.data.renderings.rendering import Renderer, save_tokenizer
from assay.data.renderings.template import RenderingError, undressed
from assay.data.row import Message
from tests.data.chat import CHATML, LLAMA, QWEN3, SPECIAL, build
from tests.data.talks import WEATHER

QWEN_MATH = """\
{%- set own = 'Please reason step by step, and put your final answer within \\\\boxed{}.' %}
{%- if messages[0].role == 'system' %}{% set own = messages[0].content %}{% endif %}
{{- '<|im_start|>system\\n' + own }}
{%- if tools %}{{- '\\n\\n# Tools\\n\\n' + tools | map('tojson') | join('\\n') }}{% endif %}
{{- '<|im_end|>\\n' }}
{%- for message in (messages[1:] if messages[0].role == 'system' else messages) %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
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
