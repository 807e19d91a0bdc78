"""Figures of rounds and lengths show what was recorded, and say what was not."""

from dataclasses import replace

import pytest

from assay.pages.run_page import write_report
from assay.runs.metrics import append_metrics
from assay.runs.run_directory import RunDirectory
from tests.pages.pages import Page
from tests.pages.run_page.test_page import words_of
from tests.pages.synthetic import RECORD, SPEC, add_scores, empty_run

MORE = """
[stage.more]
method = "grpo"
data = "train"
start = "rl.step-3"
steps = 40
prompts = 2
group = 2
reward = {{ 'tools.ast' = 100.0 }}

[evaluate.dev]"""
TWO = SPEC.replace("[evaluate.dev]", MORE)


def train(run: RunDirectory, stage: str, steps: int):
    for step in range(1, steps + 1):
        append_metrics(run.metrics, stage, step, 1.0, reward_mean=step / 10, completions=5)


@pytest.fixture
def run(tmp_path):
    made = empty_run(tmp_path, spec=TWO)
    train(made, "rl", 3)
    train(made, "more", 4)
    record = replace(RECORD, name="dev", benchmark="train.dev", role="select")
    for step, right in ((2, 4), (3, 6)):
        add_scores(made, f"rl.step-{step:06d}", [1.0] * right + [0.0] * (8 - right), record)
    add_scores(made, "base", [1.0] * 20 + [0.0] * 20)
    return made


def test_rounds_follow_each_other_on_one_axis(run):
    page = write_report(run)
    source = page.read_text(encoding="utf-8")
    section = source[source.index('id="rounds"') :].partition("</section>")[0]
    assert "n = 35 completions" in section and "each is drawn as a share of" in section
    # One chart with a mark where each round ends, a line at what the next one started from, and the
    # largest mean of either reward at the same height.
    assert (section.count("<svg"), section.count('l-3.5 6h7z" class="mark"')) == (1, 2)
    assert section.count('x1="133.33" y1="10"') == 1  # a third of the way from step 1 to step 7
    assert section.count('class="chosen-line"') == 1 and "Reward of rl, more, mean" in section
    assert section.count("<title>1</title>") == 2
    rows, read = ["rl", "sft.last", "0.1 → 0.3 in 3 steps"], Page(page)
    assert read.row(*rows)[3:] == ["–", "–"]
    changed = "reward tools.ast → –; reward.tools.ast – → 100"
    assert read.row("more", "rl · step 3", "0.1 → 0.4 in 4 steps")[4] == changed
    # A reader sees them without unfolding, on a page that is as short as every other.
    assert "0.1 → 0.4 in 4 steps" in read.visible and words_of(read.visible) <= 700
    markdown = (run.path / "report.md").read_text(encoding="utf-8")
    assert "| more | rl · step 3 | 0.1 → 0.4 in 4 steps |" in markdown


def test_without_a_figure_there_is_no_section(tmp_path):
    run = empty_run(tmp_path)
    train(run, "rl", 3)
    add_scores(run, "base", [0.0] * 4)
    page = Page(write_report(run))
    assert ("section", "id", "training") in page.attributes
    assert ("section", "id", "rounds") not in page.attributes
