"""`assay convert` as a user meets it: what it says and writes, and its one line when it fails."""

import json
from pathlib import Path

import pytest

from assay.data.formats.formats import read_rows
from tests.cli.conftest import answer, assert_one_line, call

TOOLS = json.dumps([{"name": "f"}])
GOOD = {
    "0": {"role": "system", "tools": TOOLS},
    "1": {"role": "user", "content": "Do f."},
    "2": {"role": "assistant", "content": "[f(1)]"},
}
BROKEN = {**GOOD, "2": {"role": "assistant", "content": "[f(a=b)]"}}
ASK = {"role": "user", "content": "?"}


def called(function: object, content: object = "") -> dict:
    return {"role": "assistant", "content": content, "tool_calls": [{"function": function}]}


@pytest.fixture
def hardgen(tmp_path: Path) -> Path:
    file = tmp_path / "hardgen.jsonl"
    lines = [{"id": n, "number": n, **(BROKEN if n == 3 else GOOD)} for n in range(5)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_what_was_written_left_out_and_noted_is_shown(hardgen: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    options = ("--from", "hardgen", "--to", "verl", "--rendering", "qwen3")
    result = call("convert", hardgen, target, *options)
    assert result.exit_code == 0, result.stderr
    assert f"{hardgen}: hardgen" in result.stdout
    assert f"{target}: 4 rows of 4 conversations" in result.stdout
    assert "left out: 1: an argument of a call that is no literal" in result.stdout
    assert "note: 4: calls give arguments by position" in result.stdout
    assert [row.id for row in read_rows(target, "verl")] == ["0", "1", "2", "4"]


def test_a_program_reads_the_same_as_one_object(hardgen: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--to", "verl", "--split", "0.25", "--from", "hardgen", "--json")
    found = answer(call("convert", hardgen, out, *options, "--rendering", "qwen3"))
    assert found["command"] == "convert" and found["result"]["format"] == "hardgen"
    names = ("train.parquet", "test.parquet")
    assert found["result"]["rows"] == {
        str(out / name): 1 if name.startswith("test") else 3 for name in names
    }
    assert list(found["result"]["dropped"].values()) == [1]
    assert sorted(path.name for path in out.iterdir()) == sorted(names)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"messages": [ASK], "tools": [{"name": "f", "parameters": {"type": "objekt"}}]},
            ("a.jsonl:1", "objekt"),
        ),
        (
            {"messages": [ASK, called({"name": "f", "arguments": "{"})]},
            ("a.jsonl:1: messages[1].tool_calls[0].function.arguments: is not JSON",),
        ),
        ({"\x1b[2J": 1}, ("a.jsonl:1: messages: missing",)),
    ],
)
def test_bad_rows_end_in_one_line_and_write_nothing(
    tmp_path: Path, row: dict, words: tuple[str, ...]
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    result = call("convert", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--to", "swift")
    assert_one_line(result, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_split_that_is_neither_share_nor_rows_is_one_line(hardgen: Path, tmp_path: Path) -> None:
    wrong = {"nan": "nan is no share", "-3": "must be more than 0", "half": "'half' is no number"}
    for split, words in wrong.items():
        result = call("convert", hardgen, tmp_path / "out", "--to", "trl", f"--split={split}")
        assert_one_line(result, "--split: ", words, "a share such as 0.1, or a number of rows")
        assert not (tmp_path / "out").exists()
