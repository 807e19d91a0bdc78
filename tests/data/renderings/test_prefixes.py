"""One run of a template proves what it writes of a conversation's beginnings, or is not used."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.renderings import prefixes as proof
from assay.data.renderings.prefixes import prefixes
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError, apply_template
from assay.data.row import Message
from tests.data.bfcl_handler import chat_template, trl_templates
from tests.data.chat import CHATML, LLAMA, QWEN3, SPECIAL, build
from tests.data.talks import WEATHER, talks

SAY = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
ASK = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
LOOP = "{% for m in messages %}" + SAY
PROVEN = {
    "chatml": CHATML,
    "llama": LLAMA,
    "an end": LOOP + "{% endfor %}" + ASK + "{% if not add_generation_prompt %}#{% endif %}",
    "set before": "{% set x = 'a' %}" + LOOP + "{% endfor %}{{ x }}" + ASK,
    "the first of the rest": "{% set rest = messages[1:] %}{{ messages[0].content }}"
    "{% for m in rest %}" + SAY + "{% endfor %}" + ASK,
    "an inner loop": LOOP + "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}"
    "{% if not loop.last %},{% endif %}{% endfor %}{% endfor %}" + ASK,
    "an answer's marks": "{% for m in messages %}<|im_start|>{{ m.role }}\n{% generation %}"
    "{{ m.content }}<|im_end|>\n{% endgeneration %}{% endfor %}" + ASK,
    "continue": "{% for m in messages %}{% if m.role == 'tool' %}T{{ m.content }}{% continue %}"
    "{% endif %}" + SAY + "{% endfor %}" + ASK,
}
UNPROVEN = {
    "qwen3": QWEN3,
    "last": LOOP + "{% if loop.last %}!{% endif %}{% endfor %}" + ASK,
    "next": LOOP + "{% if loop.nextitem is defined %}+{% endif %}{% endfor %}" + ASK,
    "quoted": LOOP + "{{ loop['length'] }}{% endfor %}" + ASK,
    "one ahead": LOOP + "{{ messages[loop.index0 + 1].role }}{% endfor %}" + ASK,
    "the last one": LOOP + "{{ messages[-1].content }}{% endfor %}" + ASK,
    "the count": "{{ messages | length }}" + LOOP + "{% endfor %}" + ASK,
    "all within": LOOP + "{% for n in messages %}.{% endfor %}{% endfor %}" + ASK,
    "all within a filter": LOOP + "{{ messages | map(attribute='role') | join }}{% endfor %}" + ASK,
    "the list": LOOP + "{{ (messages | string)[-9:-3] }}{% endfor %}" + ASK,
    "a slice": "{% for m in messages[:-1] %}" + SAY + "{% endfor %}{{ messages[-1].content }}"
    "<|im_end|>" + ASK,
    "remembered": "{% set n = namespace(r='') %}" + LOOP + "{% set n.r = m.role %}{% endfor %}"
    "{{ n.r }}" + ASK,
    "by another name": "{% set n = namespace(r='') %}{% set o = n %}"
    + LOOP
    + "{% set n.r = m.role %}{% endfor %}{{ o.r }}"
    + ASK,
    "read behind": LOOP + "{% endfor %}{% if add_generation_prompt and messages[-1].role != 'tool' "
    "%}<|im_start|>assistant\n{% endif %}",
    "the prompt within": LOOP + "{% if add_generation_prompt %}~{% endif %}{% endfor %}" + ASK,
    "stopped": LOOP + "{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}" + ASK,
    "two loops": LOOP + "{% endfor %}" + LOOP + "{% endfor %}" + ASK,
    "chosen": "{% for m in messages if m.role != 'tool' %}" + SAY + "{% endfor %}" + ASK,
    "in a block": "{% set t %}" + LOOP + "{% endfor %}{% endset %}{{ t }}" + ASK,
}
TALK = (
    Message("user", "a"),
    Message("assistant", "b"),
    Message("user", "c"),
    Message("assistant", "d"),
)


def made(source: str) -> Any:
    """A tokenizer with this template."""
    tokenizer = build(SPECIAL["llama" if source == LLAMA else "chatml"], source, [])
    tokenizer.eos_token = "<|eot|>" if source == LLAMA else "<|im_end|>"
    return tokenizer


TOKENIZERS = {name: made(source) for name, source in (PROVEN | UNPROVEN).items()}


@pytest.mark.parametrize("name", PROVEN)
def test_what_is_proven_is_what_the_template_writes_of_every_beginning(name: str) -> None:
    tokenizer, source = TOKENIZERS[name], PROVEN[name]
    found = prefixes(tokenizer, source, TALK, [WEATHER])
    assert found is not None and {2, 3, 4} <= {*found.ends}
    for k, end in found.ends.items():
        for generation, behind in ((True, found.question), (False, found.end)):
            written = apply_template(tokenizer, source, TALK[:k], [WEATHER], generation)
            assert found.text[:end] + behind == written


@pytest.mark.parametrize("name", UNPROVEN)
def test_a_template_that_looks_ahead_proves_no_beginning(name: str) -> None:
    found = prefixes(TOKENIZERS[name], UNPROVEN[name], TALK, [])
    assert found is None or {*found.ends} == {len(TALK)}


def outcome(renderer: Renderer, messages: Any, tools: Any, prompt: bool) -> Any:
    """The rendered conversation or prompt, or the words of its refusal."""
    try:
        if prompt:
            return renderer.rendered_prompt(messages[:-1], tools)
        return renderer.conversation(messages, tools)
    except RenderingError as error:
        return str(error)


@given(
    name=st.sampled_from([*TOKENIZERS]),
    way=st.sampled_from(["template", "hermes", "template_bare"]),
    messages=talks(),
    tools=st.sampled_from([(), (WEATHER,)]),
    prompt=st.booleans(),
)
def test_bounds_are_those_of_renderings_of_each_beginning(
    name: str, way: str, messages: Any, tools: Any, prompt: bool
) -> None:
    same_as_each_beginning(Renderer(TOKENIZERS[name], way), messages, tools, prompt)


@given(data=st.data(), messages=talks(), way=st.sampled_from(["template", "hermes"]))
def test_bounds_are_the_same_with_every_template_that_others_ship(
    data: st.DataObject, messages: Any, way: str
) -> None:
    source = data.draw(st.sampled_from([chat_template(), *trl_templates().values()]))
    same_as_each_beginning(
        Renderer(made(source), way), messages, (WEATHER,), data.draw(st.booleans())
    )


def same_as_each_beginning(renderer: Renderer, messages: Any, tools: Any, prompt: bool) -> None:
    """With the proof and without it tokens, spans and refusals are the same."""
    found = outcome(renderer, messages, tools, prompt)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof, "prefixes", lambda *_: None)
        assert found == outcome(renderer, messages, tools, prompt)
