"""`assay patterns` writes its page, answers in JSON, and refuses what has no programs."""

from pathlib import Path

import pytest

from assay.runs.run_directory import RunDirectory
from tests.cli.conftest import answer, call
from tests.pages.synthetic import Shape, demo_run
from tests.tasks.workflows.patterns.program_lab import (
    CUSTOM,
    PROGRAMMER,
    Drawn,
    add_answers,
    empty_run,
    problem_row,
    program_run,
    rewarded,
)

SMALL = Drawn(prompts=6, group=4)
ANSWERED = [("a", CUSTOM, rewarded(problem_row("a", "math"), CUSTOM, True))]


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return program_run(tmp_path, SMALL)


def test_the_page_is_written_and_everything_is_in_the_json(tmp_path, run):
    result = answer(call("patterns", "flows", "--lab", tmp_path, "--json"))["result"]
    assert Path(result["page"]) == run.path / "patterns.html"
    assert (run.path / "patterns.md").read_text().startswith("# Patterns of flows")
    found = result["patterns"]
    assert found["completions"] == 48 and found["source"]["stage"] == "rl"
    kinds = {(p["kind"], p["value"]) for p in found["rewards"]["patterns"]}
    assert ("operator", "Programmer") in kinds and ("structure", "loop") in kinds
    row = found["choice"]["by_type"]["rows"][0]
    assert row["cells"]["math"]["programs"] == 24 and "effect" in row["cells"]["math"]


def test_an_evaluation_is_read_at_its_last_or_a_named_checkpoint(tmp_path, run):
    row = problem_row("a", "math")
    for checkpoint, right in (("base", False), ("rl.step-000004", True)):
        answers = [("a", CUSTOM, rewarded(row, CUSTOM, right))]
        answers += [("a", PROGRAMMER, rewarded(row, PROGRAMMER, True))]
        add_answers(run, checkpoint, answers)
    given = ("patterns", "flows", "--evaluation", "problems", "--lab", tmp_path, "--json")
    last = answer(call(*given))["result"]["patterns"]
    base = answer(call(*given, "--checkpoint", "base"))["result"]["patterns"]
    assert last["source"]["checkpoint"] == "rl.step-000004"
    assert (last["rewards"]["with_signal"], base["rewards"]["with_signal"]) == (0, 1)
    assert base["source"] == {
        "stage": None,
        "first": None,
        "last": None,
        "evaluation": "problems",
        "checkpoint": "base",
    }


def test_chinese_is_shown_and_written(tmp_path, run):
    result = call("patterns", "flows", "--lang", "zh", "--lab", tmp_path)
    assert "程序模式" in result.stdout and "What is shown" not in result.stdout
    assert '<html lang="zh">' in (run.path / "patterns.zh.html").read_text(encoding="utf-8")


def refused(tmp_path: Path, *arguments: object) -> str:
    result = call("patterns", *arguments, "--lab", tmp_path)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def test_a_run_without_samples_is_refused(tmp_path):
    empty_run(tmp_path, "bare")
    assert "has no samples" in refused(tmp_path, "bare")
    assert "--evaluation NAME" in refused(tmp_path, "bare")


def test_a_run_without_programs_is_refused(tmp_path):
    demo_run(tmp_path, Shape(items=5, steps=2, groups=2), "tools")
    said = refused(tmp_path, "tools")
    assert "hold no programs" in said and "operators" in said


def test_an_unknown_stage_names_the_nearest(tmp_path, run):
    assert "has no samples of 'rk' (" in refused(tmp_path, "flows", "--stage", "rk")
    assert "rl" in refused(tmp_path, "flows", "--stage", "rk")
    assert "has no samples of 'warm'" in refused(tmp_path, "flows", "--stage", "warm")


def test_steps_that_are_not_there_are_refused(tmp_path, run):
    said = refused(tmp_path, "flows", "--from", 9)
    assert "steps 9 to the last" in said and "it has steps 1 to 4" in said
    assert "steps 3 to 2" in refused(tmp_path, "flows", "--from", 3, "--to", 2)


def test_an_evaluation_without_facts_is_refused(tmp_path, run):
    add_answers(run, "base", ANSWERED, facts=False)
    said = refused(tmp_path, "flows", "--evaluation", "problems")
    assert "the answers of 'problems'" in said and "hold no programs" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--evaluation", "problem"), "has no evaluation 'problem'"),
        (("--evaluation", "problems", "--stage", "rl"), "neither stage nor steps"),
        (("--evaluation", "problems", "--to", "3"), "--to"),
        (("--evaluation", "problems", "--checkpoint", "rl.last"), "did not measure 'rl.last'"),
        (("--checkpoint", "base"), "--evaluation"),
        (("--lang", "fr"), "no pages in 'fr'"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path, run, arguments, said):
    add_answers(run, "base", ANSWERED)
    assert said in refused(tmp_path, "flows", *arguments)


def test_an_unknown_run_is_refused(tmp_path, run):
    assert "nobody" in refused(tmp_path, "nobody")
