"""The page on one's own data: every command of it is run, in its order, with a tiny model."""

import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import call
from tests.docs.pages import DOCS, blocks
from tests.docs.test_tables import between
from tests.experiments.table import table
from tests.experiments.tiny import FIXTURES, make_model

PAGE = "bring-your-data.md"


def commands() -> list[list[str]]:
    """The page's commands, those that read a model with the tiny one in its place."""
    found = []
    for line in "".join(blocks(PAGE, "sh")).splitlines():
        verb, *rest = shlex.split(line, comments=True)[1:]
        tiny = ["--set", "model=path:model"] if verb in ("check", "run") else []
        found.append([verb, *rest, *tiny])
    return found


def test_every_command_of_the_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_model(tmp_path)
    shutil.copy(FIXTURES / "hardgen.jsonl", tmp_path / "raw.jsonl")
    for text in blocks(PAGE, "toml"):
        (tmp_path / f"{tomllib.loads(text)['name']}.toml").write_text(text, encoding="utf-8")
    said = {}
    for command in commands():
        done = call(*command)
        assert done.exit_code == 0, f"{command}: {done.output}"
        said[" ".join(command[:2])] = done.stdout
    assert {p.name for p in (tmp_path / "data").iterdir()} == {
        f"{side}.{ending}" for side in ("train", "test") for ending in ("jsonl", "parquet")
    }
    assert "4 conversations" in said["convert raw.jsonl"]
    assert "prompts solved at least once at base" in said["check rl.toml"]
    # A random model earns no reward, so that GRPO moves nothing; the page says so.
    assert "two checkpoints are the same weights" in said["compare sft@teach.last"]
    assert "why: The first run on our own rows." in said["log sft"]
    assert len(list(tmp_path.glob("runs/*/*/report.html"))) == 2


def test_the_table_of_the_tools_lab_is_what_the_files_say() -> None:
    assert between("tools-lab.md", "<!-- python -m tests.experiments.table -->") == table()


def test_the_commands_of_the_tools_lab_name_files_that_exist() -> None:
    lines = "".join(blocks("tools-lab.md", "sh")).splitlines()
    named = [word for line in lines for word in shlex.split(line) if word.endswith(".toml")]
    assert named and all((DOCS.parent / name).is_file() for name in named)
