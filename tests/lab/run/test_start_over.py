"""A run that starts over from a checkpoint ends as an unbroken one, and keeps what it did."""

import json
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.lab.run.runner import resume
from assay.pages.run_page import write_report
from assay.runs.protection import mark_protected
from assay.runs.run_directory import RunDirectory
from assay.runs.run_files import DamagedFile
from assay.runs.status import read_status
from assay.runs.verify_files import verify_run
from tests.cli.conftest import assert_one_line, call
from tests.lab.run.test_restore import Stopping, flip, interrupted, same


def names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_from_an_earlier_checkpoint_leads_to_the_same_end_and_keeps_what_was(
    unbroken: RunDirectory,
) -> None:
    run = interrupted(unbroken, "rl", 3)
    later = {file: run.path.joinpath(file).read_bytes() for file in names(run.path)}
    told = Stopping()
    resume(run, observer=told, start_from="sft.step-4")
    assert any("starts over from sft.step-000004" in note for note in told.notes)
    aside = run.path / "aside" / "001"
    moved = [n for n in later if "step-000006/" in n or n.startswith(("checkpoints/rl", "samples"))]
    assert len(moved) > 15
    for name in ("metrics.jsonl", "selection.json", *moved):
        assert (aside / name).read_bytes() == later[name], name
    assert {p.name for p in aside.glob("evaluations/*/*")} == {"sft.step-000006.parquet"}
    same(run, unbroken)
    assert verify_run(run).faults == ()
    (noted,) = json.loads(run.manifest.read_text())["time"]["put_aside"]
    assert noted["start"] == "sft.step-000004" and noted["damage"] == ""
    assert noted["checkpoints"] == ["sft.step-000006", "rl.step-000002"]
    assert "started over from sft.step-000004" in write_report(run).read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_finished_run_starts_a_stage_over_from_its_beginning_only(unbroken: RunDirectory) -> None:
    run = interrupted(unbroken, "rl", 1)
    resume(run)
    page = write_report(run)
    with pytest.raises(InputError, match=r"no optimizer state.*it can start from rl\.step-0\)"):
        resume(run, start_from="rl.step-2")
    assert read_status(run.path).status == "finished" and not (run.path / "aside").exists()
    resume(run, start_from="rl.step-0")
    assert not page.exists() and (run.path / "aside/001/report.html").exists()
    assert not list((run.path / "aside/001/checkpoints").glob("sft*"))
    same(run, unbroken)
    assert verify_run(run).faults == ()


def test_what_cannot_be_started_from_is_refused_and_nothing_changes(unbroken: RunDirectory) -> None:
    run = interrupted(unbroken, "sft", 5)
    before = names(run.path)
    for text in ("sft", "sft.last", "other.step-2", "base", "sft.step-3"):
        with pytest.raises(InputError, match=r"sft\.step-0, sft\.step-2, sft\.step-4"):
            resume(run, start_from=text)
    flip(run.checkpoint("sft", 2) / "optimizer.pt")
    with pytest.raises(DamagedFile, match=r"optimizer\.pt: is damaged"):
        resume(run, start_from="sft.step-2")
    mark_protected(run, run.checkpoint("sft", 4), "in the paper")
    with pytest.raises(InputError, match="in the paper"):
        resume(run, start_from="sft.step-0")
    assert names(run.path) == before | {"protected.json"}
    refused = call("resume", str(run), "--from", "rl.step-9", "--lab", run.root)
    assert_one_line(refused, "rl.step-000009 does not exist", "rl.step-0")


@pytest.mark.parametrize("moves", [pytest.param(1, marks=pytest.mark.slow), 5])
@pytest.mark.slow
def test_what_was_killed_while_it_started_over_starts_over_when_it_is_resumed(
    unbroken: RunDirectory, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    run = interrupted(unbroken, "rl", 3)
    left, rename = [moves], Path.rename

    def killed(path: Path, target: Path) -> Path:
        left[0] -= "aside" in Path(target).parts
        if left[0] < 0:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            resume(run, start_from="sft.step-4")
    resume(run)
    same(run, unbroken)
    assert verify_run(run).faults == ()
    assert not (run.path / "start-over.json").exists()
    assert len(list((run.path / "aside").glob("*/checkpoints/*/*"))) == 2
