"""Preference pairs are read as groups of two candidates with one prompt, or refused by line; other
plain rows give a prompt and its answer."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.data.formats.formats import FileLayout, iter_items, read_rows
from assay.data.formats.plain_rows import REVERSED, candidate_message
from assay.data.loaded import DataError, Remark, gather
from assay.data.renderings.rendering import Renderer
from assay.data.row import Message, Row, ToolCall
from assay.lab.models.language_encoder import LanguageEncoder
from assay.lab.models.learner import stored_turns
from assay.tasks.task import task
from tests.data.chat import tokenizer

ENCODER = LanguageEncoder(Renderer(tokenizer("chatml"), "hermes"), frozenset())
ASK = {"role": "user", "content": "2 + 2?"}


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def read(folder: Path, value: dict[str, Any]) -> Row:
    file = folder / "pairs.jsonl"
    file.write_text(json.dumps(value) + "\n")
    (row,) = read_rows(file, "preference")
    return row


@pytest.mark.parametrize(
    "value",
    [
        {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"},
        {"prompt": [ASK], "chosen": [said("4")], "rejected": [said("5")]},
        {"chosen": [ASK, said("4")], "rejected": [ASK, said("5")]},
        {"prompt": [ASK], "chosen": [ASK, said("4")], "rejected": [ASK, said("5")]},
        {"messages": [ASK, said("4")], "rejected_response": "5"},
        {"messages": [ASK, said("4")], "rejected_messages": [ASK, said("5")]},
    ],
)
def test_a_pair_is_a_group_of_two_with_rewards_1_and_0(tmp_path: Path, value: Any) -> None:
    row = read(tmp_path, {"id": "sum", "level": 2, **value})
    assert row.id == "sum" and row.messages == (Message("user", "2 + 2?"),) and row.gold is None
    assert row.extra == {
        "level": 2,
        "candidates": [{"text": "4", "reward": 1.0}, {"text": "5", "reward": 0.0}],
    }


def test_scores_that_contradict_the_names_of_the_two_are_told(tmp_path: Path) -> None:
    value = {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}
    file = tmp_path / "pairs.jsonl"
    for better, worse in ((2, 1), (1, 1), (0.5, 2)):
        file.write_text(json.dumps({**value, "chosen_score": better, "rejected_score": worse}))
        told = [i.words for i in iter_items(file, "preference") if isinstance(i, Remark)]
        assert told == ([REVERSED] if better <= worse else [])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"prompt": "?", "chosen": "4"}, "rejected: missing"),
        ({"chosen": "4", "rejected": "5"}, "prompt: missing, and chosen and rejected begin with"),
        ({"prompt": "?", "chosen": [ASK, said("4")], "rejected": "5"}, "chosen: does not begin"),
        (
            {"prompt": [ASK, said("4")], "chosen": "a", "rejected": "b"},
            "prompt: ends with the assistant",
        ),
        (
            {"prompt": "?", "chosen": "4", "rejected": [ASK]},
            "rejected: does not end with an answer",
        ),
        (
            {"prompt": "?", "chosen": "4", "rejected": "5", "chosen_score": "high"},
            "chosen_score: is a string, not an integer or a number",
        ),
    ],
)
def test_what_is_no_pair_is_refused_with_its_line(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(DataError) as found:
        read(tmp_path, value)
    assert f"pairs.jsonl:1: {message}" in str(found.value) and "\n" not in str(found.value)


HH = "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: 1+0?\n\nAssistant:"


@pytest.mark.parametrize(
    ("chosen", "rejected", "parts"),
    [
        (f"{HH} 1", f"{HH} no idea", (HH, " 1", " no idea")),
        ("What? Yes, it is.", "What? Yes, no.", ("What? Yes,", " it is.", " no.")),
        # One text begins with the other.
        ("Q A", "Q A B", ("Q ", "A", "A B")),
    ],
)
def test_texts_are_parted_where_trl_parts_them(
    tmp_path: Path, chosen: str, rejected: str, parts: tuple[str, str, str]
) -> None:
    """These are what `extract_prompt` of TRL 1.16 gives; a dialogue stays one text, as there."""
    row = read(tmp_path, {"chosen": chosen, "rejected": rejected})
    texts = [each["text"] for each in row.extra["candidates"]]
    assert (row.messages, *texts) == ((Message("user", parts[0]),), *parts[1:])


TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}]
OPENAI_CALL = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def test_calls_as_json_text_are_calls_of_the_prompt_and_of_an_answer(tmp_path: Path) -> None:
    value = {
        "prompt": [
            *(ASK, {"role": "assistant", "tool_calls": [OPENAI_CALL]}),
            {"role": "tool", "content": "4"},
        ],
        "tools": TOOLS,
        "chosen": [{"role": "assistant", "tool_calls": json.dumps([OPENAI_CALL])}],
        "rejected": [said("5")],
    }
    row = read(tmp_path, value)
    call = ToolCall("f", {"a": 1})
    assert [m.role for m in row.messages] == ["user", "assistant", "tool"]
    assert row.messages[1].tool_calls == (call,) and [t["name"] for t in row.tools] == ["f"]
    chosen, rejected = row.extra["candidates"]
    assert candidate_message(chosen) == Message("assistant", "", (call,))
    assert (chosen["reward"], rejected) == (1.0, {"text": "5", "reward": 0.0})
    # It is trained on as the call that it is.
    trained, as_text = (
        stored_turns(ENCODER, task("tools"), row, [each])
        for each in (chosen, {"text": chosen["text"], "reward": 1.0})
    )
    assert trained == as_text


def lines(folder: Path, *values: dict[str, Any]) -> Path:
    file = folder / "a.jsonl"
    file.write_text("".join(json.dumps(value) + "\n" for value in values))
    return file


def only(file: Path, format: str, **columns: str) -> Row:
    (row,) = gather(iter_items(file, format, FileLayout(columns=columns))).rows
    return row


def test_alpaca_rows_put_the_input_below_the_instruction(tmp_path: Path) -> None:
    value = {"instruction": "Add.", "input": "1 1", "output": "2", "system": "Be short."}
    row = only(lines(tmp_path, value | {"history": [["Hi", "Hello"]]}), "alpaca")
    assert [(m.role, m.content) for m in row.messages] == [
        ("system", "Be short."),
        ("user", "Hi"),
        ("assistant", "Hello"),
        ("user", "Add.\n1 1"),
        ("assistant", "2"),
    ]
    bare = only(lines(tmp_path, {"instruction": "Add.", "input": "", "output": "2"}), "alpaca")
    assert bare.messages[0].content == "Add." and bare.gold is None


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_columns_are_renamed_in_every_kind_of_file(tmp_path: Path, ending: str) -> None:
    values = [{"question": "1 + 1?", "gold": "2", "answer": "old"}, {"question": "2?", "gold": "3"}]
    file = tmp_path / f"a.{ending}"
    if ending == "csv":
        file.write_text("question,gold,answer\n1 + 1?,2,old\n2?,3,\n")
    elif ending == "parquet":
        pq.write_table(pa.Table.from_pylist(values), file)
    else:
        lines(tmp_path, *values)
    columns = {"prompt": "question", "answer": "gold", "former": "answer"}
    rows = gather(iter_items(file, "prompt_answer", FileLayout(columns=columns))).rows
    assert [(row.prompt[0].content, row.gold) for row in rows] == [("1 + 1?", "2"), ("2?", "3")]
    assert [dict(row.extra) for row in rows] == [{"former": "old"}, {}]


def test_an_unknown_column_is_named_with_the_nearest(tmp_path: Path) -> None:
    file = lines(tmp_path, {"question": "1 + 1?", "gold": "2"})
    problem = r"a\.jsonl:1: columns\.prompt: the file has no column 'qestion' .*mean 'question'"
    with pytest.raises(DataError, match=problem):
        only(file, "prompt_answer", prompt="qestion", answer="gold")
    with pytest.raises(DataError, match=r"a\.jsonl:1: answer: missing .*gold, prompt"):
        only(file, "prompt_answer", prompt="question")


def test_a_text_file_holds_a_document_between_blank_lines(tmp_path):
    file = tmp_path / "a.md"
    file.write_text("One line\nand another.\n\n\n  \nSecond.\n")
    rows = read_rows(file, "documents")
    assert [row.messages[0].content for row in rows] == ["One line\nand another.", "Second."]
    assert [row.origin.rpartition(":")[2] for row in rows] == ["1", "6"]
    assert len({row.id for row in rows}) == 2


def test_a_tool_is_described_without_the_rows_id(tmp_path):
    tool = {"name": "get", "description": "Gets.", "parameters": {"type": "object"}}
    other = {**tool, "name": "put"}
    file = lines(tmp_path, {"id": "one", **tool}, {"id": "two", "tools": [tool, other]})
    one, two = read_rows(file, "tool_schemas")
    assert (one.id, one.tools, one.extra) == ("one", (tool,), {})
    assert two.tools == (tool, other) and two.messages[0].content == "get: Gets.\nput: Gets."


@pytest.mark.parametrize("value", [{"tools": []}, {"name": 3}, {"text": 4}])
def test_what_is_no_seed_is_refused(tmp_path, value):
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps(value))
    with pytest.raises(DataError):
        read_rows(file, "documents" if "text" in value else "tool_schemas")
