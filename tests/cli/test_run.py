"""`assay run` and `assay resume`: what they do with runs that exist, and what they show."""

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import Result

from tests.cli.conftest import TinyLab, answer, assert_one_line, call

SHORT = ("--set", "stage.sft.steps=2", "--set", "stage.rl.steps=1")


def only_run(lab: TinyLab) -> Path:
    """The folder of the lab's one run."""
    (folder,) = lab.root.glob("runs/tiny/*")
    return folder


def stop_in_the_second_stage(lab: TinyLab, monkeypatch: pytest.MonkeyPatch, *more: str) -> Result:
    """`assay run`, interrupted by Ctrl-C once the second stage begins."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("assay.lab.session.stage_methods.build_grpo", stop)
        return call("run", lab.file, "--lab", lab.root, *SHORT, *more)


def test_a_run_ends_in_at_most_15_lines_and_the_rest_is_shown_on_demand(lab: TinyLab):
    done = call("run", lab.file, "--lab", lab.root, *SHORT)
    assert done.exit_code == 0, done.stderr
    page = only_run(lab) / "report.html"
    assert page.exists() and f"page: {page}" in done.stdout
    assert "against base" in done.stdout and "undecided" in done.stdout
    assert len(done.stdout.splitlines()) <= 15 and "Before and after" not in done.stdout
    assert "next: assay report tiny --full" in done.stdout
    assert "everything: assay report tiny --full" in done.stdout
    assert "tokens/s" not in done.stdout
    assert "sft 1/2" in done.stderr and "rl 1/1" in done.stderr
    told = re.search(r"checked in .* s: (\d+) warning", done.stderr)
    lines = done.stderr.partition("\ndata sums")[0].splitlines()
    lines = [line for line in lines if line.startswith("warning: ")]
    assert told and int(told[1]) == len(lines) > 0
    assert "groups with signal" in done.stderr and "loss" not in done.stderr
    full = call("report", "tiny", "--full", "--lab", lab.root).stdout
    assert "\\boxed" in full or "Before and after" in full
    assert len(full.splitlines()) > 15 and full.endswith(done.stdout.partition("\n")[2])


def test_a_check_without_a_fault_ends_in_at_most_15_lines(lab: TinyLab):
    lab.edit("reward   = { accuracy = 1.0, cosine = 0.5 }", 'reward = "accuracy"')
    lab.edit("lr = 1e-2", "lr = 1e-5")
    lab.edit("lr = 1e-3", "lr = 1e-5")
    done = call("check", lab.file, "--lab", lab.root)
    assert done.exit_code == 0 and "0 errors, 0 warnings" in done.stdout, done.output
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    assert len(lines) <= 15 and f"next: assay run {lab.file}" in lines
    assert "data.sums: rows: 12 train" in done.stdout
    full = call("check", lab.file, "--full", "--lab", lab.root).stdout
    assert len(full.splitlines()) > 15 and "conversation tokens mean" in full


def test_or_resume_leaves_a_finished_run_alone_and_shows_its_results(trained: TinyLab):
    before = {p: p.stat().st_mtime_ns for p in only_run(trained).rglob("*.safetensors")}
    result = call("run", trained.file, "--lab", trained.root, "--or-resume")
    assert result.exit_code == 0
    assert "nothing was trained again" in result.stdout and "report.html" in result.stdout
    assert {p: p.stat().st_mtime_ns for p in only_run(trained).rglob("*.safetensors")} == before


def test_ctrl_c_says_how_to_go_on_and_going_on_finishes_the_run(
    lab: TinyLab, monkeypatch: pytest.MonkeyPatch
):
    lab.shrink()
    stopped = stop_in_the_second_stage(lab, monkeypatch)
    assert_one_line(stopped, "interrupted", "assay resume tiny", code=130)
    folder = only_run(lab)
    assert json.loads((folder / "status.json").read_text())["status"] == "interrupted"
    weights = (folder / "checkpoints/sft/step-000002/model.safetensors").stat().st_mtime_ns
    resumed = call("run", lab.file, "--lab", lab.root, "--or-resume", "--json", *SHORT)
    (run,) = answer(resumed)["result"]["runs"]
    assert run["did"] == "resumed" and run["status"] == "finished" and Path(run["path"]) == folder
    kept = (folder / "checkpoints/sft/step-000002/model.safetensors").stat().st_mtime_ns
    assert kept == weights


def test_a_run_that_was_killed_before_its_page_gets_it_by_resume(trained: TinyLab):
    """`trained` was run without the command line, so that nobody has written its page."""
    page = only_run(trained) / "report.html"
    assert not page.exists()
    for left in (f".{page.name}.0123.part", "samples/rl/.step-000001.parquet.0123.part"):
        (only_run(trained) / left).write_text("half")
    result = call("resume", "tiny", "--lab", trained.root)
    assert result.exit_code == 0, result.stderr
    assert "its page is written now" in result.stdout and page.exists()
    assert not list(only_run(trained).rglob("*.part"))
    assert_one_line(call("resume", "tiny", "--lab", trained.root), "is finished", "--new")
    os.utime(page, ns=(0, 0))
    assert call("resume", "tiny", "--lab", trained.root).exit_code == 0


def test_new_starts_another_run_of_the_name(trained: TinyLab, monkeypatch: pytest.MonkeyPatch):
    stop_in_the_second_stage(trained, monkeypatch, "--new")
    assert len(list(trained.root.glob("runs/tiny/*"))) == 2


def test_a_run_that_could_not_even_begin_does_not_stand_in_the_way(
    lab: TinyLab, monkeypatch: pytest.MonkeyPatch
):
    lab.edit('"path:model"', '"path:modle"')
    assert_one_line(call("run", lab.file, "--lab", lab.root), "modle", "no such folder")
    lab.edit('"path:modle"', '"path:model"')
    stopped = stop_in_the_second_stage(lab, monkeypatch)
    assert_one_line(stopped, "interrupted", code=130)


def test_a_damaged_checkpoint_is_one_line_wherever_it_is_asked_for(
    trained: TinyLab, tmp_path: Path
):
    bad = only_run(trained) / "checkpoints/rl/step-000004/model.safetensors"
    content = bytearray(bad.read_bytes())
    content[len(content) // 2] ^= 1
    bad.write_bytes(content)
    test = f"path={trained.root / 'test.jsonl'}"
    measure = ("eval", "tiny@rl.last", "--benchmark", "math/gsm8k", "--option", test)
    for words in (
        (*measure, "--option", "format=messages", "--max-tokens", "8"),
        ("export", "tiny@rl.last", tmp_path / "out"),
        ("serve", "tiny@rl.last"),
    ):
        result = call(*words, "--lab", trained.root)
        assert_one_line(result, str(bad), "is damaged", "--new")
    assert not (tmp_path / "out").exists()
