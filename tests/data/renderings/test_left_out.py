"""What a rendered text leaves out is found and named; its spelling is the template's affair."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.renderings.left_out import left_out
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import RenderingError, template_messages
from assay.data.row import Message, ToolCall
from tests.data.bfcl_handler import trl_templates
from tests.data.chat import SPECIAL, build, tokenizer
from tests.data.talks import WEATHER

ASKED = Message("user", 'How "warm" is it\nin Köln?')
CALL = ToolCall("get_weather", {"city": 'K\\ö"ln', "days": 2, "exact": True, "unit": None}, "c1")
OTHER = ToolCall("get_weather", {"city": "Rom"}, "c2")
CALLED = Message("assistant", "I look <both> up.", (CALL, OTHER))
RESULTS = (Message("tool", '{"t": 1.5}', (), "c1"), Message("tool", "21", (), "c2"))
TALK = (Message("system", "Be brief."), ASKED, CALLED, *RESULTS, Message("assistant", "Rom."))


def in_json(messages: Any) -> str:
    return "\n".join(json.dumps(value) for value in template_messages(messages))


def in_xml(messages: Any) -> str:
    lines = []
    for message in messages:
        calls = "".join(
            f"<call>{c.name}" + "".join(f"<{k}>{v}</{k}>" for k, v in sorted(c.arguments.items()))
            for c in message.tool_calls
        )
        text = message.content.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        lines.append(f"{message.role}: {text}{calls}")
    return "\n".join(lines)


def in_python(messages: Any) -> str:
    lines = []
    for message in messages:
        calls = [(c.name, dict(c.arguments)) for c in message.tool_calls]
        lines.append(f"{message.role}: {message.content!r} {calls}")
    return "\n".join(lines)


def behind_the_results(messages: Any) -> str:
    """As Gemma 4 writes a turn: calls, their results, and then what was said beside the calls."""
    late = replace(messages[2], tool_calls=())
    return in_json((*messages[:2], replace(messages[2], content=""), *messages[3:5], late,
                    messages[5]))  # fmt: skip


@pytest.mark.parametrize("spell", [in_json, in_xml, in_python, behind_the_results])
def test_spelling_white_space_and_the_form_of_arguments_are_the_templates_affair(
    spell: Any,
) -> None:
    text = f"{json.dumps(WEATHER)}\n{spell(TALK)}"
    assert left_out(TALK, [WEATHER], text) is None
    padded = tuple(replace(m, content=f"\n {m.content} \n") for m in TALK)
    assert left_out(padded, [WEATHER], text) is None


@pytest.mark.parametrize(
    ("talk", "what"),
    [
        ((TALK[1:]), "the text of message 1 (system)"),
        ((*TALK[:2], replace(CALLED, content=""), *TALK[3:]), "the text of message 3 (assistant)"),
        ((*TALK[:2], replace(CALLED, tool_calls=(CALL,)), *TALK[3:]), "call 2 of message 3"),
        ((*TALK[:2], replace(CALLED, tool_calls=(CALL, replace(OTHER, arguments={}))), *TALK[3:]),
         "call 2 of message 3"),
        ((*TALK[:3], *TALK[4:2:-1], TALK[5]), "the text of message"),
        (TALK[:5], "the text of message 6 (assistant)"),
    ],
)  # fmt: skip
def test_what_is_missing_or_in_another_order_is_named(talk: Any, what: str) -> None:
    for spell in (in_json, in_xml, in_python):
        said = left_out(TALK, (), spell(talk))
        assert said is not None and said.startswith(what), (spell, said)


def test_words_that_stand_elsewhere_by_accident_do_not_count() -> None:
    repeated = (replace(TALK[0], content="Köln"), *TALK[1:])
    assert left_out(repeated, (), in_json(TALK[1:])) == "the text of message 1 (system)"
    # A tool that is described nowhere is not described by its calls.
    bare = {"name": "get_weather", "parameters": {"properties": {"city": {}}}}
    assert str(left_out(TALK, [bare], in_json(TALK))).startswith("tool 1 (get_weather)")
    # Nor is one hidden by a question that is a word of its description.
    asked = (Message("user", "city"), Message("assistant", "x"))
    assert left_out(asked, [WEATHER], f"{json.dumps(WEATHER)}\n{in_json(asked)}") is None


plain = st.text("abc \n\"'\\&<é漢\U0001f600{}", min_size=1, max_size=8).map(lambda t: f"q{t}z")


@given(texts=st.lists(plain, min_size=2, max_size=6, unique=True), data=st.data())
def test_any_text_of_any_signs_is_found_where_it_is_and_missed_where_not(
    texts: list[str], data: st.DataObject
) -> None:
    roles = ("user", "assistant")
    talk = tuple(Message(roles[i % 2], f"{i}:{text}:{i}") for i, text in enumerate(texts))
    gone = data.draw(st.integers(0, len(talk) - 1))
    for spell in (in_json, in_xml, in_python):
        assert left_out(talk, (), spell(talk)) is None
        rest = spell((*talk[:gone], *talk[gone + 1 :]))
        assert str(left_out(talk, (), rest)).startswith(f"the text of message {gone + 1} ")


MARKED: dict[str, Any] = {
    "name": "qtool",
    "description": "qdescribed",
    "parameters": {"type": "object", "properties": {"qkey": {"type": "string"}}},
}
QCALL = ToolCall("qtool", {"qkey": "qvalue"}, "call00001")
MARKED_TALKS = {
    "system": (Message("system", "qsystem"), Message("user", "qask"), Message("assistant", "qsay")),
    "call": (Message("user", "qask"), Message("assistant", "", (QCALL,))),
    "beside": (Message("user", "qask"), Message("assistant", "qbeside", (QCALL,))),
    "two": (
        Message("user", "qask"),
        Message("assistant", "", (QCALL, replace(QCALL, arguments={"qkey": "qother"}, id="call2"))),
    ),
    "result": (
        Message("user", "qask"),
        Message("assistant", "", (QCALL,)),
        Message("tool", "qresult", (), "call00001"),
        Message("assistant", "qsay"),
    ),
}


def transformers_text(made: Any, values: list[dict[str, Any]], tools: list[Any]) -> str | None:
    """What Transformers writes; None where the template fails."""
    try:
        return str(made.apply_chat_template(values, tools=tools, tokenize=False))
    except Exception:
        return None


@pytest.mark.parametrize("talk", MARKED_TALKS)
def test_every_template_of_trl_is_refused_exactly_where_words_are_missing(talk: str) -> None:
    """Transformers renders; words that stand nowhere else are looked for in its text."""
    messages = MARKED_TALKS[talk]
    values = template_messages(messages)
    tools: list[Any] = [{"type": "function", "function": MARKED}]
    words = {"qtool", "qdescribed", "qkey", *(m.content for m in messages if m.content)}
    words |= {v for m in messages for c in m.tool_calls for v in c.arguments.values()}
    refused = passed = 0
    for name, source in trl_templates().items():
        made = build(SPECIAL["chatml"], source, [])
        made.eos_token = "<|im_end|>"
        text = transformers_text(made, values, tools)
        if text is None:
            continue
        calls = sum(len(m.tool_calls) for m in messages)
        there = all(word in text for word in words) and text.count("qtool") > calls
        assert (left_out(messages, [MARKED], text) is None) == there, name
        passed, refused = passed + there, refused + (not there)
    assert passed and refused


NO_SYSTEM = (
    "{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("name", ["template", "template_bare", "hermes"])
def test_a_template_without_a_system_role_is_refused_in_prompts_and_in_training(name: str) -> None:
    made = Renderer(build(SPECIAL["chatml"], NO_SYSTEM, []), name)
    talk = (Message("system", "Be brief."), ASKED, Message("assistant", "Warm."))
    for render in (made.prompt, made.conversation, made.turns):
        given = talk[:2] if render == made.prompt else talk
        with pytest.raises(RenderingError, match=r"lacks the text of message 1 \(system\)"):
            render(given)
        render(given[1:])


def test_results_follow_their_calls_in_every_rendering() -> None:
    given = (*TALK[1:3], *RESULTS, Message("assistant", "Rom."))
    swapped = (*TALK[1:3], *RESULTS[::-1], Message("assistant", "Rom."))
    unnamed = (*TALK[1:3], replace(RESULTS[1]), replace(RESULTS[0], tool_call_id=""), given[-1])
    for name in ("template", "hermes", "qwen3", "qwen3_fc"):
        made = Renderer(tokenizer("qwen3"), name)
        assert made.conversation(swapped) == made.conversation(given) == made.conversation(unnamed)
