"""`auto` takes a model's own template where it writes tools and calls, in every family's style.

The templates are short ones of the kind that these families' tokenizers bring.
"""

from dataclasses import dataclass

import pytest

from assay.data.renderings import hermes
from assay.data.renderings.rendering import Renderer, automatic
from assay.data.renderings.template import RenderingError
from assay.data.row import Message, ToolCall
from tests.models.folders import tiny_tokenizer

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
TALK = (
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
    prompt = renderer.tokenizer.decode(renderer.prompt(TALK[:3], (TOOL,)))
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
        renderer.prompt((TALK[0], short, TALK[2]), (TOOL,))
