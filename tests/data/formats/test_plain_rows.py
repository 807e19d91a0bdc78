"""Rows of plain columns, under any names, become the conversations that other trainers read."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.data.formats.formats import Layout, iter_items, read_rows
from assay.data.loaded import DataError, gather
from assay.data.row import Row


def lines(folder: Path, *values: dict[str, Any]) -> Path:
    file = folder / "a.jsonl"
    file.write_text("".join(json.dumps(value) + "\n" for value in values))
    return file


def only(file: Path, format: str, **columns: str) -> Row:
    (row,) = gather(iter_items(file, format, Layout(columns=columns))).rows
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
    (bare,) = read_rows(
        lines(tmp_path, {"instruction": "Add.", "input": "", "output": "2"}), "alpaca"
    )
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
    rows = gather(iter_items(file, "prompt_answer", Layout(columns=columns))).rows
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
    file = tmp_path / "tools.jsonl"
    tool = {"name": "get", "description": "Gets.", "parameters": {"type": "object"}}
    other = {**tool, "name": "put"}
    lines = [{"id": "one", **tool}, {"id": "two", "tools": [tool, other]}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    one, two = read_rows(file, "tool_schemas")
    assert (one.id, one.tools, one.extra) == ("one", (tool,), {})
    assert two.tools == (tool, other) and two.messages[0].content == "get: Gets.\nput: Gets."


@pytest.mark.parametrize("value", [{"tools": []}, {"name": 3}, {"text": 4}])
def test_what_is_no_seed_is_refused(tmp_path, value):
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps(value))
    with pytest.raises(DataError):
        read_rows(file, "documents" if "text" in value else "tool_schemas")
