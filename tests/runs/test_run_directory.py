"""Runs come into being whole, are found by name, and know whether their process lives."""

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from assay.errors import InputError
from assay.experiment.checkpoint_reference import (
    CheckpointReference,
    checkpoint_name,
    parse_checkpoint,
)
from assay.runs import run_directory
from assay.runs.run_directory import (
    RunDirectory,
    create_run,
    hold_run,
    read_status,
    runs_of,
    stored_status,
)
from assay.runs.run_files import DamagedFile, Selection, read_selection, write_selections
from assay.runs.run_names import (
    RunNotFound,
    RunReference,
    checkpoint_directory,
    find_run,
    parse_run_name,
    resolve_checkpoint,
)

HOLD = """
import sys, time
from pathlib import Path
from assay.runs.run_directory import hold_run
with hold_run(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def make(root: Path, name: str = "demo", seed: int = 42, id_: str | None = None) -> RunDirectory:
    with patch.object(run_directory, "_next_id", lambda *_: id_) if id_ else nullcontext():
        return create_run(root, name, seed=seed, spec="name = 'demo'\n", new=True)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return make(tmp_path)


def test_a_fresh_run_has_its_spec_and_is_running(tmp_path):
    run = create_run(tmp_path, "demo", seed=7, spec="name = 'é'\n")
    assert run.path.parent == tmp_path / "runs" / "demo"
    assert run.spec.read_text(encoding="utf-8") == "name = 'é'\n"
    assert (stored_status(run.path).status, stored_status(run.path).seed) == ("running", 7)


def test_a_name_that_has_a_run_is_refused_unless_new(tmp_path):
    first = create_run(tmp_path, "demo", seed=1, spec="")
    with pytest.raises(InputError) as raised:
        create_run(tmp_path, "demo", seed=1, spec="")
    assert str(raised.value) == (
        "a run named 'demo' exists (continue with 'assay resume demo', or start another with --new)"
    )
    assert raised.value.exit_code == 2
    assert runs_of(tmp_path, "demo") == [first]
    second = create_run(tmp_path, "demo", seed=1, spec="", new=True)
    assert second.path != first.path
    assert set(runs_of(tmp_path, "demo")) == {first, second}


def test_runs_are_in_the_order_in_which_they_were_made_whatever_the_clock_says(tmp_path):
    made = [make(tmp_path) for _ in range(20)]
    assert runs_of(tmp_path, "demo") == made
    later = [make(tmp_path, id_="20990101T000000Z-fffffe"), *(make(tmp_path) for _ in range(3))]
    assert runs_of(tmp_path, "demo") == [*made, *later]


def hold_elsewhere(run: RunDirectory) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_two_processes_cannot_hold_one_run_and_a_killed_one_is_interrupted(run):
    process = hold_elsewhere(run)
    try:
        assert read_status(run.path).status == "running"
        with pytest.raises(InputError) as raised, hold_run(run.path):
            pass
        assert str(raised.value) == (
            f"{run.path}: process {process.pid} is executing this run "
            "(wait for it to end, or stop it)"
        )
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert read_status(run.path).status == "interrupted"
    assert stored_status(run.path).status == "running"
    with hold_run(run.path):
        assert read_status(run.path).status == "running"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("demo/20260101T000000Z-abc", RunReference("demo", "20260101T000000Z-abc")),
        ("demo#-1", RunReference("demo", None, -1)),
        (
            "demo/abc@rl.step-000040",
            RunReference("demo", "abc", None, CheckpointReference("rl", "step", 40)),
        ),
        ("demo#1@rl.best", RunReference("demo", None, 1, CheckpointReference("rl", "best"))),
    ],
)
def test_names_are_parsed(text, expected):
    assert parse_run_name(text) == expected


@pytest.mark.parametrize("text", ["", "a/b/c", "a#x", "a b", "../up", "a/../b", "/tmp", "a#1/b"])
def test_what_is_no_name_is_refused(text):
    with pytest.raises(InputError, match="is not the name of a run"):
        parse_run_name(text)


@pytest.mark.parametrize("checkpoint", ["sft", "sft.first", "sft.step-x", "sft.all", "../x.last"])
def test_what_is_no_checkpoint_is_refused(checkpoint):
    with pytest.raises(InputError) as raised:
        parse_run_name(f"demo@{checkpoint}")
    assert str(raised.value) == (
        f"{checkpoint!r} is not a checkpoint "
        "(write STAGE.best, STAGE.last or STAGE.step-N after the @)"
    )


def find(root: Path, text: str) -> RunDirectory:
    return find_run(root, parse_run_name(text))


def test_a_bare_name_means_the_latest_and_a_seed_the_latest_of_it(tmp_path):
    ids = ["20260101T000000Z-aaaaaa", "20260102T000000Z-bbbbbb", "20260103T000000Z-cccccc"]
    first, second, third = (
        make(tmp_path, seed=seed, id_=id_) for seed, id_ in zip((1, 2, 1), ids, strict=True)
    )
    assert find(tmp_path, "demo") == third
    assert find(tmp_path, "demo#1") == third
    assert find(tmp_path, "demo#2") == second
    assert find(tmp_path, f"demo/{ids[0]}") == first
    assert find(tmp_path, "demo/bbbbbb") == second
    assert runs_of(tmp_path, "demo") == [first, second, third]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dem", "no run named 'dem' (did you mean 'demo'?)"),
        ("demo#3", "'demo' has no run with seed 3 (it has seeds 1)"),
        ("demo/bbbbbb", "'demo' has no run 'bbbbbb' (known: 20260101T000000Z-aaaaaa)"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_nearest(tmp_path, text, expected):
    make(tmp_path, seed=1, id_="20260101T000000Z-aaaaaa")
    with pytest.raises(RunNotFound) as raised:
        find(tmp_path, text)
    assert str(raised.value) == expected


def directory(run: RunDirectory, text: str) -> Path:
    reference = parse_checkpoint(text)
    assert reference is not None
    return checkpoint_directory(run, reference)


def test_checkpoints_are_found_by_step_last_and_best(run):
    for step in (8, 16, 1000000):
        run.checkpoint("sft", step).mkdir(parents=True)
    (run.checkpoints("sft") / ".step-000024.part").mkdir()
    assert run.checkpoint_steps("sft") == [8, 16, 1000000]
    assert directory(run, "sft.step-8") == run.checkpoint("sft", 8)
    assert directory(run, "sft.step-000016") == run.checkpoint("sft", 16)
    assert directory(run, "sft.last") == run.checkpoint("sft", 1000000)
    chosen = Selection("sft.step-000008", "base", "dev", 0.5, looks=3)
    write_selections(run.path, "sft", [chosen])
    write_selections(run.path, "rl", [replace(chosen, checkpoint="rl.step-000003")])
    assert read_selection(run.path, "sft") == chosen and chosen.promoted
    assert directory(run, "sft.best") == run.checkpoint("sft", 8)


def test_the_best_of_a_stage_may_be_what_it_started_from(run):
    for stage in ("sft", "rl"):
        run.checkpoint(stage, 8).mkdir(parents=True)
    kept = Selection("sft.step-000008", "sft.step-000008", "dev", 0.5, looks=3)
    write_selections(run.path, "rl", [kept])
    assert not kept.promoted
    assert directory(run, "rl.best") == run.checkpoint("sft", 8)
    found = resolve_checkpoint(run, CheckpointReference("rl", "best"))
    assert checkpoint_name(found) == "sft.step-000008"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "sft.step-9",
            "has no checkpoint sft.step-9 (did you mean 'sft.step-8' or 'sft.step-16'?)",
        ),
        ("sft.best", "has not chosen the best of 'sft' (take sft.last)"),
        ("rl.last", "has no checkpoint of 'rl' (it has checkpoints of sft)"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_refused(run, text, expected):
    for step in (8, 16):
        run.checkpoint("sft", step).mkdir(parents=True)
    with pytest.raises(InputError) as raised:
        directory(run, text)
    assert str(raised.value).startswith(f"{run} {expected}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value"),
        ('{"seed": 1, "started": "", "mood": "fine"}', "unexpected keyword argument 'mood'"),
        ('{"seed": 1, "started": "", "status": "asleep"}', "'status' is not of its type"),
    ],
)
def test_a_damaged_status_is_one_error_that_names_the_file(run, text, said):
    (run.path / "status.json").write_text(text)
    with pytest.raises(DamagedFile, match=said) as found:
        read_status(run.path)
    assert str(run.path / "status.json") in str(found.value)
    (run.path / "status.json").write_bytes(b"\xff\xfe")
    with pytest.raises(DamagedFile):
        read_status(run.path)
