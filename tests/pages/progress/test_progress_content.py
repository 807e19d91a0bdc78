"""Progress in words: both languages, intervals on rates, nothing that could become markup."""

from pathlib import Path

import pytest

from assay.judge.intervals import Estimate
from assay.lab.monitor.progress import MetricRow, progress
from assay.lab.monitor.report_journal import note_report
from assay.pages.progress.progress_content import (
    progress_section,
    row_view,
    signed_number,
    table_rows,
)
from assay.pages.run_page.page import Span, write_progress, write_report
from assay.pages.words import words
from assay.runs.checkpoints import Selection, write_selections
from assay.runs.run_directory import RunDirectory
from tests.lab.watched import change_metrics, watched_run
from tests.pages.pages import Page
from tests.pages.synthetic import RECORD, add_scores, demo_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return watched_run(tmp_path)


def section(run: RunDirectory, lang: str = "en", **span: object):
    found = progress(run, **span)  # type: ignore[arg-type]
    assert found is not None
    return progress_section(found, words(lang))


def test_a_rate_is_written_with_its_interval_and_what_it_was_counted_on(run):
    rows = {row["label"]: row for row in section(run, first=5, last=20)["rows"]}
    signal = rows["Groups with reward variance (signal)"]
    assert signal["after"].endswith("n = 4")
    assert " to " in signal["after"] and signal["after"].count("%") == 3
    assert "of 4 prompts" in rows["Mean reward"]["after"]
    assert "a step" in rows["Entropy"]["trend"]


def test_a_share_without_trials_says_that_its_trials_were_not_recorded():
    row = MetricRow("error_share", None, Estimate(0.25, None), None, None)
    assert row_view(row, words("en"))["after"] == "25.0% (trials not recorded)"


def test_what_never_changed_is_one_line_and_no_row(run):
    change_metrics(run, error_share=0.25)
    found = section(run)
    assert "error_share 25.0%" in found["constant"] and found["constant"].startswith("Constant: ")
    assert not any("error_share" in row["label"] for row in found["rows"])


def test_metrics_with_the_same_figures_share_a_row():
    values = {"a": 1, "b": 2, "c": 1}
    rows = [MetricRow(n, None, Estimate(v, None), None, None) for n, v in values.items()]
    shown = table_rows(rows, words("en"))
    assert [(row["label"], row["after"]) for row in shown] == [("a, c", "1"), ("b", "2")]


def test_since_when_the_table_counts_is_said(run):
    assert section(run)["about"].endswith("Since step 1.")
    note_report(run, "rl", 20, "milestone")
    assert "Since the report after step 20 (milestone, 20" in section(run)["about"]
    assert "里程碑" in section(run, "zh")["about"]


def test_milestones_show_state_expectation_and_value(run):
    found = {m["name"]: m for m in section(run)["milestones"]}
    assert (found["early"]["state"], found["hopeful"]["state"]) == ("met", "missed")
    assert found["early"]["expected"] == "Truncated completions below 50.0% at step 5 of rl"
    assert found["early"]["about"] == "answers end by themselves"
    pending = {m["name"]: m for m in section(run, last=8)["milestones"]}["late"]
    assert pending["state"] == "pending"
    assert "at step 20" in pending["value"] and "straight line" in pending["value"]


def test_forecasts_name_their_assumption_and_the_budget(run):
    said = section(run)["forecasts"]
    (seconds,) = [line for line in said if line.startswith("Seconds of training")]
    assert "remaining steps cost what the 24 steps seen cost" in seconds
    assert seconds.endswith("the budget is 5,000")
    assert "The budget of Cost is not watched: no step recorded it." in said


def test_guards_are_listed_with_their_state(run):
    found = {g["name"]: g for g in section(run)["guards"]}
    assert found["cut"]["state"] == "armed"
    assert "above 50.0% for 3 steps in a row (every stage)" in found["cut"]["condition"]
    assert found["typo"]["state"].startswith("watches nothing")


def test_findings_come_with_evidence_and_advice_in_both_languages(run):
    change_metrics(run, abstained_share=0.9)
    (english,) = [f for f in section(run)["findings"] if "rewards fail" in f["what"]]
    assert "90.0%" in english["evidence"] and "deadline" in english["fix"]
    chinese = [f["what"] for f in section(run, "zh")["findings"]]
    assert "reward 未能评分" in chinese


def test_nothing_to_tell_is_said_too(run):
    change_metrics(run, **dict.fromkeys(("entropy", "reward_mean"), 0.4))
    said = section(run, first=1, last=2)["changes"]
    assert said == ["No significant change."] or all("apart" in line for line in said)


def test_a_promotion_is_explained_with_the_number_of_looks(run):
    kept = Selection("sft.step-000014", "sft.step-000014", "dev", 0.4, looks=2)
    write_selections(run.path, "rl", [kept])
    assert section(run)["promotion"] == "rl.best is sft · step 14."


def test_the_pages_carry_the_progress_of_the_span_that_is_asked_for(run):
    page = Page(write_report(run, "en", Span("rl", 5, 20)))
    assert "Progress of rl: step 5 to step 20" in page.source
    markdown = (run.path / "report.md").read_text(encoding="utf-8")
    assert "## Progress of rl: step 5 to step 20" in markdown
    assert "| Step 5 | Step 20 |" in markdown
    assert "Step 20" in [" ".join(cell.split()) for cell in page.rows[_table(page)]]


def _table(page: Page) -> int:
    return next(i for i, row in enumerate(page.rows) if row and row[0].strip() == "Metric")


def test_a_report_of_one_step_is_written_and_entered_into_the_journal(run):
    first = write_progress(run, "rl", 5, "milestone", "zh")
    second = write_progress(run, "rl", 10, "steps")
    assert "第 5 步" in first.read_text(encoding="utf-8")
    text = second.read_text(encoding="utf-8")
    assert "Progress of rl: step 5 to step 10" in text and "Health of the training" in text


def test_names_and_metrics_cannot_write_markup(tmp_path):
    run = demo_run(tmp_path)
    spec = run.spec.read_text(encoding="utf-8")
    table = '\n[milestone.m]\nstage = "rl"\nstep = 40\nabout = "<script>x</script> | [a](b)"\n'
    run.spec.write_text(spec + table, encoding="utf-8")
    change_metrics(run, **{"<img src=x>": 1.0})
    page = Page(write_report(run))
    assert "script" not in page.elements and "img" not in page.elements
    markdown = (run.path / "report.md").read_text(encoding="utf-8")
    assert "<script>" not in markdown and "\\<img" in markdown


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "+0"), (1e-15, "+0"), (0.1234, "+0.123"), (-2.0, "−2")]
)
def test_differences_carry_a_sign(value, text):
    assert signed_number(value) == text


def test_a_stage_that_started_from_what_was_measured_shows_it_as_step_zero(tmp_path):
    from assay.lab.monitor.stage_health import explained
    from assay.runs.history import History

    run = demo_run(tmp_path)
    from dataclasses import replace

    dev = replace(RECORD, name="dev", benchmark="train.dev", role="select")
    add_scores(run, "sft.step-000014", [1.0] * 7 + [0.0] * 17, dev)
    assert [look.step for look in History(run).looks("rl")] == [0, 10, 20, 30, 40]
    found = explained(History(run), "rl")
    assert found is not None and set(found.looks) == {10, 20, 30, 40}
    assert "rl.best" in section(run)["promotion"] and "4 comparisons" in section(run)["promotion"]
