"""The one file of add-a-task.md is a task that `assay check` proves and `assay run` trains."""

from pathlib import Path

import pytest

from tests.cli.conftest import answer, call
from tests.docs.pages import blocks
from tests.models.folders import save_tiny_model
from tests.tasks.user_files import forgotten, write

PAGE = "add-a-task.md"
SMALL = ["model=path:model", "stage.sft.steps=1", "stage.rl.steps=1", "stage.rl.prompts=2"]
SMALL += ["stage.rl.group=2", "stage.rl.sampling.max_tokens=4", "evaluate.dev.checkpoints=['base']"]


def test_the_file_of_the_page_has_few_lines_and_edits_nothing() -> None:
    (text, *_) = blocks(PAGE, "python")
    assert len(text.splitlines()) <= 30


@pytest.mark.slow
def test_the_task_of_the_page_is_checked_and_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_tiny_model(tmp_path / "model")
    write(tmp_path, "lengths.py", blocks(PAGE, "python")[0])
    write(tmp_path, "lengths.toml", blocks(PAGE, "toml")[0])
    rows = [f"How far are {n} cm?,It is {n / 100} m" for n in range(150, 190)]
    write(tmp_path, "lengths.csv", "\n".join(["prompt,answer", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    settings = [part for each in SMALL for part in ("--set", each)]
    with forgotten(tmp_path):
        checked = call("check", "lengths.toml", "--json", *settings)
        assert checked.exit_code == 0, checked.output
        numbers = answer(checked)["result"]["numbers"]["stage.rl"]
        assert numbers["gold_full_share: close"] == 1.0
        ran = call("run", "lengths.toml", *settings)
        assert ran.exit_code == 0, ran.output
