"""The page on progress says what the code does: its table, its settings, its figures."""

import tomllib

from assay.experiment.experiment import Experiment
from assay.judge.selection import promote
from tests.docs.pages import DOCS, blocks
from tests.judge.simulated import single_pass

PAGE = (DOCS / "progress.md").read_text(encoding="utf-8")


def test_the_settings_of_the_page_are_an_experiment() -> None:
    stage = {"method": "grpo", "data": "d", "steps": 40, "prompts": 2, "reward": "accuracy"}
    head = {
        "name": "demo",
        "task": "math",
        "data": {"d": {"source": "path:x", "format": "messages"}},
        "stage": {"grpo": stage},
    }
    for block in blocks("progress.md", "toml"):
        experiment = Experiment.model_validate({**head, **tomllib.loads(block)})
        assert experiment.guard or experiment.milestone or experiment.log


def test_the_least_that_promotes_is_what_the_page_says() -> None:
    start = single_pass([0] * 60)
    steps = {
        n: promote(start, {1: start, 2: single_pass([1] * n + [0] * (60 - n))}) for n in (5, 6)
    }
    assert [found.step for found in steps.values()] == [None, 2]
    assert "6 items gained and none lost are the least that promotes" in " ".join(PAGE.split())
