"""Text with tags is taken apart into what a rendering puts together again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.data.formats.formats import read_rows
from assay.data.loaded import DataError, Record
from assay.data.renderings.hermes import flatten, parse_text_messages
from assay.data.row import Message, Row, ToolCall

TOOL = {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
QWEN = (
    "Be brief.\n\n# Tools\n\nYou are provided with function signatures within <tools></tools> XML "
    f"tags:\n<tools>\n{json.dumps(TOOL)}\n</tools>\n\nFor each call, return a json object within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>}\n</tool_call>'
)
RECORD = Record("a.jsonl", 1, {})
words = st.text("ab \n{}", max_size=6).map(str.strip)


def read_one(folder: Path, value: dict[str, Any], format: str = "hermes") -> Row:
    (folder / "a.jsonl").write_text(json.dumps(value) + "\n")
    return read_rows(folder / "a.jsonl", format)[0]


def say(*texts: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": text} for role, text in texts]}


@settings(max_examples=80)
@given(
    system=words,
    asked=words.filter(bool),
    thought=words,
    said=words,
    results=st.lists(words, max_size=2),
    calls=st.lists(st.dictionaries(st.sampled_from("xy"), words | st.integers()), max_size=2),
)
def test_what_the_hermes_rendering_writes_is_read_back(
    system: str, asked: str, thought: str, said: str, results: list[str], calls: list[dict]
) -> None:
    answer = Message("assistant", said, tuple(ToolCall("f", c) for c in calls), "", thought)
    told = [Message("tool", text) for text in results] if calls else []
    talk = (Message("user", asked), answer, *told, Message("user", "and?"))
    messages = (Message("system", system), *talk) if system else talk
    plain = [(m.role, m.content, True) for m in flatten(messages, (TOOL,))]
    if told:
        # The rendering puts what the user says after results into a message of its own.
        plain = [one for one in plain if one[1]]
    assert parse_text_messages(RECORD, plain, (), "m") == (messages, (TOOL,))


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<think>\nhm\n</think>\n\nYes.", "hm", "Yes."),
        ("hm\n</think>\n\nYes.", "hm", "Yes."),
        ("<think>\nhm", "", "<think>\nhm"),
        ("Yes, <think> and </think>.", "", "Yes, <think> and </think>."),
    ],
)
def test_thinking_is_reasoning_also_where_the_prompt_opened_it(
    tmp_path: Path, text: str, reasoning: str, content: str
) -> None:
    row = read_one(tmp_path, say(("user", "?"), ("assistant", text)))
    assert (row.messages[1].reasoning, row.messages[1].content) == (reasoning, content)


def test_sharegpt_and_chatml_say_the_same_as_messages(tmp_path: Path) -> None:
    texts = (("system", QWEN), ("user", "Do f."), ("assistant", CALL))
    from_messages = read_one(tmp_path, say(*texts))
    names = {"system": "system", "user": "human", "assistant": "gpt"}
    shared = {"conversations": [{"from": names[r], "value": t} for r, t in texts]}
    chatml = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in texts)
    for value in (shared, {"text": chatml}, {"text": chatml + "<|im_start|>assistant\n"}):
        assert replace(read_one(tmp_path, value), id="") == replace(from_messages, id="")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            [("user", "?"), ("assistant", "<tool_call>{</tool_call>")],
            r"tool_call\[0\]: is not JSON",
        ),
        ([("user", "?"), ("assistant", "<tool_call>{}")], "a <tool_call> is not closed"),
        ([("system", "<tools>\n{\n</tools>"), ("user", "?")], "tools: is not JSON"),
        (
            [("user", "?"), ("assistant", CALL.replace('{"a": 1}', '"{"'))],
            r"tool_call\[0\].arguments: is not JSON",
        ),
    ],
)
def test_text_that_says_no_conversation_is_named(
    tmp_path: Path, texts: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(DataError, match=f"a.jsonl:1: .*({message})"):
        read_one(tmp_path, say(*texts))


def test_looptools_history_becomes_messages_again(tmp_path: Path) -> None:
    history = (
        f"Do f.<|im_end|>\n<|im_start|>assistant\n{CALL}<|im_end|>\n<|im_start|>user\n"
        "<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>user\nAgain."
    )
    value = {
        "data_source": "toolace",
        "prompt": say(("system", QWEN + "."), ("user", history))["messages"],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": CALL},
        "extra_info": {"split": "train", "index": 1, "instruction": "", "input": "", "output": ""},
    }
    row = read_one(tmp_path, value, "looptool")
    called = Message("assistant", "", (ToolCall("f", {"a": 1}),))
    assert row.messages[1:] == (
        Message("user", "Do f."),
        replace(called, loss=False),
        Message("tool", "7"),
        Message("user", "Again."),
        called,
    )
    assert row.gold == CALL and row.extra["extra_info"] == {"split": "train", "index": 1}
