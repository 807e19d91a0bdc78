"""The index says what the folders say, and nothing that is needed can be deleted."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.errors import InputError
from assay.runs.protection import (
    delete_checkpoint,
    delete_run,
    guard_delete,
    mark_protected,
    protected_paths,
    references,
)
from assay.runs.registry import INDEX, indexed_runs, note_run, rebuild_index
from assay.runs.run_directory import (
    RunDirectory,
    all_runs,
    create_run,
    hold_run,
    stored_status,
    write_manifest,
    write_status,
)
from assay.runs.run_files import write_listed
from tests.forked import forked

NAMING = """
name = "pupil"
model = "{model}"
task = "math"

[data.sums]
source = "path:sums.jsonl"
format = "messages"

[stage.sft]
method = "sft"
data = "sums"
steps = 1
"""


def make(root: Path, name: str, seed: int = 1) -> RunDirectory:
    run = create_run(root, name, seed=seed, spec=f"name = '{name}'\n", new=True)
    for step in (8, 16):
        run.checkpoint("sft", step).mkdir(parents=True)
        (run.checkpoint("sft", step) / "model.safetensors").write_text("weights")
    write_status(
        run.path, replace(stored_status(run.path), status="finished", stage="sft", step=16)
    )
    note_run(run)
    return run


def measure(run: RunDirectory, checkpoint: str) -> Path:
    record = run.evaluations / "test-01234567" / f"{checkpoint}.parquet"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.touch()
    note_run(run)
    return record


def start_from(run: RunDirectory, teacher: RunDirectory, step: int) -> None:
    checkpoint = teacher.checkpoint("sft", step).relative_to(run.root).as_posix()
    write_manifest(run, {"base_weights": {"source": "run:x", "checkpoint": checkpoint}})
    note_run(run)


@pytest.fixture
def lab(tmp_path: Path) -> tuple[Path, RunDirectory, RunDirectory]:
    """Two runs; the second is trained from step 8 of the first, whose step 16 was measured."""
    teacher, pupil = make(tmp_path, "teacher"), make(tmp_path, "pupil")
    start_from(pupil, teacher, 8)
    measure(teacher, "sft.step-000016")
    measure(teacher, "base")
    return tmp_path, teacher, pupil


def dump(root: Path) -> list[Any]:
    """The index once the runs were listed."""
    indexed_runs(root)
    with closing(sqlite3.connect(root / INDEX)) as index:
        return sorted(index.execute("SELECT * FROM runs").fetchall())


def test_the_index_made_again_is_the_one_that_was_kept(lab):
    root, *_ = lab
    kept = dump(root)
    assert len(kept) == 2
    rebuild_index(root)
    assert dump(root) == kept
    for file in root.glob(f"{INDEX}*"):
        file.unlink()
    assert [row.name for row in indexed_runs(root)] == ["pupil", "teacher"]
    assert dump(root) == kept


def test_a_run_is_listed_with_its_status_and_a_dead_one_as_interrupted(lab):
    root, teacher, _ = lab
    status = replace(stored_status(teacher.path), status="running", step=9)
    write_status(teacher.path, status)
    note_run(teacher)
    row = indexed_runs(root)[1]
    assert (row.name, row.seed, row.status, row.stage, row.step) == (
        ("teacher", 1, "interrupted", "sft", 9)
    )
    with hold_run(teacher.path):
        assert indexed_runs(root)[1].status == "running"


@pytest.mark.parametrize("file", ["manifest.json", "status.json"])
def test_a_damaged_run_keeps_what_it_may_need(lab, file: str) -> None:
    root, teacher, pupil = lab
    write_listed(pupil.path, pupil.spec, NAMING.format(model="run:teacher@sft.step-8"))
    (pupil.path / file).write_text("{")
    needed = "pupil" if file == "status.json" else f"runs/pupil/{pupil.id} refers to"
    with pytest.raises(InputError, match=needed):
        delete_checkpoint(teacher, "sft", 8)
    with pytest.raises(InputError, match=needed):
        delete_run(teacher)
    if file == "manifest.json":
        with pytest.raises(InputError, match=needed):
            delete_checkpoint(pupil, "sft", 8)
        with pytest.raises(InputError, match=needed):
            delete_run(make(root, "other"))  # What it needs is not known.
    delete_run(pupil)
    delete_run(teacher)


def test_references_are_read_from_manifests_and_records(lab):
    root, teacher, pupil = lab
    here, there = (f"runs/{run.name}/{run.id}" for run in (teacher, pupil))
    assert references(all_runs(root)) == [
        (f"{there}/manifest.json", f"{here}/checkpoints/sft/step-000008"),
        (
            f"{here}/evaluations/test-01234567/sft.step-000016.parquet",
            f"{here}/checkpoints/sft/step-000016",
        ),
    ]


def note_often(run: RunDirectory) -> None:
    for _ in range(12):
        note_run(run)


def test_processes_that_note_at_once_lose_nothing(tmp_path):
    runs = [make(tmp_path, f"r{i}") for i in range(3)]
    processes = [forked(note_often, run, log=tmp_path / "log.txt") for run in runs]
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    kept = dump(tmp_path)
    rebuild_index(tmp_path)
    assert dump(tmp_path) == kept


def refusal(root: Path, path: Path) -> str:
    with pytest.raises(InputError) as raised:
        guard_delete(root, path)
    assert raised.value.exit_code == 2
    return str(raised.value)


def test_a_checkpoint_that_another_run_started_from_is_protected(lab):
    root, teacher, pupil = lab
    checkpoint = teacher.checkpoint("sft", 8)
    expected = (
        f"runs/pupil/{pupil.id}/manifest.json refers to "
        f"runs/teacher/{teacher.id}/checkpoints/sft/step-000008 "
        f"(delete runs/pupil/{pupil.id}/manifest.json first, if nobody needs it)"
    )
    for place in (checkpoint, checkpoint / "model.safetensors", checkpoint.parent, teacher.path):
        assert refusal(root, place) == f"{place}: {expected}"
    with pytest.raises(InputError, match="refers to"):
        delete_checkpoint(teacher, "sft", 8)
    with pytest.raises(InputError, match="refers to"):
        delete_run(teacher)
    assert checkpoint.is_dir()


def test_a_run_goes_with_its_own_records_and_then_frees_what_it_used(lab):
    root, teacher, pupil = lab
    measure(pupil, "sft.step-000016")
    delete_run(pupil)
    assert all_runs(root) == [teacher]
    assert [row.name for row in indexed_runs(root)] == ["teacher"]
    assert list((root / "runs" / "pupil").iterdir()) == []
    guard_delete(root, teacher.checkpoint("sft", 8))
    delete_run(teacher)
    assert references(all_runs(root)) == []


def test_what_is_marked_stays_whoever_asks(lab):
    root, _, pupil = lab
    record = measure(pupil, "base")
    mark_protected(pupil, record, "table 2 of the paper")
    place = record.relative_to(root).as_posix()
    assert protected_paths(all_runs(root)) == {place: "table 2 of the paper"}
    for path in (record, record.parent, pupil.path, root):
        assert refusal(root, path) == f"{path}: {place} is protected: table 2 of the paper"
    guard_delete(root, pupil.checkpoint("sft", 8))
    with pytest.raises(InputError, match="is protected"):
        delete_run(pupil)
    assert json.loads((pupil.path / "protected.json").read_text()) == {
        "evaluations/test-01234567/base.parquet": "table 2 of the paper"
    }


VIEW = "CREATE VIEW runs AS SELECT 1"


def broken_indexes(file: Path) -> Iterator[bytes]:
    """Contents that SQLite refuses at once, when a page is read, or only by its tables."""
    whole = file.read_bytes()
    yield from (b"not a database at all, and longer than a header", b"x", b"")
    yield whole[:16] + bytes(range(256)) * 15
    yield whole[:4096] + b"\xff" * (len(whole) - 4096)
    yield whole[: len(whole) // 2]
    yield whole.replace(b"seed INTEGER", b"sead INTEGER")


def test_an_index_that_is_broken_is_made_again(lab):
    root, *_ = lab
    before = dump(root)
    for broken in [*broken_indexes(root / INDEX), VIEW]:
        for beside in root.glob(f"{INDEX}-*"):
            beside.unlink()
        (root / INDEX).unlink(missing_ok=True)
        if broken is VIEW:
            with closing(sqlite3.connect(root / INDEX)) as other, other:
                other.execute(VIEW)
        else:
            (root / INDEX).write_bytes(broken)
        assert len(indexed_runs(root)) == len(all_runs(root))
        assert dump(root) == before


def test_a_lab_that_may_not_be_written_is_listed_from_its_folders(lab, monkeypatch):
    root, *_ = lab
    expected = indexed_runs(root)
    kept = {file: file.read_bytes() for file in root.glob(f"{INDEX}*")}
    for file in kept:
        file.unlink()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert indexed_runs(root) == expected and not [*root.glob(f"{INDEX}*")]


def adapters_over(run: RunDirectory, start: str) -> None:
    """A LoRA stage of the run, with a checkpoint, that started from `start`."""
    run.checkpoint("rl", 4).mkdir(parents=True)
    table = {"start": start, "adapt": {"kind": "lora"}}
    write_manifest(run, {"stages": {"sft": {"start": "base"}, "rl": table}})


@pytest.mark.parametrize("start", ["sft.last", "sft.step-16"])
def test_what_a_lora_stage_of_the_same_run_stands_on_cannot_be_deleted(tmp_path, start):
    run = make(tmp_path, "own")
    adapters_over(run, start)
    with pytest.raises(InputError, match=r"rl/step-000004 refers to .*sft/step-000016"):
        delete_checkpoint(run, "sft", 16)
    delete_checkpoint(run, "sft", 8)
    delete_checkpoint(run, "rl", 4)
    delete_checkpoint(run, "sft", 16)
