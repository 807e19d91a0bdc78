"""Rows of plain columns, under any names, become the conversations that other trainers read."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay.data.formats.convert_rows import recognise
from assay.data.formats.formats import Layout, iter_items, read_rows
from assay.data.loaded import DataError, gather
from assay.data.row import Message, Row


def lines(folder: Path, *values: dict[str, Any]) -> Path:
    file = folder / "a.jsonl"
    file.write_text("".join(json.dumps(value) + "\n" for value in values))
    return file


def only(file: Path, format: str, **columns: str) -> Row:
    (row,) = gather(iter_items(file, format, Layout(columns=columns))).rows
    return row


def test_prompt_and_answer_become_messages_and_gold(tmp_path: Path) -> None:
    file = lines(tmp_path, {"prompt": "1 + 1?", "answer": "2", "level": 3})
    row = only(file, "prompt_answer")
    assert row.messages == (Message("user", "1 + 1?"), Message("assistant", "2"))
    assert row.gold == "2" and row.extra == {"level": 3}


def test_a_completion_is_what_is_learned_and_the_answer_what_is_compared(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "1 + 1?"}]
    value = {"system": "Add.", "prompt": said, "answer": 2, "completion": "It is 2."}
    row = only(lines(tmp_path, value), "prompt_answer")
    assert [message.role for message in row.messages] == ["system", "user", "assistant"]
    assert row.messages[-1].content == "It is 2." and row.gold == 2


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


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    file = lines(tmp_path, {"prompt": "hidden", "question": "1 + 1?", "answer": "2"})
    with pytest.raises(DataError, match=r"columns\.prompt: the file has a column 'prompt' of its"):
        only(file, "prompt_answer", prompt="question")


def test_plain_rows_are_recognised(tmp_path: Path) -> None:
    assert recognise(lines(tmp_path, {"prompt": "?", "answer": "!"})) == "prompt_answer"
    assert recognise(lines(tmp_path, {"prompt": "?", "completion": "!", "answer": "!"})) == "trl"
    assert recognise(lines(tmp_path, {"instruction": "?", "output": "!"})) == "alpaca"
    (tmp_path / "a.csv").write_text("prompt,answer\n?,!\n")
    assert recognise(tmp_path / "a.csv") == "prompt_answer"


def test_the_format_csv_reads_a_file_of_any_ending(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("prompt,answer\n?,!\n")
    (row,) = read_rows(tmp_path / "rows.txt", "csv")
    assert row.gold == "!"
