"""A stage that another tool trains is a stage like any other: recorded, judged, resumed, reported.

The tool is a stand-in that replays what TRL wrote and fails as told; test_runs_in_tools.py has the
real ones.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file

from assay.engines.environments import MARK, RunningTool
from assay.engines.proof import Proof
from assay.errors import RunFailure
from assay.experiment.tables import patience_seconds
from assay.lab.run import trainer_export
from assay.lab.run.recorder import Following
from assay.lab.run.resume import resume
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory, read_manifest, read_status, runs_of
from assay.runs.verify_files import verify_run
from tests.cli.conftest import answer, assert_one_line, call
from tests.from_files import start
from tests.judge.test_confounds import confounds
from tests.sample_lines import read_samples
from tests.tiny_labs import EXPERIMENT, make_lab

STAND_IN = Path(__file__).with_name("stand_in.py")
EDITS = {
    'method = "grpo"': 'method = "grpo"\ntrainer = "trl"\nstart = "base"',
    '["sft.all"]': '["rl.all"]',
    '"base", "sft.best", "rl.last"': '"base", "rl.last"',
}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny lab, whose only stage TRL trains, with a stand-in in TRL's place."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    python.chmod(0o755)
    equal = Proof("trl==1.16.0", 12, 12, 0, 0, 0)
    monkeypatch.setattr("assay.trainers.register.installed", lambda name: python)
    monkeypatch.setattr("assay.trainers.register.misfit", lambda name: "")
    monkeypatch.setattr("assay.lab.run.trainer_export.python_of", lambda name: python)
    monkeypatch.setattr("assay.lab.run.trainer_export.POLL_SECONDS", 0.05)
    monkeypatch.setattr("assay.lab.run.trainer_export.prove", lambda *_: equal)
    before, rl = EXPERIMENT.partition("[stage.sft]")[0], EXPERIMENT.partition("[stage.rl]")[1:]
    text = "".join((before, *rl))
    return make_lab(tmp_path, text, until="[evaluate.sampled]", edits=EDITS).parent


def told(monkeypatch: pytest.MonkeyPatch, **orders: Any) -> None:
    monkeypatch.setenv("STAND_IN", json.dumps(orders))


def failed(lab: Path, words: str = "") -> RunDirectory:
    """The run, which fails with these words."""
    with pytest.raises(RunFailure, match=words):
        start(lab / "tiny.toml", root=lab)
    (run,) = runs_of(lab, "tiny")
    assert read_status(run.path).status == "failed"
    return run


def steps(run: RunDirectory) -> list[int]:
    return [line["step"] for line in read_metrics(run.metrics)]


def samples(run: RunDirectory) -> Mapping[int, list[str]]:
    """The ids of the samples by step."""
    files = sorted((run.path / "samples" / "rl").iterdir())
    read = [[line["sample_id"] for line in read_samples(file)] for file in files]
    return {int(file.stem.partition("-")[2]): ids for file, ids in zip(files, read, strict=True)}


def test_what_a_tool_trains_is_recorded_judged_and_reported(lab: Path) -> None:
    done = call("run", lab / "tiny.toml", "--lab", lab)
    assert done.exit_code == 0, done.stderr
    (run,) = runs_of(lab, "tiny")
    lines = read_metrics(run.metrics)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert [line["reward_mean"] for line in lines][:1] == [0.375]
    assert sum(line["cpu_seconds"] for line in lines) > 0
    assert all(line["cpu_seconds"] >= 0 and line["prompt_tokens"] > 0 for line in lines)
    found = samples(run)
    assert [*found] == [1, 2, 3, 4] and all(len(ids) == 8 for ids in found.values())
    assert len({each for ids in found.values() for each in ids}) == 32
    moved = load_file(run.checkpoint("rl", 4) / "model.safetensors")
    for name, weight in load_file(lab / "model" / "model.safetensors").items():
        assert (moved[name] == weight + 4).all()
    measured = {
        name: {file.stem for file in run.evaluations.glob(f"{name}-*/*.parquet")}
        for name in ("dev", "test")
    }
    every = {"base", "rl.step-000002", "rl.step-000004"}
    assert measured == {"dev": every, "test": {"base", "rl.step-000004"}}
    manifest = read_manifest(run)
    assert manifest["packages"]["trl"] == "1.16.0"
    assert "max_rollout_gap" in manifest["stages"]["rl"]["unlike"]
    page = (run.path / "report.md").read_text()
    assert "Trained by TRL 1.16.0;" in page and "`max_rollout_gap`: has no such guard" in page
    # The states of the tool are large, and nothing goes on from them any more.
    assert not (run.trainer("rl") / "output").exists() and not verify_run(run).faults


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        pytest.param({"step": 4, "dies": -9}, "step 3 of 4 (it was killed", marks=pytest.mark.slow),
        (
            {"step": 4, "dies": 3, "writes": '{"loss": 0.'},
            "(exit code 3): RuntimeError: out of cheese",
        ),
        pytest.param({"step": 3, "dies": 0}, "after step 2 of 4", marks=pytest.mark.slow),
    ],
)
def test_a_tool_that_dies_is_gone_on_from_its_checkpoint_and_nothing_is_recorded_twice(
    lab: Path, monkeypatch: pytest.MonkeyPatch, orders: Mapping[str, Any], words: str
) -> None:
    told(monkeypatch, **orders)
    with pytest.raises(RunFailure) as raised:
        start(lab / "tiny.toml", root=lab)
    assert words in str(raised.value) and str(raised.value).endswith("trainers/rl/log")
    (run,) = runs_of(lab, "tiny")
    assert read_status(run.path).status == "failed"
    assert steps(run) == [*range(1, orders["step"])] and run.checkpoint_steps("rl") == [2]
    told(monkeypatch)
    resume(run)
    asked = json.loads((run.trainer("rl") / "asked.json").read_text())
    assert Path(asked[asked.index("--resume_from_checkpoint") + 1]).name == "checkpoint-2"
    assert steps(run) == [1, 2, 3, 4] and run.checkpoint_steps("rl") == [2, 4]
    ids = [each for step in samples(run).values() for each in step]
    assert len(ids) == len({*ids}) == 32
    assert [each["step"] for each in read_manifest(run)["time"]["went_on"]] == [2]


def test_a_tool_that_says_nothing_ends_the_run_which_goes_on(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(monkeypatch, step=4, hangs=True)
    monkeypatch.setattr(trainer_export, "patience_seconds", lambda engine: 6.0)
    run = failed(lab, r"said nothing for 0.1 minutes \(engine.patience\)")
    assert steps(run) == [1, 2, 3]
    # A process that ended meanwhile has no command line to read.
    lines = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
    assert not [line for line in lines if str(STAND_IN) in line]
    monkeypatch.setattr(trainer_export, "patience_seconds", patience_seconds)
    told(monkeypatch)
    resume(run)
    assert steps(run) == [1, 2, 3, 4] and run.checkpoint_steps("rl") == [2, 4]


def test_a_run_that_was_killed_takes_what_its_tool_had_done(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the checkpoint of step 4 was taken over: it is not trained again."""
    told(monkeypatch, step=4, dies=3)
    run = failed(lab)
    told(monkeypatch)
    output = run.trainer("rl")
    more = ("--resume_from_checkpoint", "output/checkpoint-2")
    subprocess.run([lab / "python", "trl_log.py", *more], cwd=output, check=True)
    (output / "asked.json").unlink()
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, MARK: str(output)})
    take = Following.take

    def after_it(self: Following, *given: Any, **named: Any) -> int:
        left.wait(60)  # nothing may write what is read here
        return take(self, *given, **named)

    monkeypatch.setattr(Following, "take", after_it)
    resume(run)
    assert steps(run) == [1, 2, 3, 4] and run.checkpoint_steps("rl") == [2, 4]
    assert not (output / "asked.json").exists()


def test_a_log_that_cannot_be_read_fails_the_run_and_is_no_bad_input(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(monkeypatch, step=3, dies=0, writes="no JSON\n")
    failed(lab, r"output/logging\.jsonl:3: is no JSON")


def test_a_guard_stops_a_tool_at_its_step_however_far_the_tool_is(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool has written three steps before anybody looks; the condition held at the second."""
    told(monkeypatch, step=4, hangs=True)

    def once_it_hangs(tool: RunningTool, seconds: float) -> None:
        (run,) = runs_of(lab, "tiny")
        while not (run.trainer("rl") / "hangs").exists():
            time.sleep(0.02)

    monkeypatch.setattr(RunningTool, "wait", once_it_hangs)
    guard = '\n[guard.low]\nstage = "rl"\nmetric = "reward_mean"\nabove = 0.4\nsteps = 1\n'
    (lab / "tiny.toml").write_text((lab / "tiny.toml").read_text() + guard)
    run = failed(lab, "'low' stopped the run at rl step 2")
    assert read_status(run.path).guard == "low" and run.checkpoint_steps("rl") == [2]
    assert steps(run) == [1, 2]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["stage.rl.algorithm=egpo"], ("stage.rl.advantage", 'allow = ["advantage"] in the stage')),
        (["stage.rl.allow=['advantag']"], ("stage.rl.allow", "'advantag'", "advantage")),
        (["stage.rl.trainer=assay", "stage.rl.allow=['kl.coef']"], ("stage.rl.allow", "remove it")),
    ],
)  # fmt: skip
def test_what_a_tool_cannot_do_is_refused_before_anything_is_trained(
    lab: Path, settings: list[str], words: tuple[str, ...]
) -> None:
    options = [each for setting in settings for each in ("--set", setting)]
    for verb in ("run", "check"):
        refused = call(verb, lab / "tiny.toml", "--lab", lab, *options)
        assert refused.exit_code in (1, 2) and (verb == "check" or refused.exit_code == 2)
        for word in words:
            assert word in refused.stderr + refused.stdout
    assert not (lab / "runs").exists()


def test_a_reward_that_cannot_go_along_is_refused_before_anything_is_trained(
    lab: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("elsewhere") / "mine.py"
    file.write_text("def odd(row, completion):\n    return 1.0\n")
    (lab / "link.py").symlink_to(file)
    for name in (file, "link.py"):
        option = ("--set", f'stage.rl.reward="path:{name}:odd"')
        refused = call("run", lab / "tiny.toml", "--lab", lab, *option)
        assert_one_line(refused, "does not lie in the lab")
    assert not (lab / "runs").exists()


def test_what_is_allowed_by_name_is_a_difference(lab: Path) -> None:
    options = ("--set", "stage.rl.algorithm=egpo", "--set", 'stage.rl.allow=["advantage"]')
    seen = answer(call("check", lab / "tiny.toml", "--lab", lab, *options, "--json"))
    found = [each["what"] for each in seen["findings"]]
    assert "stage.rl.advantage: TRL has no such advantage estimator" in found
    (run,) = start(lab / "tiny.toml", options[1::2], root=lab)
    assert read_manifest(run)["stages"]["rl"]["unlike"]["advantage"]
    call("report", "tiny", "--lab", lab)
    page = (run.path / "report.md").read_text()
    assert "`advantage` (allowed): has no such advantage estimator" in page


def test_a_tool_of_another_version_and_one_without_the_method_are_refused(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_lab(lab / "other", until="[evaluate.dev]")
    monkeypatch.setattr("assay.trainers.register.installed", lambda name: "x")
    for stage, tool, problem, words in (
        ("rl", "trl", "1.17.0 instead of 1.16.0", ("1.17.0", "assay engines add trl")),
        ("sft", "verl", "", ("no sft stages", "grpo")),
    ):
        monkeypatch.setattr("assay.trainers.register.misfit", lambda name, said=problem: said)
        option = ("--set", f"stage.{stage}.trainer={tool}")
        refused = call("run", lab / "other" / "tiny.toml", "--lab", lab / "other", *option)
        assert_one_line(refused, f"stage.{stage}.trainer", *words)


def test_who_trained_is_one_difference_and_what_follows_from_it_is_none() -> None:
    own = {"stages": {"rl": {"steps": 4}}}
    other = {"stages": {"rl": {"steps": 4, "trainer": "trl", "unlike": {"kl.coef": "moves"}}}}
    assert [each.path for each in confounds(own, other)] == ["stages.rl.trainer"]
    assert confounds(own, other, vary=["stage.rl.trainer"]) == []
    apart = {"stages": {"rl": {**other["stages"]["rl"], "unlike": {"kl.coef": "stays"}}}}
    assert [each.path for each in confounds(other, apart)] == ["stages.rl.unlike.kl.coef"]
