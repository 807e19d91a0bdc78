"""Figures of rounds and lengths show what was recorded, and say what was not."""

import json
import re

import numpy as np
import pytest

from assay.judge.intervals import grouped, wilson
from assay.pages.facts import gather
from assay.pages.run_page.page import write_report
from assay.pages.run_page.rounds import rounds_of
from assay.pages.run_page.story import lengths_of_record
from assay.runs.metrics import append_metrics
from assay.runs.records import write_samples
from assay.runs.run_directory import RunDirectory
from tests.pages.pages import Page
from tests.pages.synthetic import RECORD, SPEC, add_record, add_scores, answer, empty_run, item_ids

ROUND = """
[stage.{name}]
method = "grpo"
data = "train"
start = "{start}"
steps = 40
prompts = 2
group = 2
reward = {reward}
"""
BEFORE, _, BEHIND = SPEC.partition("[evaluate.dev]")
TWO = (
    BEFORE
    + ROUND.replace("{name}", "more")
    .replace("{start}", "rl.step-3")
    .replace("{reward}", "{{ 'tools.ast' = 100.0 }}")
    + "[evaluate.dev]"
    + BEHIND
)


def sampled(step: int, place: int, outcome: str | None, tokens: int, ended: str = "stop") -> dict:
    line = {
        "sample_id": f"rl/{step}/{place}",
        "step": step,
        "row_id": f"row_{place}",
        "visit": 0,
        "sample": 0,
        "text": "x",
        "tokens": [1] * tokens,
        "behaviour_logps": [-0.1] * tokens,
        "reward": float(outcome == "right"),
        "parts": json.dumps({"accuracy": float(outcome == "right")}),
        "why": "",
        "advantage": 0.0,
        "ended": ended,
    }
    return line if outcome is None else {**line, "outcome": outcome}


def train(run: RunDirectory, stage: str, steps: int, parts: bool = True):
    for step in range(1, steps + 1):
        kinds = ("right", "wrong", "right", "no answer")
        lines = [sampled(step, n, kinds[n], 3 + n) for n in range(4)]
        lines.append(sampled(step, 4, "wrong", 90, "length"))
        write_samples(run.samples(stage, step), lines)
        numbers = {"part/accuracy": step / 10, "part/accuracy/format": 1.0} if parts else {}
        append_metrics(
            run.metrics, stage, step, 1.0, reward_mean=step / 10, completions=5, **numbers
        )


@pytest.fixture
def run(tmp_path):
    made = empty_run(tmp_path, spec=TWO)
    train(made, "rl", 3)
    train(made, "more", 4)
    dev = {"name": "dev", "benchmark": "train.dev", "role": "select"}
    record = type(RECORD)(**{**RECORD.__dict__, **dev})
    for step, right in ((2, 4), (3, 6)):
        add_scores(made, f"rl.step-{step:06d}", [1.0] * right + [0.0] * (8 - right), record)
    add_scores(made, "base", [1.0] * 20 + [0.0] * 20)
    return made


def test_rounds_follow_each_other_on_one_axis(run):
    one, two = rounds_of(gather(run))
    assert (one.stage, one.before, one.steps) == ("rl", 0, 3)
    assert (two.stage, two.before, two.steps, two.start) == ("more", 3, 4, "rl.step-3")
    assert two.completions == 20 and one.rewarded_by != two.rewarded_by
    assert [score.step for score in one.dev] == [2, 3]
    page = write_report(run)
    source = page.read_text(encoding="utf-8")
    section = source[source.index('id="rounds"') : source.index('id="training"')]
    assert "more ← rl · step 3: reward 0.1 → 0.4 in 4 steps" in section
    assert "rl ← sft.last: reward 0.1 → 0.3 in 3 steps" in section
    assert "n = 35 completions" in section and "Rounds with another reward" in section
    # A chart for each reward, with a mark where its round ends.
    assert section.count("<svg") == section.count('l-3.5 6h7z" class="mark"') == 2
    assert "Reward of rl, mean" in section and "Reward of more, mean" in section
    markdown = (run.path / "report.md").read_text(encoding="utf-8")
    assert "- more ← rl · step 3: reward 0.1 → 0.4 in 4 steps" in markdown


def test_no_mark_of_a_figure_lies_outside_of_it(run):
    source = write_report(run).read_text(encoding="utf-8")
    section = source[source.index('id="rounds"') : source.index('id="training"')]
    drawings = re.findall(r'<svg viewBox="0 0 ([\d.]+) ([\d.]+)" role.*?</svg>', section, re.S)
    bodies = re.findall(r'<svg viewBox="0 0 [\d.]+ [\d.]+" role.*?</svg>', section, re.S)
    assert bodies
    for (width, height), body in zip(drawings, bodies, strict=True):
        for axis, end in (("x", float(width)), ("y", float(height))):
            values = re.findall(rf' (?:c?{axis}|{axis}[12])="(-?[\d.]+)"', body)
            assert all(0 <= float(value) <= end for value in values)


def answers(lengths, scores, ended="stop", items=None):
    names = items or [f"i{n}" for n in range(len(lengths))]
    return [
        {"item_id": i, "score": s, "error": "", "completion_tokens": n, "ended": ended}
        for i, n, s in zip(names, lengths, scores, strict=True)
    ]


def test_answers_are_binned_by_length_with_wilson_intervals():
    draw = np.random.default_rng(0)
    lengths = draw.permutation(np.arange(48)).tolist()
    lines = answers(lengths, [float(n < 24) for n in lengths])
    cut = answers([64] * 5, [0.0] * 5, "length", [f"c{n}" for n in range(5)])
    unscored = answers([3], [None], items=["u"])
    found = lengths_of_record("base", [*lines, *cut, *unscored])
    assert found is not None and found.truncated is not None
    assert [(each.low, each.high) for each in found.bins] == [(8 * n, 8 * n + 7) for n in range(6)]
    assert [each.share for each in found.bins] == [1, 1, 1, 0, 0, 0]
    assert found.bins[0].interval == wilson(8, 8)
    assert (found.truncated.answers, found.truncated.share) == (5, 0.0)


def test_a_right_answer_that_costs_something_off_its_score_is_right_in_its_bin():
    lines = answers([*range(48)], [0.93] * 48)
    judged = [{**each, "outcome": "right"} for each in lines[:24]]
    found = lengths_of_record("base", [*judged, *lines[24:]])
    assert found is not None and [each.share for each in found.bins] == [1, 1, 1, 0, 0, 0]


def test_every_answer_is_in_one_bin():
    lengths = [3] * 30 + [4] * 9 + [5] * 9 + [9] * 3
    found = lengths_of_record("base", answers(lengths, [1.0] * 51))
    assert found is not None
    bins = [(each.low, each.high, each.answers) for each in found.bins]
    assert bins == [(3, 3, 30), (4, 4, 9), (5, 9, 12)]


def test_answers_to_one_item_are_one_cluster():
    items = [f"i{n // 4}" for n in range(16)]
    scores = [float(n // 4 % 2) for n in range(16)]
    lines = answers([5] * 8 + [9] * 8, scores, items=items)
    found = lengths_of_record("base", lines)
    assert found is not None and len(found.bins) == 2
    assert found.bins[0].interval == grouped(scores[:8], items[:8], (0.0, 1.0)).interval
    assert found.bins[0].interval.half_width > wilson(4, 8).half_width


def test_answers_of_one_length_or_too_few_have_no_figure():
    assert lengths_of_record("base", answers([5] * 40, [1.0] * 40)) is None
    assert lengths_of_record("base", answers(list(range(15)), [1.0] * 15)) is None
    uncounted = answers([None] * 40, [1.0] * 40)
    assert lengths_of_record("base", uncounted) is None


def test_without_a_figure_there_is_no_section(tmp_path):
    run = empty_run(tmp_path)
    train(run, "rl", 3, parts=False)
    add_scores(run, "base", [0.0] * 4)
    page = Page(write_report(run))
    assert ("section", "id", "training") in page.attributes
    assert ("section", "id", "rounds") not in page.attributes
    assert ("section", "id", "lengths") not in page.attributes


def test_the_page_shows_the_bins_of_the_main_evaluation(run):
    lines = [
        answer("held_out", "rl.step-000003", item, 0, float(n % 2), completion_tokens=10 + n)
        for n, item in enumerate(item_ids(40))
    ]
    add_record(run, "rl.step-000003", lines)
    page = Page(write_report(run))
    markdown = (run.path / "report.md").read_text(encoding="utf-8")
    assert "| rl · step 3 | 10–17 | 50.0% |" in markdown
    assert page.row("rl · step 3", "10–17")[-1] == "8"
