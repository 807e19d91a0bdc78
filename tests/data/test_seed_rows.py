"""Documents and descriptions of tools are rows, each by its own place or id."""

import json

import pytest

from assay.data.formats.formats import read_rows
from assay.data.loaded import DataError


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
