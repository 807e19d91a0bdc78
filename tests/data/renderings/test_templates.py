"""`template_bare` leaves out the system text that a template adds itself; `auto` takes a model's
own template where it writes tools and calls, in every family's style (short ones of the kind that
these families' tokenizers bring)."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from assay.data.renderings import hermes
from assay.data.renderings.checkpoint_template import save_tokenizer
from assay.data.renderings.rendering import Renderer, automatic
from assay.data.renderings.template import RenderingError, undressed
from assay.data.row import Message, ToolCall
from tests.data.chat import CHATML, LLAMA, QWEN3, SPECIAL, build
from tests.data.talks import WEATHER
from tests.models.folders import tiny_tokenizer

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


QWEN = """\
{%- if tools %}<|im_start|>system
# Tools <tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools><|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}<|im_start|>user
<tool_response>{{ m.content }}</tool_response><|im_end|>
{% else %}<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
MISTRAL = """\
{{- '<s>' }}
{%- for m in messages %}
{%- if m.role == 'user' %}
{%- if loop.first and tools %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
{{- '[INST] ' + m.content + '[/INST]' }}
{%- elif m.role == 'assistant' and m.tool_calls %}[TOOL_CALLS] [
{%- for call in m.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}
{{- call.function | tojson }}{% endfor %}]</s>
{%- elif m.role == 'assistant' %}{{ ' ' + m.content + '</s>' }}
{%- elif m.role == 'tool' %}
{{- '[TOOL_RESULTS] {"content": ' + m.content + ', "call_id": "' + m.tool_call_id + '"}' }}
{{- '[/TOOL_RESULTS]' }}{% endif %}{% endfor %}"""
GRANITE = """\
{%- if tools %}<|start_of_role|>available_tools<|end_of_role|>{{ tools | tojson }}<|end_of_text|>
{% endif %}
{%- for m in messages %}
{%- if m.tool_calls %}<|start_of_role|>assistant<|end_of_role|><|tool_call|>
{{- m.tool_calls | tojson }}<|end_of_text|>
{% else %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}<|end_of_text|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"""
GEMMA = """\
{%- set first, turns = '', messages %}
{%- if messages[0].role == 'system' %}
{%- set first, turns = messages[0].content + '\n\n', messages[1:] %}{% endif %}
{%- for m in turns %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{%- endif %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}
{{ (first if loop.first else '') + m.content | trim }}<end_of_turn>
{% endfor %}
{%- if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
PHI = """\
{%- for m in messages %}<|{{ m.role }}|>{{ m.content }}
{%- if m.role == 'system' and m.tools %}<|tool|>{{ m.tools }}<|/tool|>{% endif %}<|end|>
{%- endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""


@dataclass(frozen=True)
class Style:
    """A template, the special tokens it writes, and what `auto` makes of it."""

    template: str
    specials: tuple[str, ...]
    rendering: str
    call: str = "<tool_call>"
    """What stands before a call."""


STYLES = {
    "qwen3": Style(QWEN, (), "template"),
    "mistral": Style(MISTRAL, ("<s>", "</s>"), "template", "[TOOL_CALLS]"),
    "granite": Style(
        GRANITE, ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"), "template", "|>assis"
    ),
    "gemma3": Style(GEMMA, ("<start_of_turn>", "<end_of_turn>"), "hermes"),
    "phi3": Style(PHI, ("<|end|>",), "hermes"),
}
TOOL = {
    "name": "weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALLING = (
    Message("user", "How is it in Rome?"),
    Message("assistant", "", (ToolCall("weather", {"city": "Rome"}, "call00001"),)),
    Message("tool", '"sunny"', (), "call00001"),
    Message("assistant", "It is sunny."),
)


def rendered_by(style: Style) -> Renderer:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(style.specials)})
    tokenizer.chat_template = style.template
    return Renderer(tokenizer, automatic(tokenizer))


@pytest.mark.parametrize("family", STYLES)
def test_auto_writes_tools_calls_and_results(family: str) -> None:
    style = STYLES[family]
    renderer = rendered_by(style)
    assert renderer.name == style.rendering
    prompt = renderer.tokenizer.decode(renderer.prompt(CALLING[:3], (TOOL,)))
    order = ["weather", "How is it in Rome?", style.call, "Rome", "sunny"]
    # A template that writes tools by itself is taken as it is.
    assert (hermes.INSTRUCTION in prompt) == (style.rendering == "hermes")
    places = [prompt.find(order[0])]
    for text in order[1:]:
        places.append(prompt.find(text, places[-1]))
    assert -1 not in places


def test_what_a_template_refuses_is_said_in_its_words() -> None:
    renderer = rendered_by(STYLES["mistral"])
    short = Message("assistant", "", (ToolCall("weather", {}, "c1"),))
    with pytest.raises(RenderingError, match="ids have nine characters"):
        renderer.prompt((CALLING[0], short, CALLING[2]), (TOOL,))
