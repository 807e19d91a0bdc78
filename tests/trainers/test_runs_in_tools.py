"""Runs whose stage TRL, ms-swift or verl itself trains, on this machine's CPU, killed half-way.

A tiny lab with a random model. What is held: nothing of the tool lives after `kill -9` of Assay;
`kill -9` of the tool ends the run with exit code 1 and its log; a resumed run ends with every step
and every sample once; TRL and ms-swift end with the numbers of an unbroken run.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file

from assay.engines.environments import MARK, installed
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory, read_manifest, runs_of
from assay.runs.verify_files import verify_run
from tests.cli.conftest import spawn
from tests.sample_lines import read_samples
from tests.tiny_labs import make_lab

pytestmark = pytest.mark.slow

OWN = """
import time


def odd(row, completion):
    time.sleep(0.25)  # so that a step takes as long as it takes to kill something
    return float(sum(completion.tokens) % 2)
"""
SETTINGS = (
    "stage.sft.steps=2",
    "stage.sft.checkpoint_every=2",
    'stage.rl.reward="path:mine.py:odd"',
)
SAME = ("reward_mean", "length_mean", "loss", "grad_norm")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    edits = {'"base", "sft.best", "rl.last"': '"base", "rl.last"'}
    root = make_lab(tmp_path, until="[evaluate.sampled]", edits=edits).parent
    (root / "mine.py").write_text(OWN)
    return root


class Live:
    """`assay` at work in a process of its own."""

    def __init__(self, lab: Path, *arguments: object):
        code = "import sys; sys.argv[0] = 'assay'; from assay.cli.main import app; app()"
        asked = [sys.executable, "-c", code, *map(str, arguments), "--lab", str(lab)]
        surroundings = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.lab, self.log = lab, lab / "live.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(asked, stdout=log, stderr=log, env=surroundings)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait; it must not end before."""
        while not holds():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.05)

    @property
    def run(self) -> RunDirectory:
        (run,) = runs_of(self.lab, "tiny")
        return run


def trained(lab: Path) -> list[dict[str, Any]]:
    """The steps that are recorded."""
    found = runs_of(lab, "tiny")
    return [x for x in read_metrics(found[0].metrics) if x["stage"] == "rl"] if found else []


def of_tool(run: RunDirectory) -> list[psutil.Process]:
    """The living processes of a stage's tool."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(run.trainer("rl")):
                found.append(process)
        except psutil.Error:
            continue
    return found


def of_module(parent: int, module: str) -> list[psutil.Process]:
    """The processes that another started to run a module."""
    found = []
    for process in psutil.Process(parent).children():
        with suppress(psutil.Error):
            if module in process.cmdline():
                found.append(process)
    return found


def started(lab: Path, tool: str, steps: int, *more: str) -> Live:
    if installed(tool) is None:
        pytest.skip(f"assay engines add {tool}")
    own = (*SETTINGS, f"stage.rl.trainer={tool}", f"stage.rl.steps={steps}", *more)
    return Live(lab, "run", lab / "tiny.toml", *(o for each in own for o in ("--set", each)))


def is_whole(lab: Path, steps: int) -> RunDirectory:
    """The finished run, with every step, sample and checkpoint once."""
    (run,) = runs_of(lab, "tiny")
    assert [line["step"] for line in trained(lab)] == [*range(1, steps + 1)]
    assert run.checkpoint_steps("rl") == [*range(2, steps + 1, 2)]
    files = (run.samples("rl", step) for step in range(1, steps + 1))
    lines = [line for file in files for line in read_samples(file)]
    assert len(lines) == len({line["sample_id"] for line in lines}) == steps * 8
    assert all(line["tokens"] and line["reward"] in (0.0, 1.0) for line in lines)
    assert (run.path / "report.html").is_file() and not verify_run(run).faults
    return run


@pytest.mark.parametrize("tool", ["trl", "swift"])
def test_killed_twice_a_run_ends_as_an_unbroken_one(lab: Path, tool: str, tmp_path: Path) -> None:
    live = started(lab, tool, 12)  # of which several may be seen at once, where much else runs
    live.until(lambda: len(trained(lab)) >= 3)
    live.process.kill()
    live.process.wait()
    first = live.run.checkpoint_steps("rl")[-1]
    while of_tool(live.run):
        time.sleep(0.05)
    live = Live(lab, "resume", "tiny")
    live.until(lambda: bool(of_module(live.process.pid, "assay.engines.environments")))
    began = len(trained(lab))  # with what the tool had done unseen
    live.until(lambda: len(trained(lab)) >= began + 2)
    (between,) = of_module(live.process.pid, "assay.engines.environments")
    between.children()[0].kill()
    assert live.process.wait() == 1
    assert "it was killed" in live.log.read_text() and not of_tool(live.run)
    second = live.run.checkpoint_steps("rl")[-1]
    done = spawn("resume", "tiny", "--lab", lab)
    assert done.returncode == 0, done.stderr
    run = is_whole(lab, 12)
    from_first, from_second = (each["step"] for each in read_manifest(run)["time"]["went_on"])
    assert first <= from_first <= second == from_second
    other = tmp_path / "whole"
    other.mkdir()
    for name in ("model", "sums.jsonl", "test.jsonl", "tiny.toml"):
        (other / name).symlink_to(lab / name)
    shutil.copy(lab / "mine.py", other)
    whole = started(other, tool, 12)
    assert whole.process.wait() == 0
    both = zip(trained(lab), trained(other), strict=True)
    for own, theirs in both:
        assert {k: own[k] for k in SAME} == {k: theirs[k] for k in SAME}, own["step"]


def test_a_run_in_verl_that_was_killed_goes_on(lab: Path) -> None:
    live = started(lab, "verl", 6)
    live.until(lambda: len(trained(lab)) >= 3)
    assert any("raylet" in process.name() for process in of_tool(live.run))
    live.process.kill()
    live.process.wait()
    while of_tool(live.run):
        time.sleep(0.05)
    done = spawn("resume", "tiny", "--lab", lab)
    assert done.returncode == 0, done.stderr
    run = is_whole(lab, 6)
    assert json.loads((run.path / "status.json").read_text())["status"] == "finished"
    assert [each["draws_again"] for each in read_manifest(run)["time"]["went_on"]] == [True]


@pytest.mark.parametrize("tool", ["trl", "swift"])
def test_a_tool_trains_an_adapter(lab: Path, tool: str) -> None:
    """TRL needs peft for it, which its environment has to have."""
    adapt = 'stage.rl.adapt={ kind = "lora", rank = 2, targets = ["q_proj", "v_proj"] }'
    assert started(lab, tool, 2, adapt).process.wait() == 0, (lab / "live.log").read_text()[-3000:]
    run = is_whole(lab, 2)
    names = load_file(run.checkpoint("rl", 2) / "adapter_model.safetensors")
    assert names and all("lora_" in name for name in names)
    assert any(tensor.abs().sum() for name, tensor in names.items() if "lora_B" in name)


def test_verl_on_a_cpu_samples_with_the_adapter_that_it_trains(lab: Path) -> None:
    adapt = 'stage.rl.adapt={kind="lora", rank=4, alpha=8}'
    live = started(lab, "verl", 4, adapt, "stage.rl.optimizer.lr=1e-2")
    assert live.process.wait(600) == 0, live.log.read_text()[-3000:]
    told = [line["verl/rollout_corr/rollout_log_ppl"] for line in trained(lab)]
    own = [line["verl/rollout_corr/training_log_ppl"] for line in trained(lab)]
    assert told == pytest.approx(own, abs=1e-5) and len({round(each, 4) for each in own}) == 4
    assert (is_whole(lab, 4).checkpoint("rl", 4) / "adapter_config.json").is_file()
