"""The progress that `assay report` shows, also with `--watch`, and `assay runs log`."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from assay.pages.run_page.terminal import Seen, follow
from assay.runs.run_directory import RunDirectory
from assay.runs.status import hold_run, stored_status, write_status
from tests.cli.conftest import TinyLab, answer, assert_one_line, call
from tests.lab.watched import watched_run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return watched_run(tmp_path)


def mark(run: RunDirectory, **status: object) -> None:
    write_status(run.path, replace(stored_status(run.path), **status))  # type: ignore[arg-type]


def test_watching_a_finished_run_shows_it_once_and_ends(run):
    result = call("report", "demo", "--watch", "--lab", run.root, "--json")
    assert result.exit_code == 0
    told = answer(result)["result"]
    assert told["ended"] and told["status"] == "finished"
    assert (told["progress"]["stage"], told["progress"]["to"]) == ("rl", 24)
    assert result.stderr.count("is finished") == 1


def test_watching_a_run_that_failed_ends_with_a_failure_and_says_why(run):
    mark(run, status="failed", message="guard 'cut' stopped the run", guard="cut")
    result = call("report", "demo", "--watch", "--lab", run.root)
    assert result.exit_code == 1
    assert (
        "guard 'cut' stopped the run" in result.stdout
        and result.stdout.count("stopped the run") > 1
    )


def test_a_running_run_is_followed_until_it_ends(run):
    seen: list[Seen] = []

    def sleep(_: float) -> None:
        """What the run does while nobody looks."""
        if len(seen) == 1:
            mark(run, step=24, stage="rl", status="running", message="x")
        elif len(seen) == 2:
            mark(run, status="finished", message="")

    mark(run, status="running", step=23)
    with hold_run(run.path):
        for each in follow(run, 1.0, sleep):
            seen.append(each)
    assert [(s.status.status, s.status.step, s.ended) for s in seen] == [
        ("running", 23, False),
        ("running", 24, False),
        ("finished", 24, True),
    ]
    assert all(s.progress is not None and s.progress.last == 24 for s in seen)


def test_a_run_whose_process_died_ends_the_watch(run):
    mark(run, status="running")
    (seen,) = list(follow(run, 1.0, lambda _: None))
    assert seen.status.status == "interrupted"


# Tests may be run in the background, where Ctrl-C is ignored.
WATCH = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "sys.argv[0] = 'assay'; from assay.cli.main import app; app()"
)


def test_ctrl_c_stops_watching_and_not_the_run(run):
    mark(run, status="running")
    with hold_run(run.path):
        process = subprocess.Popen(
            [sys.executable, "-c", WATCH, "report", "demo", "--watch", "--lab", str(run.root)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert process.stderr is not None and "is running" in process.stderr.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
    assert process.returncode == 0, error
    assert "the run goes on" in out and "Traceback" not in error


def test_a_run_without_a_step_can_be_watched(tmp_path):
    from tests.pages.synthetic import empty_run

    run = empty_run(tmp_path)
    result = call("report", "demo", "--watch", "--lab", run.root, "--lang", "zh")
    assert result.exit_code == 0 and "尚无训练步" in result.stdout


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


def test_a_report_on_a_running_run_counts_from_the_last_one(run):
    mark(run, status="running", step=24, stage="rl")
    with hold_run(run.path):
        first = answer(call("report", "demo", "--lab", run.root, "--json"))["result"]
        assert (first["status"], first["progress"]["from"]) == ("running", 1)
        (entry,) = (run.path / "reports.jsonl").read_text().splitlines()
        assert json.loads(entry)["step"] == 24
        again = answer(call("report", "demo", "--lab", run.root, "--json"))["result"]
        assert again["progress"]["from"] == 1, "the same step is no step further"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "demo", "--from", 99), ("no step 99", "steps 1 to 24")),
        (("report", "demo", "--from", 9, "--to", 3), ("step 9 is not before step 3",)),
        (("report", "demo", "--stage", "rll"), ("'rll'", "'rl'")),
        (("report", "dmeo", "--watch"), ("'dmeo'", "'demo'")),
        (("report", "demo", "--watch", "--lang", "fr"), ("'fr'",)),
        (("runs", "log", "dmeo"), ("'dmeo'", "'demo'")),
        (("runs", "log", "dmeo", "--note", "x"), ("'dmeo'", "'demo'")),
        (("runs", "log", "demo", "--note", " "), ("empty",)),
        (("runs", "log", "--note", "x"), ("needs a run",)),
        (("runs", "log", "demo", "--note", "x", "--plan", "y"), ("exclude",)),
        (("runs", "log", "demo/1", "--plan", "y"), ("more than a name",)),
        (("runs", "log", "--lang", "fr"), ("'fr'",)),
        (("resume", "demo", "--past-guard"), ("finished",)),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(run, arguments, words):
    assert_one_line(call(*arguments, "--lab", run.root), *words)


def test_notes_and_plans_are_added_and_shown(run):
    noted = call("runs", "log", "demo", "--note", "hotter next time", "--lab", run.root)
    assert noted.exit_code == 0 and "hotter next time" in noted.stdout
    planned = call("runs", "log", "verl9", "--plan", "instruct model", "--lab", run.root, "--json")
    assert answer(planned)["result"]["about"] == "verl9"
    shown = call("runs", "log", "--lab", run.root)
    assert "hotter next time" in shown.stdout and "verl9 · planned · pending" in shown.stdout
    told = answer(call("runs", "log", "demo", "--lab", run.root, "--json"))["result"]
    assert [note["text"] for note in told["notes"]] == ["hotter next time"]


def test_a_lab_without_runs_has_an_empty_notebook(tmp_path):
    result = call("runs", "log", "--lab", tmp_path)
    assert result.exit_code == 0 and result.stdout.startswith("# Notebook of")


GUARD = '\n[guard.always]\nstage = "sft"\nmetric = "rows"\nabove = 0.0\n'


def test_a_guard_stops_assay_run_and_assay_resume_says_what_it_takes(lab: TinyLab):
    lab.shrink()
    lab.file.write_text(lab.file.read_text() + GUARD)
    short = ("--set", "stage.sft.steps=1", "--set", "stage.rl.steps=1")
    stopped = call("run", lab.file, "--lab", lab.root, *short)
    assert_one_line(stopped, "guard 'always' stopped the run at sft step 1", code=1)
    assert list(lab.root.glob("runs/tiny/*/reports/sft/step-000001.md"))
    assert_one_line(call("run", lab.file, "--lab", lab.root, *short), "--past-guard", "--new")
    assert_one_line(call("resume", "tiny", "--lab", lab.root), "'always'", "--past-guard")
    done = call("resume", "tiny", "--past-guard", "--lab", lab.root, "--json")
    assert done.exit_code == 0, done.stderr
    assert answer(done)["result"]["status"] == "finished"
