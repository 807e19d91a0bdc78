"""Runs that share their work write what a template writes of each beginning, or are not used."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.renderings import prefixes as proof
from assay.data.renderings.prefixes import beginnings
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError, apply_template
from assay.data.row import Message
from tests.data.bfcl_handler import chat_template, trl_templates
from tests.data.chat import CHATML, LLAMA, QWEN3, SPECIAL, build
from tests.data.talks import WEATHER, talks

SAY = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
ASK = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
LOOP = "{% for m in messages %}" + SAY
WATCHED = {
    "chatml": CHATML,
    "llama": LLAMA,
    "qwen3": QWEN3,
    "an end": LOOP + "{% endfor %}" + ASK + "{% if not add_generation_prompt %}#{% endif %}",
    "set before": "{% set x = messages[-1].role %}" + LOOP + "{{ x }}{% endfor %}{{ x }}" + ASK,
    "the first of the rest": "{% set rest = messages[1:] %}{{ messages[0].content }}"
    "{% for m in rest %}" + SAY + "{{ rest[loop.index0 - 1].role }}{% endfor %}" + ASK,
    "an inner loop": LOOP + "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}"
    "{% if not loop.last %},{% endif %}{% endfor %}{% endfor %}" + ASK,
    "an answer's marks": "{% for m in messages %}<|im_start|>{{ m.role }}\n{% generation %}"
    "{{ m.content }}<|im_end|>\n{% if loop.last %}!{% endif %}{% endgeneration %}{% endfor %}"
    + ASK,
    "continue": "{% for m in messages %}{% if m.role == 'tool' %}T{{ m.content }}{% continue %}"
    "{% endif %}" + SAY + "{% endfor %}" + ASK,
    "places": LOOP + "{{ loop.index }}{% if loop.nextitem %}"
    "{{ loop.nextitem.role }}{% endif %}{% if loop.previtem %}{{ loop.previtem.role }}{% endif %}"
    "{{ loop['length'] }}{% endfor %}" + ASK,
    "written before": "{% set y = messages[1] %}{% if y %}{{ y.role }}"
    "{% if add_generation_prompt %}>{% endif %}{% for t in tools or [] %}{% set f = t.function %}"
    "{{ f.name }}{{ messages[-1].role }}{% endfor %}{% endif %}"
    "{% if messages[2] %}{% set y = 1 %}{% endif %}{{ y }}" + LOOP + "{% endfor %}" + ASK,
    "one ahead": LOOP + "{{ (messages[loop.index0 + 1] or m).role }}{% endfor %}" + ASK,
    "the last one": LOOP + "{{ messages[-1].content }}{% endfor %}" + ASK,
    "the count": "{{ messages | length }}" + LOOP + "{{ messages | length }}{% endfor %}" + ASK,
    "all within": LOOP + "{% for n in messages %}{{ loop.last }}{% endfor %}{% endfor %}" + ASK,
    "all within a filter": LOOP + "{{ messages | map(attribute='role') | join }}{% endfor %}" + ASK,
    "remembered": "{% set n = namespace(r='', k=[], c=0) %}{% set o = n %}" + LOOP + "{{ n.k }}"
    "{{ o.r }}{% set n.r = m.role %}{% set n.k = n.k + [n.c] %}"
    "{% if m.role == 'user' %}{% set n.c = n.c + 1 %}{% endif %}{% endfor %}{{ o.r }}{{ n.c }}"
    + ASK,
    "compared": "{% set n = namespace(least=messages | length // 2, x=none) %}"
    + LOOP
    + "{% if n.least < loop.index0 %}<{% elif 1 == n.least %}={% endif %}"
    "{% if n.x == 1 %}!{% endif %}{% if loop.index == 3 %}{% set n.x = 1 %}{% endif %}{% endfor %}"
    + ASK,
    "a macro": "{% set n = namespace(a=0) %}{% macro f(x) %}{% set n.a = n.a + 1 %}{{ n.a }}{{ x }}"
    "{{ messages[-1].role }}{{ add_generation_prompt }}{% endmacro %}"
    + LOOP
    + "{{ f(loop.last) }}{% endfor %}{{ f(1) }}"
    + ASK,
    "read behind": LOOP + "{% endfor %}{% if add_generation_prompt and messages[-1].role != 'tool' "
    "%}<|im_start|>assistant\n{% endif %}",
    "the prompt within": LOOP + "{% if add_generation_prompt %}~{% endif %}{% endfor %}" + ASK,
    "two loops": LOOP + "{{ loop.last }}{% endfor %}" + LOOP + "{{ loop.first }}{% endfor %}" + ASK,
    "forgets thoughts": "{% for m in messages %}{% if loop.last or m.role != 'assistant' %}"
    + SAY
    + "{% else %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] | trim }}<|im_end|>\n"
    "{% endif %}{% endfor %}" + ASK,
    "drops the oldest": "{% for m in messages %}{% if loop.length - loop.index0 < 4 %}"
    + SAY
    + "{% endif %}{% endfor %}"
    + ASK,
    "tools late": LOOP + "{% if loop.last %}{{ tools | tojson }}{% for t in tools or [] %}"
    "{{ t | tojson(indent=1) }}{{ t.function | tojson }}{{ t }}{% for n in [1, 1.0, true, t] %}"
    "{{ {'n': n, 'f': t} | tojson }}{{ {'f': t, 'n': n} | tojson }}{% endfor %}"
    "{% endfor %}{% endif %}{% endfor %}" + ASK,
}
REFUSED = {
    "the list": LOOP + "{{ (messages | string)[-9:-3] }}{% endfor %}" + ASK,
    "a slice": "{% for m in messages[:-1] %}" + SAY + "{% endfor %}{{ messages[-1].content }}"
    "<|im_end|>" + ASK,
    "backwards": "{% for m in messages | reverse %}" + SAY + "{% endfor %}" + ASK,
    "a macro for some": "{% if messages[2] %}{% macro f(x) %}!{% endmacro %}{% endif %}"
    + LOOP
    + "{{ f is defined }}{% endfor %}"
    + ASK,
    "a method": LOOP + "{{ messages.append is defined }}{% endfor %}" + ASK,
    "changed": LOOP + "{{ loop.changed(m.role) }}{% endfor %}" + ASK,
    "stopped": LOOP + "{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}" + ASK,
    "chosen": "{% for m in messages if m.role != 'tool' %}" + SAY + "{% endfor %}" + ASK,
    "in a block": "{% set t %}" + LOOP + "{% endfor %}{% endset %}{{ t }}" + ASK,
    "kept messages": "{% set n = namespace(r=[]) %}" + LOOP + "{{ n.r | length }}"
    "{% set n.r = messages[1:] %}{% endfor %}" + ASK,
    "kept messages, read behind": "{% set n = namespace(r=[]) %}"
    + LOOP
    + "{% set n.r = messages[1:] %}{% endfor %}{{ n.r | length }}"
    + ASK,
    "kept place": "{% set n = namespace(r=0) %}" + LOOP + "{{ n.r.last }}{% set n.r = loop %}"
    "{% endfor %}" + ASK,
    "a namespace in another": "{% set n = namespace(r=0) %}"
    + LOOP
    + "{% if loop.first %}{% set n.r = namespace(a=0) %}{% endif %}{% set o = n.r %}"
    "{% set o.a = o.a + 1 %}{{ o.a }}{% endfor %}" + ASK,
    "a generator": "{% set g = messages | map(attribute='role') %}" + LOOP + "{{ g | first }}"
    "{% endfor %}" + ASK,
}
TALK = (
    Message("user", "a"),
    Message("assistant", "b"),
    Message("user", "c"),
    Message("assistant", "<think>x</think>d"),
    Message("user", "e"),
    Message("assistant", "f"),
)


def made(source: str) -> Any:
    """A tokenizer with this template."""
    tokenizer = build(SPECIAL["llama" if source == LLAMA else "chatml"], source, [])
    tokenizer.eos_token = "<|eot|>" if source == LLAMA else "<|im_end|>"
    return tokenizer


TOKENIZERS = {name: made(source) for name, source in (WATCHED | REFUSED).items()}
ORDERS = ((1, 2, 3, 4, 5, 6), (6, 5, 4, 3, 2, 1), (3, 6, 2, 6, 3, 5, 4, 1))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", WATCHED)
def test_runs_that_share_their_work_write_what_each_writes_alone(
    name: str, order: tuple[int, ...]
) -> None:
    tokenizer, source = TOKENIZERS[name], WATCHED[name]
    write = beginnings(tokenizer, source, TALK, [WEATHER])
    assert write is not None
    for k in order:
        for generation in (True, False):
            alone = apply_template(tokenizer, source, TALK[:k], [WEATHER], generation)
            assert write(k, generation) == alone


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_cannot_be_watched_is_run_for_each_beginning(name: str) -> None:
    write = beginnings(TOKENIZERS[name], REFUSED[name], TALK, [])
    if write is not None:
        with pytest.raises(TypeError):
            [write(k, False) for k in (2, 4, 6)]


def test_a_step_is_run_again_only_where_something_that_it_read_has_changed() -> None:
    asked: list[str] = []

    class Noted(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            asked.append(name)
            return super().__getitem__(name)

    with pytest.MonkeyPatch.context() as patch:
        dumped = proof.template_messages
        patch.setattr(proof, "template_messages", lambda m: [*map(Noted, dumped(m))])
        write = beginnings(TOKENIZERS["qwen3"], QWEN3, TALK * 5, [])
        assert write is not None
        for k in range(1, 31):
            write(k, False)
    # The loop's body reads an answer's content once as the last message, and once before a later
    # question; what goes before the loop reads that of questions.
    assert asked.count("reasoning_content") <= 2 * 15


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
        patch.setattr(proof, "beginnings", lambda *_: None)
        assert found == outcome(renderer, messages, tools, prompt)
