"""Options reach the chat template as Transformers passes them, and leave with a checkpoint;
what each rendering does with reasoning."""

import copy
import re
from dataclasses import replace
from typing import Any

import pytest

from assay.data.episode import tokens_of
from assay.data.loaded import gather
from assay.data.renderings.checkpoint_template import chat_template
from assay.data.renderings.hermes import LEFT_OUT, without_reasoning
from assay.data.renderings.rendering import Renderer
from assay.data.renderings.template import (
    DATE,
    RenderingError,
    check_template,
    template_messages,
    undressed,
    with_options,
)
from assay.data.row import Message, Row, ToolCall
from assay.lab.check.rendering_mismatch import empties_thought
from tests.data.bfcl_handler import trl_template, trl_templates
from tests.data.chat import CHATML, SPECIAL, build, tokenizer
from tests.data.formats.test_plain_text import HYBRID, THINKING
from tests.few import few

ASKED = Message("user", "How warm is it?")
PLAIN = (ASKED, Message("assistant", "It is 4."))
THOUGHT = (ASKED, Message("assistant", "It is 4.", reasoning="I look."))
INLINE = (ASKED, Message("assistant", "<think>\nI look.\n</think>\n\nIt is 4."))
WORDS = ["<think>", "</think>"]
R1 = ["<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"]


def made(source: str | None, special: list[str] = SPECIAL["qwen3"]) -> Any:
    tokenizer = build(special, source, WORDS)
    tokenizer.eos_token = special[-1]
    return tokenizer


def told(tokenizer: Any, messages: Any, generation: bool, **options: Any) -> str:
    """What Transformers writes."""
    return tokenizer.apply_chat_template(
        template_messages(messages),
        tokenize=False,
        add_generation_prompt=generation,
        date_string=DATE,
        **options,
    )


@few(
    "name, thinks",
    [("template", True), ("hermes", False), ("template", False), ("hermes", True)],
    fast=1,
)
def test_every_thinking_template_of_trl_is_told_as_transformers_tells_it(
    name: str, thinks: bool
) -> None:
    compared, parted = 0, 0
    for source in trl_templates().values():
        read = re.sub("{#.*?#}", "", source, flags=re.DOTALL)
        if "enable_thinking" not in read or "strftime_now" in read:
            continue
        tokenizer = made(source)
        renderer = Renderer(with_options(tokenizer, {"enable_thinking": thinks}), name)
        expected = told(tokenizer, PLAIN[:1], True, enable_thinking=thinks)
        assert tokenizer.decode(list(renderer.prompt(PLAIN[:1]))) == expected
        compared += 1
        parted += expected != told(tokenizer, PLAIN[:1], True)
        # A checkpoint asks as it was trained, unless its caller says otherwise.
        carried = made(chat_template(renderer))
        assert told(carried, PLAIN[:1], True) == expected
        other = told(tokenizer, PLAIN[:1], True, enable_thinking=not thinks)
        assert told(carried, PLAIN[:1], True, enable_thinking=not thinks) == other
        assert undressed(carried.chat_template) == source
    assert compared > 5 and parted


def test_options_of_every_json_kind_reach_the_template() -> None:
    options = {"a": "q'\"\\\n{{ é }}", "b": [1, 2.5, None, True], "c": {"k": {"n": False}}}
    source = "{{ [a, b, c] | tojson }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    tokenizer = made(source)
    prompt = Renderer(with_options(tokenizer, options), "template").prompt(PLAIN[:1])
    assert tokenizer.decode(list(prompt)) == told(tokenizer, PLAIN[:1], True, **options)


def test_options_change_the_fingerprint_and_wrong_ones_are_named() -> None:
    tokenizer = made(trl_template("qwen3"))
    plain = Renderer(tokenizer, "template").fingerprint
    for value in (True, False):
        told_so = with_options(tokenizer, {"enable_thinking": value})
        assert Renderer(told_so, "template").fingerprint != plain
    with pytest.raises(RenderingError, match=r"template_options: .*reads no 'enable_thinkin'"):
        with_options(tokenizer, {"enable_thinkin": True})
    assert with_options(tokenizer, {"enable_thinkin": True}, strict=False) is tokenizer
    with pytest.raises(RenderingError, match="'messages' is no option"):
        with_options(tokenizer, {"messages": []})


@pytest.mark.parametrize(
    ("template", "rows", "thinks"),
    [
        ("nemotron_3_nano", PLAIN, False),
        ("nemotron_3_ultra", PLAIN, False),
        ("qwen3_5_nothink", THOUGHT, True),
    ],
)
def test_rows_that_need_an_option_say_which_and_train_with_it(
    template: str, rows: tuple[Message, ...], thinks: bool
) -> None:
    tokenizer = made(trl_template(template))
    wanted = f"template_options = {{ enable_thinking = {str(thinks).lower()} }}"
    with pytest.raises(RenderingError) as caught:
        Renderer(tokenizer, "template").turns(rows)
    assert wanted in str(caught.value)
    renderer = Renderer(with_options(tokenizer, {"enable_thinking": thinks}), "template")
    (turn,) = renderer.turns(rows)
    text = tokenizer.decode([*tokens_of(turn.context), *turn.actions])
    assert text + "\n" == told(tokenizer, rows, False, enable_thinking=thinks)


@pytest.mark.parametrize("rows", [THOUGHT, INLINE])
@pytest.mark.parametrize("name", ["template", "hermes"])
def test_a_template_that_cuts_reasoning_trains_it_as_trl_does(
    rows: tuple[Message, ...], name: str
) -> None:
    """DeepSeek-R1: prompts end with <think>, and what stands before </think> is cut."""
    renderer = Renderer(made(trl_template("deepseek_r1_distill"), R1), name)
    (turn,) = renderer.turns(rows)
    decode = renderer.tokenizer.decode
    assert tokens_of(turn.context) == renderer.prompt(rows[:1])
    assert decode(list(turn.actions)) == "I look.\n</think>\n\nIt is 4.<｜end▁of▁sentence｜>"
    trained = made(trl_template("deepseek_r1_distill_training"), R1)
    assert decode([*tokens_of(turn.context), *turn.actions]) == told(trained, INLINE, False)


def test_special_tokens_that_are_kept_are_trained_whole_and_no_others() -> None:
    special = [*SPECIAL["chatml"], "<t>", "</t>"]
    plain = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    plain += "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    tokenizer = made(None, special)
    tokenizer.chat_template = plain
    talk = (Message("user", "<t>?</t>"), Message("assistant", "<t>so</t> <|im_start|>"))
    kept, broken = (Renderer(tokenizer, "template", keep) for keep in (("<t>", "</t>"), ()))
    ids = [tokenizer.convert_tokens_to_ids(token) for token in special[2:]]
    (turn,) = kept.turns(talk)
    assert [turn.actions.count(id_) for id_ in ids] == [1, 1]
    assert not set(ids) & set(tokens_of(turn.context))
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert start not in turn.actions
    assert not set(ids) & set(broken.turns(talk)[0].actions)
    assert set(ids) <= set(kept.prompt((*talk, ASKED))) and set(ids) <= set(kept.text("<t></t>"))
    assert kept.fingerprint != broken.fingerprint
    for token, problem in (("<think>", "no special token"), ("</t>x", "no special token")):
        with pytest.raises(RenderingError, match=problem):
            Renderer(tokenizer, "template", (token,))
    tokenizer.eos_token = "<|im_end|>"
    with pytest.raises(RenderingError, match="ends answers"):
        Renderer(tokenizer, "template", ("<|im_end|>",))


PARTS = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}<image>{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TALK = (Message("system", "s"), Message("user", "a {{ b }}"), Message("assistant", "c"))


def with_parts() -> Any:
    made = copy.copy(tokenizer("chatml"))  # other tests share it
    made.chat_template = PARTS
    return made


def test_a_text_is_written_as_by_the_template_that_reads_strings() -> None:
    check_template(with_parts())
    parts, strings = Renderer(with_parts(), "template"), Renderer(tokenizer("chatml"), "template")
    assert "a {{ b }}" in with_parts().decode(parts.prompt(TALK[:2], ()))
    assert parts.prompt(TALK[:2], ()) == strings.prompt(TALK[:2], ())
    assert parts.conversation(TALK, ()).tokens == strings.conversation(TALK, ()).tokens


def test_the_exported_hermes_template_writes_what_was_trained() -> None:
    made = with_parts()
    renderer = Renderer(made, "hermes")
    exported = chat_template(renderer)
    assert undressed(exported) == PARTS
    talk = [{"role": m.role, "content": m.content} for m in TALK[:2]]
    text = made.apply_chat_template(
        talk, chat_template=exported, tokenize=False, add_generation_prompt=True
    )
    assert made.encode(text, add_special_tokens=False) == list(renderer.prompt(TALK[:2], ()))
    shown = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "x"}]}]
    assert "<image>x" in made.apply_chat_template(shown, chat_template=exported, tokenize=False)


QUESTION = Message("user", "Weather?")
SUNNY = Message("assistant", "Sunny.", reasoning="Look outside.")


def renderer(template: str, name: str) -> Renderer:
    return Renderer(build(SPECIAL["qwen3"], template, [*WORDS, "<tool_call>"]), name)


@pytest.mark.parametrize(
    ("template", "name", "expected"),
    [
        (HYBRID, "template", True),
        (THINKING, "template", True),
        (THINKING, "qwen3_fc", False),
        (HYBRID, "hermes", True),
        (CHATML, "hermes", False),
    ],
)
def test_an_empty_block_before_an_answer_is_found(template, name, expected) -> None:
    assert empties_thought(renderer(template, name)) is expected


def test_a_prefilled_tag_is_prompt_and_only_what_follows_is_trained() -> None:
    made = renderer(THINKING, "template")
    (turn,) = made.turns((QUESTION, SUNNY))
    decode = made.tokenizer.decode
    assert decode(tokens_of(turn.context)).endswith("<|im_start|>assistant\n<think>\n")
    assert decode(list(turn.actions)) == "Look outside.\n</think>\n\nSunny.<|im_end|>"
    (silent,) = made.turns((QUESTION, Message("assistant", "Sunny.")))
    assert decode(list(silent.actions)) == "\n</think>\n\nSunny.<|im_end|>"


QUOTED = Message("user", "<think>\nmine\n</think>\n\nWhy?")
CALLED = Message("assistant", "", (ToolCall("f", {"a": 1}),), reasoning="So f.")
WRITTEN = Message("assistant", "<think>\nSo.\n</think>\n\nBecause.")


def test_both_ways_of_writing_reasoning_are_left_out_and_nothing_else():
    row = Row("r", (QUOTED, CALLED, Message("tool", "1"), WRITTEN), gold="1", conversation="c")
    found = gather(without_reasoning([row]))
    plain = (
        QUOTED,
        replace(CALLED, reasoning=""),
        row.messages[2],
        Message("assistant", "Because."),
    )
    assert found.rows == (replace(row, messages=plain),)
    assert found.remarks == {LEFT_OUT: ("r",)}
