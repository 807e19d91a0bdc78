"""Verbs that read or add records: eval, show, runs, report, compare, check."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

from assay.cli.runs import HEADS, STATUS, laid_out
from assay.runs.history import find_record
from assay.runs.records import RecordWriter
from assay.runs.run_directory import all_runs, create_run
from tests.cli.conftest import TinyLab, answer, assert_one_line, call
from tests.sample_lines import read_samples


def evaluate(
    lab: TinyLab, target: str, *more: object, form: tuple[str, ...] = ("--json",)
) -> Result:
    """`assay eval` on the file that the lab's own evaluations use."""
    recorded = next(lab.root.glob("runs/tiny/*/evaluations/test-*/evaluation.json"))
    path = json.loads(recorded.read_text())["options"]["path"]
    given = ("--option", f"path={path}", "--option", "format=messages", "--max-tokens", 12)
    benchmark = ("--benchmark", "math/gsm8k", *form)
    result = call("eval", target, "--lab", lab.root, *benchmark, *given, *more)
    assert result.exit_code == 0, result.stderr
    return result


def files(lab: TinyLab) -> dict[Path, int]:
    """Every record with the time at which it was written."""
    return {p: p.stat().st_mtime_ns for p in lab.root.glob("runs/*/*/evaluations/*/*.parquet")}


def test_evaluating_what_is_recorded_makes_nothing_and_says_so(trained: TinyLab):
    before = files(trained)
    result = answer(evaluate(trained, "tiny@rl.last"))["result"]
    assert result["made"] is False and result["evaluation"] == "test"
    assert result["checkpoint"] == "rl.step-000004" and result["items"] == 8
    assert files(trained) == before
    shown = evaluate(trained, "tiny@rl.last", form=())
    assert "existed already; nothing was evaluated again" in shown.stdout


def test_a_new_checkpoint_joins_the_record_and_new_sampling_makes_another(trained: TinyLab):
    before = files(trained)
    measured = {path.stem for path in before if path.parent.name.startswith("test-")}
    step = next(step for step in (8, 16) if f"sft.step-{step:06d}" not in measured)
    target = f"tiny@sft.step-{step}"
    first = answer(evaluate(trained, target))["result"]
    assert first["made"] and first["evaluation"] == "test"
    known = {p.parent for p in before}
    assert Path(first["file"]).parent in known
    warm = answer(evaluate(trained, target, "--temperature", 0.7))["result"]
    assert warm["made"] and warm["evaluation"] == "math-gsm8k"
    assert Path(warm["file"]).parent not in known
    fewer = answer(evaluate(trained, "tiny@base", "--take", 3, "--repeats", 2))["result"]
    assert fewer["made"] and (fewer["items"], fewer["repeats"]) == (3, 2)
    assert {p: t for p, t in files(trained).items() if p in before} == before


def test_a_model_without_a_run_gets_one_that_trains_nothing(trained: TinyLab):
    first = answer(evaluate(trained, "path:model"))["result"]
    assert first["made"] and first["checkpoint"] == "base"
    assert first["run"].startswith("eval-math-path-model/")
    again = answer(evaluate(trained, "path:model"))["result"]
    assert not again["made"] and again["run"] == first["run"]
    base = json.loads(call("report", "tiny:test/base/1+1", "--lab", trained.root, "--json").stdout)
    own = call("report", f"{first['run']}:1+1", "--lab", trained.root, "--json")
    assert answer(own)["result"][0]["tokens"] == base["result"][0]["tokens"]


def test_one_answer_is_shown_with_score_parts_reason_and_tokens(finished_lab: Path):
    result = call("report", "tiny:test/base/1+1#0", "--lab", finished_lab, "--json")
    (line,) = answer(result)["result"]
    assert line["id"].endswith(":test/base/1+1#0") and line["item_id"] == "1+1"
    assert line["score"] == 0 and line["parts"] == {"format": 0.0, "answer": 0.0}
    assert line["why"] == "no final answer" and len(line["tokens"]) == line["completion_tokens"]
    words = call("report", "tiny:test/base/1+1#0", "--lab", finished_lab).stdout
    assert "why: no final answer" in words and f"tokens ({len(line['tokens'])}):" in words


def test_a_training_sample_is_shown_with_reward_and_advantage(finished_lab: Path):
    (file,) = finished_lab.glob("runs/tiny/*/samples/rl/step-000002.parquet")
    want = read_samples(file)[1]
    result = call("report", f"tiny:{want['sample_id']}", "--lab", finished_lab, "--json")
    (line,) = answer(result)["result"]
    assert line["reward"] == want["reward"] and line["advantage"] == want["advantage"]
    assert line["text"] == want["text"] and line["tokens"] == want["tokens"]
    assert line["file"] == "samples/rl/step-000002.parquet"


def test_two_records_of_one_name_are_told_apart_by_their_folder(trained: TinyLab):
    (run,) = all_runs(trained.root)
    first = find_record(run, "test")
    second = replace(first, seed=first.seed + 1)
    with RecordWriter(run.evaluations, second, "base") as writer:
        writer.write_chunk(0, read_samples(first.file(run.evaluations, "base")))
        writer.finish()
    result = call("report", "tiny:test/base/1+1#0", "--lab", trained.root)
    assert_one_line(result, "several records", second.key, first.key)
    exact = call("report", f"tiny:{second.key}/base/1+1#0", "--lab", trained.root, "--json")
    assert answer(exact)["result"][0]["file"] == f"evaluations/{second.key}/base.parquet"


def test_runs_lists_status_place_and_the_score_of_the_last_checkpoint(trained: TinyLab):
    (run,) = answer(call("runs", "--lab", trained.root, "--json"))["result"]
    assert (run["name"], run["status"], run["stage"], run["step"]) == ("tiny", "finished", "rl", 4)
    assert run["seed"] == 7 and run["on"] == "test of rl.step-000004"
    shown = call("report", "tiny:test/rl.step-000004/", "--lab", trained.root)
    assert shown.exit_code == 2
    report = answer(call("report", "tiny", "--lab", trained.root, "--json"))["result"]
    assert run["score"] == report["evaluations"][0]["lines"][-1]["score"]
    assert "finished" in call("runs", "--lab", trained.root).stdout


def test_the_list_of_runs_is_no_wider_than_a_terminal_and_keeps_what_tells_runs_apart():
    names = [f"{'long-' * 20}name/20261130T00000{n}Z-4a25b6" for n in range(2)]
    rows = [(name, "1", "interrupted", "rl", "4", "50.0%", "test of rl.last") for name in names]
    shown = laid_out([HEADS, *rows], STATUS).plain.splitlines()
    assert max(map(len, shown)) <= 100 and shown[1] != shown[2]
    assert all(f"{name[-24:]}  1" in line for name, line in zip(names, shown[1:], strict=True))
    assert shown[1].endswith("50.0%  test of…")


def test_runs_says_when_the_index_is_stale_and_rebuild_mends_it(trained: TinyLab):
    (run,) = all_runs(trained.root)
    create_run(trained.root, "tiny", seed=8, spec=run.spec.read_text(), new=True)
    stale = call("runs", "--lab", trained.root, "--json")
    assert len(answer(stale)["result"]) == 1 and "--rebuild" in answer(stale)["warnings"][0]
    fresh = answer(call("runs", "--lab", trained.root, "--json", "--rebuild"))
    assert len(fresh["result"]) == 2 and not fresh["warnings"]


def test_evaluating_after_the_base_model_changed_is_refused(trained: TinyLab):
    import torch
    from safetensors.torch import load_file, save_file

    file = trained.root / "model" / "model.safetensors"
    weights = {name: tensor + torch.ones(()) for name, tensor in load_file(file).items()}
    save_file(weights, file, {"format": "pt"})
    arguments = ("eval", "tiny@base", "--benchmark", "math/gsm8k", "--lab", trained.root)
    path = f"path={trained.root / 'test.jsonl'}"
    result = call(*arguments, "--option", path, "--option", "format=messages")
    assert_one_line(result, "other weights", "path:model")


def test_an_empty_lab_says_so(tmp_path: Path):
    result = call("runs", "--lab", tmp_path)
    assert result.exit_code == 0 and f"no runs in {tmp_path}" in result.stdout
    assert_one_line(call("resume", "x", "--lab", tmp_path), "no run named 'x'", "no runs in")


def test_doctor_names_what_is_there_and_the_command_that_mends_what_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    checks = answer(call("doctor", "--lab", tmp_path, "--json"))["result"]["checks"]
    found = {check["name"]: check for check in checks}
    for name in ("torch", "device", "threads", "precision", "isolation", "disk"):
        assert name in found
    assert all(check["mend"] for check in checks if check["state"] != "ok")


def test_doctor_fails_where_a_needed_package_is_absent_or_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from assay.lab.check import machine

    versions = {"peft": None, "rich": "1.0"}
    real = machine.installed
    monkeypatch.setattr(machine, "installed", lambda name: versions.get(name, real(name)))
    result = call("doctor", "--lab", tmp_path, "--json")
    found = {check["name"]: check for check in answer(result)["result"]["checks"]}
    assert result.exit_code == 1
    assert found["peft"]["state"] == "missing" and "pip install 'peft" in found["peft"]["mend"]
    assert found["rich"]["state"] == "missing" and found["rich"]["found"].startswith("1.0, needs")
