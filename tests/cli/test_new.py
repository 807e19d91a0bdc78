"""`assay new` writes what runs at once, for each kind of task."""

import subprocess
import sys
from pathlib import Path

import pytest

from assay.cli.new import starters
from assay.lab.session.validate import read_whole
from tests.cli.conftest import assert_one_line, call, spawn

KINDS = sorted(starters())


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_is_sound_and_the_reward_holds_its_test(kind: str, tmp_path: Path) -> None:
    assert call("new", "mine", "--task", kind, "--lab", tmp_path).exit_code == 0
    assert read_whole(tmp_path / "mine" / "mine.toml", (), tmp_path).name == "mine"
    assert len((tmp_path / "mine" / "rows.jsonl").read_text().splitlines()) == 20
    texts = [file.read_text() for file in (tmp_path / "mine").iterdir()]
    assert not any("NAME" in text or "openai:mine" in text for text in texts)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "mine"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_as_it_is(kind: str, tmp_path: Path) -> None:
    call("new", "mine", "--task", kind, "--lab", tmp_path)
    told = spawn("run", tmp_path / "mine" / "mine.toml", "--lab", tmp_path)
    assert told.returncode == 0, told.stderr


def test_what_is_there_is_kept_and_bad_words_are_one_line(tmp_path: Path) -> None:
    call("new", "mine", "--lab", tmp_path)
    file = tmp_path / "mine" / "reward.py"
    file.write_text("# my own\n")
    assert_one_line(call("new", "mine", "--lab", tmp_path), "is not empty")
    assert file.read_text() == "# my own\n"
    assert_one_line(call("new", "x", "--task", "chart", "--lab", tmp_path), "no kind 'chart'")
    assert_one_line(call("new", "../x", "--lab", tmp_path), "is no name of an experiment")
