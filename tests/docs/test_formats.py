"""The examples of formats.md: every row is read, every command runs, every key is obeyed."""

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assay.data.formats.formats import FORMATS, WRITERS, read_rows
from assay.data.renderings.rendering import Renderer
from assay.data.row import Message, ToolCall
from assay.data.splits import visits
from assay.experiment.data_tables import DataSpec
from assay.experiment.read_file import read_experiment
from assay.lab.setup.language_learner import LanguageEncoder
from assay.lab.setup.prepare import prepare, prepare_set
from assay.tasks.task import task
from tests.cli.conftest import call
from tests.data.chat import tokenizer
from tests.docs.pages import DOCS, blocks

PAGE = "formats.md"
ORDER = ("messages", "swift", "hermes", "xlam", "hardgen", "verl", "looptool")
ORDER += (
    "trl",
    "gsm8k",
    "math",
    "math_cot",
    "limr",
    "olympiadbench",
    "math_union",
    "prompt_answer",
    "alpaca",
)
ORDER += (
    "preference",
    "workflow_problems",
    "workflow_math",
    "humaneval",
    "mbpp",
    "hotpotqa",
    "drop",
    "documents",
    "tool_schemas",
)
ROWS = Path(__file__).with_name("rows_of_formats.json")
SHOWN = ("messages", "trl", "prompt_answer", "preference")
EXAMPLES: dict[str, Any] = json.loads(ROWS.read_text(encoding="utf-8"))
EXAMPLES |= zip(SHOWN, map(json.loads, blocks(PAGE, "json")), strict=True)
ASKED = Message("user", "How warm is it in Oslo?")
CALLS = Message("assistant", "", (ToolCall("get_weather", {"city": "Oslo"}),))


def write(folder: Path, format: str, copies: int = 1) -> Path:
    file = folder / f"{format}.jsonl"
    value = EXAMPLES[format]
    lines = [{**value, "id": f"r{n}", "number": n} for n in range(copies)]
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return file


def test_the_page_names_every_format_and_what_is_written() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    assert {*ORDER, "csv"} == set(FORMATS) == {*EXAMPLES, "csv"}
    named = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert sorted(named) == sorted(FORMATS)
    assert set(named[: len(WRITERS)]) == set(WRITERS), "the first four are written as well"


@pytest.mark.parametrize("format", ["messages", "swift", "hermes", "hardgen"])
def test_four_formats_say_the_same_conversation(tmp_path: Path, format: str) -> None:
    (row,) = read_rows(write(tmp_path, format), format)
    (call,) = row.messages[1].tool_calls
    assert (call.name, call.arguments) == ("get_weather", {"city": "Oslo"})
    assert row.messages[0] == ASKED and row.messages[3] == Message("assistant", "It is 4 degrees.")
    assert json.loads(row.messages[2].content) == {"degrees": 4}
    assert row.tools[0]["name"] == "get_weather"


def test_the_pages_mixture_has_its_shares(tmp_path: Path) -> None:
    rows = [
        {"id": str(n), "prompt": f"{n}?", "answer": "!", "level": n % 7, "kind": "sum"}
        for n in range(28)
    ]
    for name in ("easy", "hard"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "x.toml").write_text('name = "x"\ntask = "math"\n' + blocks(PAGE, "toml")[2])
    experiment = read_experiment(tmp_path / "x.toml")
    encoder = LanguageEncoder(Renderer(tokenizer("chatml"), "hermes"), frozenset())
    made = prepare_set(experiment, "mix", task("math"), lambda _: encoder, tmp_path)
    epoch = visits(made.train, 1, 0, 10, made.order)
    hard = [row.extra["level"] for _, row in epoch if row.id.startswith("hard/")]
    assert sorted(hard) == [4, 4, 4] and len(epoch) == 10


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
