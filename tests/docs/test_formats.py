"""The examples of formats.md: every row is read, every command runs, every key is obeyed."""

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assay.data.formats.formats import FORMATS, WRITERS, read_rows
from assay.data.renderings.rendering import Renderer
from assay.experiment.data_tables import DataSpec
from assay.lab.data.prepare import prepare
from assay.lab.models.language_encoder import LanguageEncoder
from assay.tasks.task import task
from tests.cli.conftest import call
from tests.data.chat import tokenizer
from tests.docs.pages import DOCS, blocks

PAGE = "formats.md"
ROWS = Path(__file__).with_name("rows_of_formats.json")
SHOWN = ("messages", "trl", "prompt_answer", "preference")
EXAMPLES: dict[str, Any] = json.loads(ROWS.read_text(encoding="utf-8"))
EXAMPLES |= zip(SHOWN, map(json.loads, blocks(PAGE, "json")), strict=True)


def write(folder: Path, format: str, copies: int = 1) -> Path:
    file = folder / f"{format}.jsonl"
    value = EXAMPLES[format]
    lines = [{**value, "id": f"r{n}", "number": n} for n in range(copies)]
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return file


def test_the_page_names_every_format_and_what_is_written() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    assert set(FORMATS) == {*EXAMPLES, "csv"}
    first = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    named = [name for cell in first for name in cell.split("`")[1::2]]
    assert sorted(named) == sorted(FORMATS)
    assert set(named[: len(WRITERS)]) == set(WRITERS), "the first four are written as well"


def test_the_pages_tables_of_runs_and_the_hub_are_read() -> None:
    tables = tomllib.loads(blocks(PAGE, "toml")[3])["data"]
    assert [DataSpec.model_validate(table).origin for table in tables.values()] == [
        "hf:openai/gsm8k",
    ]


def test_the_pages_commands_do_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "hardgen", copies=4)
    (script,) = blocks(PAGE, "sh")
    for line in script.splitlines():
        result = call(*shlex.split(line)[1:])
        assert result.exit_code == 0, result.stderr
    made = sorted(path.name for path in (tmp_path / "both").iterdir())
    assert made == ["test.parquet", "train.parquet"]
    assert len(read_rows(tmp_path / "rows.parquet", "verl")) == 4
    assert len(read_rows(tmp_path / "back.jsonl", "messages")) == 4


def test_the_pages_table_takes_turns_of_whole_conversations(tmp_path: Path) -> None:
    write(tmp_path, "hardgen", copies=6)
    table = tomllib.loads(blocks(PAGE, "toml")[1])["data"]["train"]
    encoder = LanguageEncoder(Renderer(tokenizer("chatml"), "hermes"), frozenset())
    made = prepare("train", DataSpec(**table), task("tools"), encoder, tmp_path)
    assert made.total == 12 and len(made.train) + len(made.dev) == 4
    assert {row.conversation for row in made.train}.isdisjoint(row.conversation for row in made.dev)
