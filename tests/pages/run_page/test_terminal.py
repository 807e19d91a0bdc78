"""The terminal shows the page's figures, and text that a model wrote stays text."""

from dataclasses import replace

import pytest

from assay.compare.judged_table import compare_checkpoints
from assay.library.typed_results import Run
from assay.pages.facts import gather
from assay.pages.run_page import page_of
from assay.pages.run_terminal import MOST_LINES, ended_text, ending, final_blocks, summary_line
from assay.pages.story import next_command
from assay.pages.words import percent
from assay.runs.metrics import append_metrics
from assay.runs.run_directory import RunDirectory, hold_run, stored_status, write_status
from tests.compare.test_judged_table import control_of, previous_of
from tests.pages.pages import printed
from tests.pages.run_page.test_page import small_run
from tests.pages.synthetic import Shape, demo_run, empty_run


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return demo_run(tmp_path_factory.mktemp("lab"), Shape(items=60, steps=4, groups=4))


def test_the_final_table_has_the_judges_figures(demo):
    text = printed(final_blocks(demo))
    for line in compare_checkpoints(demo, "held_out").lines:
        assert percent(line.score) in text
        assert f"{percent(line.interval.low)} to {percent(line.interval.high)}" in text
    assert "1 unscored" in text and "not run" in text


def test_the_summary_is_one_line(demo):
    line = compare_checkpoints(demo, "held_out").lines[-1]
    summary = summary_line(demo)
    assert "\n" not in summary
    assert summary.startswith(f"{demo}: {percent(line.score)} (")
    assert f"{control_of(line).comparison.verdict}: rl · step 30 against base: " in summary
    assert f"{previous_of(line).comparison.verdict}: rl · step 30 against sft · step 14" in summary


def test_answers_cannot_command_the_terminal(tmp_path):
    run = small_run(tmp_path, ["\x1b[2J[bold red]wiped[/]", "\x1b]0;title\x07"])
    text = printed(final_blocks(run))
    assert "\x1b[2J" not in text and "\x07" not in text
    assert "␛[2J[bold red]wiped[/]" in text


def warned_run(root):
    """A run with more to look at than the last lines of a terminal hold."""
    run = small_run(root, ["a"] * 4)
    for step in range(1, 31):
        bad = {"reward_mean": 0.0, "signal_share": 0.0, "abstained_share": 0.9, "grad_norm": 0.0}
        bad |= {"truncated_share": 0.95, "entropy": 1e-4, "kl": 50.0 * step, "skipped_steps": 1.0}
        append_metrics(run.metrics, "rl", step, 1.0, **bad)
    return run


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_run_ends_in_few_lines_however_much_there_is_to_look_at(tmp_path, monkeypatch, lang):
    monkeypatch.chdir(tmp_path)
    run = warned_run(tmp_path)
    *body, page = ending([(run, "finished")], lang)
    shown_lines = printed(body, lang, 80).splitlines()
    # A terminal breaks a long path itself, and it stays whole for the mouse.
    assert len(shown_lines) + 1 <= MOST_LINES and printed([page], lang).strip().endswith(
        page_of(run, lang).name
    )
    text = "\n".join(shown_lines)
    undecided, more = {"en": ("undecided", "more\n"), "zh": ("无法定论", "另有")}[lang]
    assert undecided in text and more in text
    mends = {"en": "What it mends", "zh": "改善什么"}[lang]
    assert mends in printed(final_blocks(run, lang), lang), "--full has the improvements"
    assert f"assay report {run.name} --full" in text


@pytest.mark.parametrize("count", [2, 12])
def test_several_seeds_end_in_few_lines_each_with_its_verdict(tmp_path, count):
    run = warned_run(tmp_path)
    *body, _ = ending([(run, "finished")] * count)
    shown_lines = printed(body, width=200).splitlines()
    assert len(shown_lines) + 1 <= MOST_LINES
    verdicts = [line for line in shown_lines if "undecided" in line and "error" in line]
    assert len(verdicts) == min(count, 9)


def test_a_run_in_a_notebook_is_text_for_people(tmp_path, demo):
    text = repr(Run(demo))
    assert text == ended_text(demo) and "RunDirectory(" not in text
    assert text.startswith(f"{demo}: finished\n") and "better: rl" in text
    empty = repr(Run(empty_run(tmp_path)))
    assert "not measured" in empty.lower() and "Traceback" not in empty
    lost = repr(Run(RunDirectory(tmp_path, "none", "x")))
    assert lost.startswith("none/x: ") and "\n" not in lost


def test_the_next_command_follows_from_the_state_of_the_run(tmp_path, demo):
    def following(run):
        return next_command(gather(run))

    assert following(demo) == f"assay export {demo.name}@rl.step-000030 DIR"
    run = small_run(tmp_path, ["a"] * 30)
    assert following(run) == f"assay report {run.name} --full"
    for state in ("failed", "interrupted"):
        write_status(run.path, replace(stored_status(run.path), status=state))
        assert following(run) == f"assay resume {run.name}"
    write_status(run.path, replace(stored_status(run.path), status="running"))
    with hold_run(run.path):
        assert following(run) == f"assay report {run.name}"
