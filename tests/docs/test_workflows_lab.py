"""The page on the workflows lab names what there is, and its experiments can all be read."""

import re

import pytest

from assay.experiment.read_file import read_experiment
from assay.lab.session.validate import read_whole
from assay.labs.workflows.run_program import FIXED_SOURCES
from assay.labs.workflows.task import TASK
from tests.docs.pages import DOCS
from tests.experiments.files import shipped

TEXT = (DOCS / "workflows-lab.md").read_text(encoding="utf-8")
FOLDER = DOCS.parent / "experiments" / "workflows"
SWEEP = re.compile(r"^base\b", re.MULTILINE)
FILES = sorted(file for file in FOLDER.rglob("*.toml") if not SWEEP.search(file.read_text()))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_experiment_is_read(file) -> None:
    task = read_experiment(file).task
    own = "report_003.py" if file.parent == FOLDER else "problems.py"
    assert task == f"path:experiments/workflows/{own}"


def test_the_names_of_the_ladder_are_known() -> None:
    for name in ("executor", "warm-up"):
        read_whole(FOLDER / "ladder" / f"{name}.toml", (), DOCS.parent)


def test_the_page_names_all_fixed_workflows_rewards_and_sources() -> None:
    written = set(re.findall(r"`([\w:-]+)`", TEXT))
    assert set(FIXED_SOURCES) <= written
    assert set(TASK.rewards) <= written
    sources = shipped("workflows/problems.py").READERS
    assert {*sources, "human-eval"} <= {each.partition(":")[0] for each in written}
