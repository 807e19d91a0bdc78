"""What lies under a name in a lab is read only where it says itself, or its run says of it, that
this is its name."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from assay.data.episode import Completion, Reward
from assay.data.files import find_damage, write_checksums
from assay.data.row import Message, Row
from assay.errors import InputError
from assay.lab.evaluate.endpoint_answerer import answer_name
from assay.runs.cost_ledger import CostLedger
from assay.runs.history import History, find_record, find_samples
from assay.runs.judgement_journal import JudgedLabels, JudgementJournal, read_judged, write_judged
from assay.runs.metrics import append_metrics, keep_history
from assay.runs.records import RecordWriter, read_scores
from assay.runs.run_directory import (
    STATE,
    RunDirectory,
    check_checkpoint,
    read_manifest,
    stored_status,
    write_manifest,
)
from assay.runs.run_files import read_selection, write_selections
from assay.runs.run_names import Winner, WinningRun, experiment_of, winner_of, write_winner
from assay.runs.verify_files import verify_run
from tests.cli.conftest import answer, assert_one_line, call
from tests.pages.synthetic import RECORD, Shape, add_scores, demo_run, empty_run
from tests.pages.synthetic import answer as recorded_answer

SMALL = Shape(items=8, steps=3, groups=2, group=2)
LIST = "checksums.jsonl"


def refused(read: Callable[[], object], *words: str) -> None:
    with pytest.raises(InputError) as found:
        read()
    said = str(found.value)
    assert "\n" not in said and all(word in said for word in words), said


def exchange(one: Path, other: Path) -> None:
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def faults(run: RunDirectory) -> dict[str, str]:
    return {fault.file: fault.problem for fault in verify_run(run).faults}


def checkpoint(run: RunDirectory, stage: str, step: int) -> Path:
    """A checkpoint without weights, with the metrics up to it."""
    folder = run.checkpoint(stage, step)
    folder.mkdir(parents=True)
    append_metrics(run.metrics, stage, step, 1.0, loss=hash(str(run)) / 7)
    keep_history(run.metrics, folder)
    (folder / STATE).write_text(json.dumps({"step": step, "cursor": 4 * step}))
    write_checksums(folder)
    return folder


@pytest.mark.parametrize("listed", [True, False])
def test_a_record_of_another_run_is_refused_with_and_without_the_list_of_checksums(
    tmp_path: Path, listed: bool
) -> None:
    """The runs asked the same: their records have the same names, and not the same content."""
    run, other = empty_run(tmp_path, "one"), empty_run(tmp_path, "two")
    record = add_scores(run, "base", [1.0, 0.0])
    assert record == add_scores(other, "base", [0.0, 0.0])
    files = [record.file(each.evaluations, "base") for each in (run, other)]
    exchange(*files)
    if not listed:
        (run.path / LIST).unlink()
    refused(lambda: read_scores(run, record, "base"), str(files[0]), f"is of the run {other}")
    assert f"is of the run {other}" in faults(run)[str(files[0].relative_to(run.path))]


def test_chunks_of_another_checkpoint_or_place_are_refused_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    run = empty_run(tmp_path)
    items = tuple(f"simple_python_{index}" for index in range(4))
    record = replace(RECORD, items=items)
    for name in ("base", "rl.step-000002"):
        with RecordWriter(run.evaluations, record, name) as writer:
            for n in range(2):
                lines = [recorded_answer("held_out", name, item, 0, 1.0) for item in items[2 * n :]]
                writer.write_chunk(n, lines[:2])
    base, other = (RecordWriter(run.evaluations, record, n) for n in ("base", "rl.step-000002"))
    for one, another in ((base.chunk(0), other.chunk(0)), (base.chunk(0), base.chunk(1))):
        exchange(one, another)
        refused(base.__enter__, str(one), "holds evaluations/")
        assert str(one.relative_to(run.path)) in faults(run)
        exchange(one, another)
    with base as writer:
        writer.finish()
    assert read_scores(run, record, "base").mean == 1.0


def test_journals_of_another_stage_or_checkpoint_are_refused(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    row, said = Row("a", (Message("user", "1+1"),)), Completion("2", (1,), "stop")
    one, other = run.judgements("rl"), run.judgements("round2")
    JudgementJournal(one, "judge").add("", row, said, Reward(1.0))
    assert JudgementJournal(one, "judge").known("", row, said) == Reward(1.0)
    one.rename(other)
    refused(lambda: JudgementJournal(other, "judge").known("", row, said), f"holds {one.name}")
    assert other.name in faults(run)
    folders = [run.evaluations / "test-00000000" / f"{n}.parts" for n in ("base", "rl.step-000002")]
    for folder in folders:
        folder.mkdir(parents=True)
    names = set()
    for folder in folders:
        ledger = CostLedger()
        ledger.move_to(folder)
        names.add(answer_name(ledger, "a", 0, 0, ["request"]))
        ledger.close()
    assert len(names) == 2, "an answer to one checkpoint is none to another"


def test_checkpoints_of_another_step_stage_seed_or_experiment_are_named(tmp_path: Path) -> None:
    run, seed, other = (empty_run(tmp_path, name) for name in ("one", "one", "two"))
    folders = [
        checkpoint(run, "sft", 2),
        checkpoint(run, "rl", 2),
        checkpoint(run, "rl", 4),
        checkpoint(seed, "rl", 2),
        checkpoint(other, "rl", 2),
    ]
    own = run.checkpoint("rl", 6)
    for folder in folders:
        shutil.copytree(folder, own)
        held = str(folder.relative_to(tmp_path / "runs")).removeprefix(f"{run}/")
        refused(lambda: check_checkpoint(own, ""), f"{own}: holds {held}")
        assert "checkpoints/rl/step-000006" in faults(run)
        shutil.rmtree(own)
    assert faults(run) == {}
    assert find_damage(Path(shutil.copytree(folders[1], tmp_path / "a-model-of-my-own"))) == []


def test_runs_whose_folders_were_renamed_or_exchanged_are_read_by_nobody(tmp_path: Path) -> None:
    run, other = demo_run(tmp_path, SMALL, "one"), demo_run(tmp_path, SMALL, "two")
    readers: list[Callable[[RunDirectory], object]] = [
        lambda run: stored_status(run.path),
        read_manifest,
        experiment_of,
        lambda run: read_selection(run.path, "rl"),
        lambda run: find_record(run, "held_out"),
        lambda run: list(History(run).samples("rl", 1)),
        lambda run: find_samples(run, "held_out/base/simple_python_0"),
    ]
    moved = RunDirectory(tmp_path, "one", "20200101T000000Z-aaaaaa")
    run.path.rename(moved.path)
    taken = RunDirectory(tmp_path, "one", other.id)
    other.path.rename(taken.path)
    for place, was in ((moved, run), (taken, other)):
        for read in readers:
            refused(lambda read=read, place=place: read(place), f"is of the run {was}")
        assert f"is of the run {was}" in faults(place)[LIST]
    listed = answer(call("runs", "--lab", tmp_path, "--rebuild", "--json"))["result"]
    assert [row["status"] for row in listed] == ["damaged"] * 2


def test_small_files_of_another_run_are_refused(tmp_path: Path) -> None:
    run, other = demo_run(tmp_path, SMALL, "one"), demo_run(tmp_path, SMALL, "two")
    for each, seed in ((run, 1), (other, 2)):
        write_manifest(each, {"seed": seed})
        chosen = read_selection(each.path, "rl")
        assert chosen is not None
        write_selections(each.path, "rl", [replace(chosen, looks=seed)])
        checkpoint(each, "rl", 50)
    for name, read in {
        "status.json": lambda: stored_status(run.path),
        "manifest.json": lambda: read_manifest(run),
        "selection.json": lambda: read_selection(run.path, "rl"),
        "spec.toml": lambda: experiment_of(run),
        "metrics.jsonl": lambda: History(run).metrics,
    }.items():
        assert read()
        exchange(run.path / name, other.path / name)
        refused(read, name)
        assert name in faults(run)
        exchange(run.path / name, other.path / name)


def test_labels_of_a_judge_under_another_name_are_refused(tmp_path: Path) -> None:
    run = empty_run(tmp_path)
    found = JudgedLabels("quality", {}, {}, "m", 0.4, "labels.jsonl", ())
    file = write_judged(run, "quality-1", found)
    assert read_judged(run) == [replace(found, judged=[])]
    shutil.copy(file, file.with_name("quality-2.json"))
    refused(lambda: read_judged(run), "quality-2.json: holds quality-1")
    assert "agreement/quality-2.json" in faults(run)


def test_the_winner_of_another_sweep_is_refused(tmp_path: Path) -> None:
    chosen = {"7": WinningRun("one/20260101T000000Z-aaaaaa", "base")}
    for name in ("lr", "batch"):
        write_winner(tmp_path, Winner(name, chosen, {}, 2, "best", {}, "now"))
    assert winner_of(tmp_path, "lr").sweep == "lr"
    exchange(*(tmp_path / "sweeps" / name / "winner.json" for name in ("lr", "batch")))
    refused(lambda: winner_of(tmp_path, "lr"), "winner.json: is of the sweep batch")


def test_exchanged_records_turn_no_verdict_round_and_the_page_shows_the_others(
    tmp_path: Path,
) -> None:
    run = demo_run(tmp_path, Shape(items=60, steps=3, groups=2, group=2))
    record = find_record(run, "held_out")
    checkpoint(run, "rl", 30)
    base, last = (record.file(run.evaluations, n) for n in ("base", "rl.step-000030"))
    exchange(base, last)
    pair = ("compare", "demo@base", "demo@rl.step-30", "--on", "held_out", "--lab", tmp_path)
    assert_one_line(call(*pair), str(base), f"holds {last.relative_to(run.path)}")
    assert not (tmp_path / "comparisons").exists()
    one = call("report", "demo:held_out/base/simple_python_0", "--lab", tmp_path)
    assert_one_line(one, str(base))
    shown = call("report", "demo", "--lab", tmp_path)
    assert shown.exit_code == 1 and "sft" in shown.stdout
    page = (run.path / "report.html").read_text()
    for file in (base, last):
        assert page.count(f"{file.relative_to(run.path)}: holds") == 1
    assert "sft · step 14" in page and "few_shot" in page
    left = answer(call("report", "demo", "--lab", tmp_path, "--json"))["result"]["left_out"]
    assert len(left) == 2 and str(base) in left[0]
    assert {str(f.relative_to(run.path)) for f in (base, last)} <= faults(run).keys()
