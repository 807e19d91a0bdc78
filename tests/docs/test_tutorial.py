"""The tutorial does what it says: its task judges, its experiment is sound, its commands run."""

import json
import runpy
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.data.episode import Completion
from assay.data.row import Message, Row
from assay.tasks import task as registry
from assay.tasks.running import RewardRunner
from tests.cli.conftest import call
from tests.docs.pages import DOCS, blocks
from tests.models.folders import save_tiny_model
from tests.tasks.user_files import forgotten, write

PAGE = "tutorial.md"
FILES = DOCS.parent / "experiments" / "tutorial"
SMALL = [
    "model=path:model",
    *("stage.sft.steps=2", "stage.rl.steps=2", "stage.rl.prompts=2", "stage.rl.group=2"),
    *("stage.rl.checkpoint_every=1", "stage.rl.sampling.max_tokens=8"),
    *("evaluate.dev.sampling.max_tokens=4", "evaluate.test.sampling.max_tokens=4"),
    *("data.train.take.rows=48", "data.train.split.dev=12", "evaluate.test.take.rows=16"),
]
"""The experiment with a tiny model of random weights."""


def commands() -> list[list[str]]:
    """The words of the page's commands, in order."""
    lines = "".join(blocks(PAGE, "sh")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines]


def row(team: str, urgent: bool) -> Row:
    reply = json.dumps({"team": team, "urgent": urgent})
    return Row(reply, (Message("user", "Hello."), Message("assistant", reply)))


@pytest.fixture
def tickets(tmp_path: Path) -> Iterator[registry.Task]:
    """The page's task, in the file that the page says."""
    write(tmp_path, "tickets.py", (FILES / "tickets.py").read_text(encoding="utf-8"))
    with forgotten(tmp_path):
        yield registry.task("path:tickets.py", tmp_path)


@pytest.fixture
def lab(tickets: registry.Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's files, and its rows as its first commands make and split them."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(FILES / "make_rows.py", tmp_path)
    (tmp_path / "tickets.toml").write_text(blocks(PAGE, "toml")[0], encoding="utf-8")
    (python, script), (assay, *convert) = commands()[:2]
    assert (python, script, assay, convert[0]) == ("python", "make_rows.py", "assay", "convert")
    runpy.run_path(script)
    assert call(*convert).exit_code == 0
    return tmp_path


def values(task: registry.Task, reward: str, rows: list[Row], texts: list[str]) -> list:
    pairs = [(row, Completion(text)) for row, text in zip(rows, texts, strict=True)]
    with RewardRunner(registry.reward(task, reward)) as judge:
        return [found.value for found in judge.score(pairs)]


def test_the_task_proves_its_gold_answers_and_refuses_wrong_ones(tickets: registry.Task) -> None:
    rows = [row("billing", True), row("shipping", False)]
    gold = [tickets.target(row).content for row in rows]
    for reward in ("sorting", "exact"):
        assert values(tickets, reward, rows, gold) == [1.0, 1.0]
        assert values(tickets, reward, rows, ["", "[1]"]) == [0.0, 0.0]
        assert values(tickets, reward, rows, gold[::-1]) == [0.0, 0.0]
        assert values(tickets, reward, [Row("r", (Message("user", "?"),))], gold[:1]) == [None]
    half = [row("billing", False).messages[-1].content]
    assert values(tickets, "sorting", rows[:1], half) == [0.5]
    assert values(tickets, "exact", rows[:1], half) == [0.0]


def run_page(settings: list[str]) -> dict[str, str]:
    """What each command of the page prints, by its verb, after the rows are made and split."""
    printed = {}
    for _, verb, *words in commands()[2:]:
        changed = [part for setting in settings for part in ("--set", setting)]
        done = call(verb, *words, *(changed if verb in ("check", "run") else []))
        assert done.exit_code == 0, f"{verb}: {done.output}"
        printed[verb] = done.stdout
    return printed


def test_every_command_of_the_tutorial_runs_in_its_order(lab: Path) -> None:
    save_tiny_model(lab / "model", positions=1024)
    printed = run_page(SMALL)
    assert list(printed) == ["check", "run", "eval", "compare", "export"]
    assert "0 errors" in printed["check"]
    assert "120 items, 3 repeat(s)" in printed["eval"]
    assert (lab / "out" / "model.safetensors").is_file()
    assert len(list(lab.glob("runs/tickets/*/report.html"))) == 1
    assert len(list(lab.glob("comparisons/*.html"))) == 1
