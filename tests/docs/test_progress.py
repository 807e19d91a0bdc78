"""The page on progress says what the code does: its table, its settings, its figures."""

import tomllib

from assay.experiment.experiment import Experiment
from assay.judge.selection import promote
from assay.pages.progress.progress_content import promotion
from assay.pages.words import words
from assay.runs.checkpoints import Selection
from tests.docs.health_table import table
from tests.docs.pages import DOCS, blocks
from tests.docs.test_tables import between
from tests.judge.simulated import single_pass

PAGE = (DOCS / "progress.md").read_text(encoding="utf-8")


def test_the_table_of_health_rules_is_what_its_command_prints() -> None:
    assert between("progress.md", "<!-- health rules -->") == table()


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


def test_the_sentence_about_the_gate_is_what_a_page_would_say() -> None:
    start = single_pass([1] * 23 + [0] * 37)
    found = promote(start, {8: start, 16: single_pass([1] * 24 + [0] * 36)})
    chosen = Selection("sft.step-000014", "sft.step-000014", "dev", 23 / 60, looks=2)
    quoted = " ".join(line[2:] for line in PAGE.splitlines() if line.startswith("> "))
    assert quoted == promotion("grpo", chosen, found, words())


def test_the_least_that_promotes_is_what_the_page_says() -> None:
    start = single_pass([0] * 60)
    steps = {
        n: promote(start, {1: start, 2: single_pass([1] * n + [0] * (60 - n))}) for n in (5, 6)
    }
    assert [found.step for found in steps.values()] == [None, 2]
    assert "6 items gained and none lost are the least that promotes" in " ".join(PAGE.split())
