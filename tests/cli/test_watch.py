"""The progress that `assay report` shows, and `assay runs log`."""

from dataclasses import replace
from pathlib import Path

import pytest

from assay.runs.run_directory import RunDirectory, stored_status, write_status
from tests.cli.conftest import answer, assert_one_line, call
from tests.lab.watched import watched_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return watched_run(tmp_path)


def mark(run: RunDirectory, **status: object) -> None:
    write_status(run.path, replace(stored_status(run.path), **status))  # type: ignore[arg-type]


def test_a_report_shows_the_steps_that_are_asked_for(run):
    result = call("report", "demo", "--lab", run.root, "--from", 5, "--to", 20)
    assert result.exit_code == 0, result.stderr
    assert "Progress of rl: step 5 to step 20" in result.stdout
    assert "early" in result.stdout and "missed" in result.stdout
    told = answer(call("report", "demo", "--lab", run.root, "--stage", "sft", "--json"))["result"]
    progress = told["progress"]
    assert (progress["stage"], progress["from"], progress["to"]) == ("sft", 1, 14)
    (nll,) = [m for m in progress["metrics"] if m["metric"] == "nll"]
    assert nll["trend"]["slope"] < 0 and nll["after"]["value"] < nll["before"]["value"]
    early = {each["rule"]: each for each in progress["conditions"]}["early"]
    assert (early["metric"], early["consequence"]) == ("truncated_share", "expect")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "demo", "--from", 99), ("no step 99", "steps 1 to 24")),
        (("report", "demo", "--from", 9, "--to", 3), ("step 9 is not before step 3",)),
        (("report", "demo", "--stage", "rll"), ("'rll'", "'rl'")),
        (("report", "demo", "--lang", "fr"), ("'fr'",)),
        (("runs", "log", "dmeo", "--note", "x"), ("'dmeo'", "'demo'")),
        (("runs", "log", "demo", "--note", " "), ("empty",)),
        (("runs", "log", "--note", "x"), ("needs a run",)),
        (("runs", "log", "--lang", "fr"), ("'fr'",)),
        (("resume", "demo", "--past-guard"), ("finished",)),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(run, arguments, words):
    assert_one_line(call(*arguments, "--lab", run.root), *words)


def test_notes_are_added_and_shown(run):
    noted = call("runs", "log", "demo", "--note", "hotter next time", "--lab", run.root)
    assert noted.exit_code == 0 and "hotter next time" in noted.stdout
    assert "hotter next time" in call("runs", "log", "--lab", run.root).stdout
    told = answer(call("runs", "log", "demo", "--lab", run.root, "--json"))["result"]
    assert [note["text"] for note in told["notes"]] == ["hotter next time"]
