"""Progress in words: both languages, intervals on rates, nothing that could become markup."""

from pathlib import Path

import pytest

from assay.judge.intervals import Estimate, Interval
from assay.lab.monitor.progress import MetricRow, progress
from assay.pages.markdown import page_markdown
from assay.pages.progress_content import figures_of, forecasts, progress_page
from assay.pages.run_page import write_progress, write_report
from assay.pages.words import words
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import write_listed
from tests.lab.watched import change_metrics, watched_run
from tests.pages.pages import Page
from tests.pages.synthetic import RECORD, add_scores, demo_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return watched_run(tmp_path)


def text(run: RunDirectory, lang: str = "en", **span: object) -> str:
    """The progress report of a span."""
    found = progress(run, **span)  # type: ignore[arg-type]
    assert found is not None
    return page_markdown(progress_page(found, words(lang)))


def row_of(shown: str, label: str) -> list[str]:
    """The cells of a row of the report."""
    rows = [line.strip("| ").split(" | ") for line in shown.splitlines() if line.startswith("|")]
    return next(row for row in rows if row[0].strip("*").startswith(label))


def test_a_rate_is_written_with_its_interval_and_what_it_was_counted_on(run):
    shown = text(run, first=5, last=20)
    signal = row_of(shown, "Groups with reward variance (signal)")[2]
    assert signal.endswith("n = 4") and " to " in signal and signal.count("%") == 3
    assert "of 4 prompts" in row_of(shown.partition("| Metric |")[2], "Mean reward")[2]
    assert "a step" in row_of(shown, "Entropy")[4]


def test_a_part_of_a_reward_that_is_no_share_is_an_amount_everywhere_in_its_row():
    ends = [Estimate(value, Interval(low, 0.8, ""), 9) for value, low in ((-1.6, -3.8), (0.5, 0.2))]
    row = MetricRow("part/net", *ends, change=Interval(-1.0, 5.2, ""), trend=None)
    assert figures_of(row, words("en"))[:3] == (
        "−1.6 (−3.8 to 0.8), n = 9",
        "0.5 (0.2 to 0.8), n = 9",
        "+2.1 (−1 to +5.2)",
    )


def test_milestones_show_state_expectation_and_value(run):
    shown = text(run)
    early = row_of_condition(shown, "early")
    assert early[0] == "reached" and early[2] == "Truncated completions below 50.0% at step 5 of rl"
    assert row_of_condition(shown, "hopeful")[0] == "missed"
    cut = row_of_condition(shown, "cut")
    assert cut[2] == "stops the run: Truncated completions above 50.0% for 3 steps in a row"
    assert row_of_condition(shown, "typo")[0] == "not recorded"
    assert row_of_condition(text(run, last=12), "late")[0] == "to come"


def row_of_condition(shown: str, name: str) -> list[str]:
    rows = [line.strip("| ").split(" | ") for line in shown.splitlines() if line.startswith("|")]
    return [cell.strip("*") for cell in next(row for row in rows if row[1:2] == [name])]


def test_forecasts_name_their_assumption_and_the_budget(run):
    told = progress(run)
    assert told is not None
    said = forecasts(told, words("en"))
    (seconds,) = [line for line in said if line.startswith("Seconds of training")]
    assert "remaining steps cost what the 24 steps seen cost" in seconds
    assert "of the budget of 5,000" in seconds
    assert "The budget of Cost is not watched: no step recorded it." in said


def test_a_report_of_one_step_goes_from_the_one_before_it(run):
    first = write_progress(run, "rl", 5, "zh")
    second = write_progress(run, "rl", 10)
    assert "第 5 步" in first.read_text(encoding="utf-8")
    text = second.read_text(encoding="utf-8")
    assert "Progress of rl: step 5 to step 10" in text


def test_names_and_metrics_cannot_write_markup(tmp_path):
    run = demo_run(tmp_path)
    spec = run.spec.read_text(encoding="utf-8")
    table = '\n[milestone.m]\nstage = "rl"\nstep = 40\nabout = "<script>x</script> | [a](b)"\n'
    write_listed(run.path, run.spec, spec + table)
    change_metrics(run, **{"<img src=x>": 1.0})
    page = Page(write_report(run))
    assert "script" not in page.elements and "img" not in page.elements
    markdown = (run.path / "report.md").read_text(encoding="utf-8")
    assert "<script>" not in markdown and "\\<img" in markdown


def test_a_stage_that_started_from_what_was_measured_shows_it_as_step_zero(tmp_path):
    from assay.runs.history import History

    run = demo_run(tmp_path)
    from dataclasses import replace

    dev = replace(RECORD, name="dev", benchmark="train.dev", role="select")
    add_scores(run, "sft.step-000014", [1.0] * 7 + [0.0] * 17, dev)
    assert [look.step for look in History(run).looks("rl")] == [0, 10, 20, 30, 40]
