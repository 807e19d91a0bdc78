"""The terminal shows the page's figures, and text that a model wrote stays text."""

import io

import pytest
from rich.console import Console

from assay.compare.judged_table import compare_checkpoints
from assay.report.run_page.terminal import example_panels, final_table, summary_line
from assay.report.words import percent
from tests.compare.test_judged_table import control_of, previous_of
from tests.report.run_page.test_page import small_run
from tests.report.synthetic import Shape, demo_run, empty_run


def shown(renderable) -> str:
    console = Console(file=io.StringIO(), width=160, force_terminal=True, color_system=None)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return demo_run(tmp_path_factory.mktemp("lab"), Shape(items=60, steps=4, groups=4))


def test_the_final_table_has_the_judges_figures(demo):
    text = shown(final_table(demo))
    for line in compare_checkpoints(demo, "held_out").lines:
        assert percent(line.score) in text
        assert f"{percent(line.interval.low)} to {percent(line.interval.high)}" in text
    assert "1 unscored" in text and "not run" in text


def test_the_summary_is_one_line(demo):
    line = compare_checkpoints(demo, "held_out").lines[-1]
    summary = summary_line(demo)
    assert "\n" not in summary
    assert summary.startswith(f"rl · step 30: {percent(line.score)} (")
    assert f"against base: {control_of(line).comparison.verdict}, " in summary
    assert f"against sft · step 14: {previous_of(line).comparison.verdict}, " in summary


def test_a_run_without_records_has_a_line_too(tmp_path):
    run = empty_run(tmp_path)
    assert summary_line(run) == f"{run}: nothing measured yet"
    assert "not run" in shown(final_table(run))
    assert shown(example_panels(run)).strip() == ""


def test_answers_cannot_command_the_terminal(tmp_path):
    run = small_run(tmp_path, ["\x1b[2J[bold red]wiped[/]", "\x1b]0;title\x07"])
    text = shown(example_panels(run))
    assert "\x1b[2J" not in text and "\x07" not in text
    assert "␛[2J[bold red]wiped[/]" in text
