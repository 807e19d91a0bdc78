"""Plain messages become the tokens of a rendering in a template that is given no tools."""

from dataclasses import replace
from typing import Any

import pytest

from assay.data.formats.plain_text import PlainText
from assay.data.renderings.template import RenderingError
from assay.data.row import Message, Row, ToolCall
from tests.data.bfcl_handler import chat_template, format_prompt, stored
from tests.data.chat import SPECIAL, build, tokenizer
from tests.data.talks import WEATHER
from tests.lab.tool_lab import PREFILLED

HYBRID = chat_template()
THINKING = HYBRID.replace("{{- '<|im_start|>assistant\\n' }}", PREFILLED)
CALL = ToolCall("get_weather", {"city": "Zürich"})
TALK = (
    Message("user", "Hello.\n"),
    Message("assistant", "Hi.", reasoning="Greet."),
    Message("user", "Weather?"),
    Message("assistant", "", (CALL, CALL), reasoning="Look."),
    Message("tool", "21"),
    Message("tool", "22"),
    Message("assistant", "It is 21.", reasoning="Done."),
)
WORDS = ["<think>", "</think>", "<tool_call>"]


def talk(system: str | None, *more: Message) -> Row:
    head = () if system is None else (Message("system", system),)
    return Row("r", (*head, *TALK, *more), (WEATHER,))


def openai(row: Row) -> list[dict]:
    return [
        {**value, "tool_calls": [{"function": call} for call in value.get("tool_calls", [])]}
        for value in map(stored, row.prompt)
    ]


def written(text: PlainText, messages: tuple[Message, ...]) -> str:
    """What the model's own template makes of plain messages, without tools."""
    values = [{"role": m.role, "content": m.content} for m in messages]
    return text.tokenizer.apply_chat_template(values, add_generation_prompt=True, tokenize=False)


@pytest.mark.parametrize("system", [None, "", "Be brief."])
@pytest.mark.parametrize("template", [HYBRID, THINKING])
def test_the_model_is_asked_what_its_template_asks_with_the_rows_tools(template, system) -> None:
    own = build(SPECIAL["qwen3"], template, WORDS)
    row, text = talk(system), PlainText("template", own)
    tools: Any = [{"type": "function", "function": WEATHER}]
    expected = own.apply_chat_template(
        openai(row), tools=tools, add_generation_prompt=True, tokenize=False
    )
    plain = text.prompt(row)
    assert written(text, plain) == expected and {m.role for m in plain} == {"system", "user"}


@pytest.mark.parametrize("system", [None, "Be brief."])
@pytest.mark.parametrize("own", [None, build(SPECIAL["qwen3"], HYBRID, WORDS)])
def test_bfcls_prompt_needs_no_model_to_be_written(own, system) -> None:
    row, text = talk(system), PlainText("qwen3_fc", own)
    expected = format_prompt([stored(m) for m in row.prompt], list(row.tools))
    assert written(text, text.prompt(row)) == expected


@pytest.mark.parametrize("own", [None, build(SPECIAL["qwen3"], HYBRID, WORDS)])
@pytest.mark.parametrize("where", ["message", "tool", "call"])
def test_a_control_token_that_a_row_spells_is_refused(own, where) -> None:
    spelled, row = "<|im_end|>", talk(None)
    if where == "message":
        row = talk(f"Say {spelled}.")
    elif where == "tool":
        row = replace(row, tools=({**WEATHER, "description": spelled},))
    else:
        called = replace(TALK[3], tool_calls=(ToolCall("f", {"a": spelled}),))
        row = replace(row, messages=(*TALK[:3], called, *TALK[4:]))
    with pytest.raises(RenderingError, match="the tokens of 'qwen3' cannot be had of plain"):
        PlainText("qwen3", own).prompt(row)


def test_text_that_the_models_template_would_add_is_refused() -> None:
    # SmolLM2's kind of template begins with a system text of its own.
    text = PlainText("qwen3", tokenizer("chatml"))
    assert text.prompt(talk("Be brief."))[0].role == "system"
    with pytest.raises(RenderingError, match="cannot be had of plain messages"):
        text.prompt(Row("r", (Message("user", "Hello."),)))


@pytest.mark.parametrize(
    ("template", "opened"), [(HYBRID, []), (THINKING, [("assistant", "<think>\n", False)])]
)
def test_a_sequence_trains_its_answer_alone(template: str, opened: list) -> None:
    """What the template writes for the assistant is a message that is not trained."""
    text = PlainText("template", build(SPECIAL["qwen3"], template, WORDS))
    row = replace(talk(None), messages=TALK[:2])
    (turn,) = text.renderer.turns(row.messages, row.tools)
    trained = text.decode(turn.actions).removesuffix("<|im_end|>")
    system, question, *said = text.conversation(row)
    assert (system.role, question.content) == ("system", "Hello.\n")
    assert [(m.role, m.content, m.loss) for m in said] == [*opened, ("assistant", trained, True)]


def test_answers_of_one_sequence_stand_apart_and_what_lies_between_is_asked() -> None:
    text = PlainText("qwen3_fc", build(SPECIAL["qwen3"], HYBRID, WORDS))
    said = (
        Message("user", "a"),
        Message("assistant", "b"),
        Message("user", "c"),
        Message("assistant", "d", loss=False),
        Message("user", "e"),
        Message("assistant", "f"),
    )
    between = "c<|im_end|>\n<|im_start|>assistant\nd<|im_end|>\n<|im_start|>user\ne"
    assert [(m.role, m.content) for m in text.conversation(Row("r", said))] == [
        *(("user", "a"), ("assistant", "b"), ("user", between), ("assistant", "f"))
    ]
    assert text.sequences(Row("r", said)) == 1 and text.sequences(talk(None)) == 3
