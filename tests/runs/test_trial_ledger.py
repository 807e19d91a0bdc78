"""Every look at a benchmark counts, over all runs, also when its run is gone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.judge.paired import compare
from assay.judge.verdict import ALPHA, Looks, with_looks
from assay.runs.protection import delete_run
from assay.runs.registry import (
    DELETED,
    looks_at,
    looks_by_benchmark,
    note_deleted,
    note_run,
    rebuild_index,
)
from assay.runs.run_directory import RunDirectory, create_run
from assay.runs.run_files import DamagedFile
from tests.english import explain
from tests.judge.simulated import single_pass

ITEMS = ["q1", "q2", "q3"]


def looked(root: Path, name: str, *checkpoints: str, **record: Any) -> RunDirectory:
    """A run with records of checkpoints on a benchmark."""
    run = create_run(root, name, seed=1, spec=f"name = '{name}'\n", new=True)
    return look(run, *checkpoints, **record)


def look(run: RunDirectory, *checkpoints: str, evaluation="test-1", **record: Any) -> RunDirectory:
    folder = run.evaluations / evaluation
    folder.mkdir(parents=True)
    described = {"benchmark": "gsm8k", "items": ITEMS, **record}
    (folder / "evaluation.json").write_text(json.dumps(described))
    for checkpoint in checkpoints:
        (folder / f"{checkpoint}.parquet").touch()
    note_run(run)
    return run


def test_every_measured_checkpoint_of_every_run_is_a_look(tmp_path: Path):
    first = looked(tmp_path, "a", "base", "sft.step-000004", "sft.step-000008")
    look(first, "sft.step-000008", items=["q2"], evaluation="again-2")
    looked(tmp_path, "b", "base", "rl.step-000001")
    found = looks_at(tmp_path, "gsm8k", ITEMS)
    assert found == Looks("gsm8k", looks=4, runs=2, deleted=0)


def test_other_benchmarks_and_other_items_of_one_name_are_no_looks(tmp_path: Path):
    looked(tmp_path, "a", "sft.step-000004")
    looked(tmp_path, "b", "sft.step-000004", benchmark="math500")
    looked(tmp_path, "c", "sft.step-000004", items=["other"])
    assert looks_at(tmp_path, "gsm8k", ["q3", "q4"]).looks == 1
    assert looks_at(tmp_path, "arc", ITEMS) == Looks("arc", 0, 0, 0)
    assert {n: f.looks for n, f in looks_by_benchmark(tmp_path).items()} == {
        "gsm8k": 2,
        "math500": 1,
    }


def test_deleting_a_run_keeps_its_looks(tmp_path: Path):
    looked(tmp_path, "a", "sft.step-000004")
    delete_run(looked(tmp_path, "b", "base", "sft.step-000004", "sft.step-000008"))
    assert looks_at(tmp_path, "gsm8k", ITEMS) == Looks("gsm8k", looks=3, runs=2, deleted=2)


def test_a_deletion_that_a_kill_undid_counts_once(tmp_path: Path):
    run = looked(tmp_path, "a", "sft.step-000004")
    note_deleted(run)
    assert looks_at(tmp_path, "gsm8k", ITEMS).looks == 1
    delete_run(run)
    assert looks_at(tmp_path, "gsm8k", ITEMS).looks == 1


def test_runs_that_were_removed_by_hand_or_are_damaged_are_said_to_be_unknown(tmp_path: Path):
    looked(tmp_path, "a", "sft.step-000004")
    shutil.rmtree(looked(tmp_path, "b", "sft.step-000004").path)
    rebuild_index(tmp_path)
    rebuild_index(tmp_path)
    damaged = looked(tmp_path, "c", "sft.step-000004")
    next(damaged.evaluations.glob("*/evaluation.json")).write_text("{")
    found = looks_at(tmp_path, "gsm8k", ITEMS)
    assert (found.looks, found.unknown) == (1, 2)
    delete_run(damaged)
    assert looks_at(tmp_path, "gsm8k", ITEMS).unknown == 2


@pytest.mark.parametrize("text", ["[]\n", "{\n", '{"run": 3}\n', '{"run": "a/b", "items": 4}\n'])
def test_a_damaged_file_of_deleted_trials_is_named(tmp_path: Path, text: str):
    (tmp_path / DELETED).write_text(text)
    with pytest.raises(DamagedFile, match=DELETED):
        looks_at(tmp_path, "gsm8k", ITEMS)


def better(gained: int):
    return compare(single_pass([0.0] * 40), single_pass([1.0] * gained + [0.0] * (40 - gained)))


def test_a_verdict_stands_beside_all_looks_of_its_lab():
    found = with_looks(better(8), Looks("gsm8k", looks=30, runs=12, deleted=5, here=2))
    assert found.verdict == "better"
    text = explain(found)
    corrected = min(1.0, found.p_value * 29)
    assert corrected >= ALPHA
    assert "the lab had 28 looks at gsm8k besides (12 runs in all; 5 looks by deleted ones)" in text
    assert f"{29 * ALPHA / 2:.2g} in all would be shown better by chance" in text
    assert f"p = {corrected:.2g}" in text and "does not survive" in text
    strong = with_looks(better(20), Looks("gsm8k", 30, 12, 5))
    assert "does not survive" not in explain(strong) and "the lab had 30 looks" in explain(strong)
