"""Exported folders train in TRL, ms-swift and verl themselves, on this machine's CPU.

Each is a tiny lab's stage with a random model. What is held: the tool takes the folder as it is,
learns from the rewards that Assay gives, and writes a model; losses of SFT are Assay's own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.engines.environments import installed
from assay.lab.run.runner import start
from tests.cli.conftest import answer, call
from tests.labs import make_lab

pytestmark = pytest.mark.slow

OWN = """
def odd(row, completion):
    return float(len(completion.tokens) % 2)
"""
SETTINGS = (
    'stage.rl.start="base"',
    "stage.rl.steps=2",
    'stage.rl.reward="path:mine.py:odd"',
    "stage.rl.kl={ coef = 0.01 }",
    "stage.sft.steps=4",
    "stage.sft.checkpoint_every=4",
)
ON_CPU = {"trl": ("--use_cpu", "true"), "swift": (), "verl": ()}


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    root = make_lab(tmp_path, until="[evaluate.dev]").parent
    (root / "mine.py").write_text(OWN)
    return root


def exported(lab: Path, tool: str, stage: str) -> Path:
    """The folder; skips where the tool is not installed."""
    if installed(tool) is None:
        pytest.skip(f"assay engines add {tool}")
    settings = [option for each in SETTINGS for option in ("--set", each)]
    arguments = ("export", lab / "tiny.toml", lab / "out", "--lab", lab, "--to", tool)
    done = call(*arguments, "--stage", stage, "--json", *settings)
    assert done.exit_code == 0, done.stderr
    assert answer(done)["result"]["proof"]["difference"] == ""
    return lab / "out"


def trained(folder: Path, tool: str) -> str:
    """What run.sh printed; it has to end well."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    own = {"PYTHON": str(installed(tool)), "ASSAY_PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", "run.sh", *ON_CPU[tool]],
        cwd=folder,
        env=clean | own | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


def history(folder: Path) -> list[dict[str, Any]]:
    """What Transformers' Trainer logged."""
    (file,) = (folder / "output").glob("checkpoint-*/trainer_state.json")
    return json.loads(file.read_text())["log_history"]


@pytest.mark.parametrize("tool", ["trl", "swift"])
def test_grpo_trains_on_the_rewards_that_assay_gives(lab: Path, tool: str) -> None:
    folder = exported(lab, tool, "rl")
    trained(folder, tool)
    steps = [each for each in history(folder) if "reward" in each]
    assert len(steps) == 2 and all(0 <= float(each["reward"]) <= 1 for each in steps)
    assert any(0 < float(each["reward"]) < 1 for each in steps)
    assert any(float(each["grad_norm"]) > 0 for each in steps)


def test_grpo_trains_in_verl_without_a_gpu(lab: Path) -> None:
    folder = exported(lab, "verl", "rl")
    trained(folder, "verl")
    lines = (folder / "output" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["data"] for line in lines]
    rewards = [each["critic/score/mean"] for each in steps]
    assert len(steps) == 2 and all(0 <= each <= 1 for each in rewards)
    assert any(each["actor/grad_norm"] > 0 for each in steps)
    # The rollout samples from the weights that are trained.
    assert all(each["training/rollout_probs_diff_max"] < 1e-3 for each in steps)


@pytest.mark.parametrize("tool", ["trl", "swift"])
def test_losses_of_sft_are_those_of_assay(lab: Path, tool: str) -> None:
    folder = exported(lab, tool, "sft")
    behind = json.loads((folder / "translation.json").read_text())["proof"]["beyond"]
    trained(folder, tool)
    theirs = [each["loss"] for each in history(folder) if "loss" in each]
    file = make_lab(lab / "own", until="[stage.rl]")
    overrides = [each for each in SETTINGS if each.startswith("stage.sft")]
    (run,) = start(file, overrides, root=file.parent)
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    own = [json.loads(line)["loss"] for line in lines if "loss" in json.loads(line)]
    assert len(own) == 4 and not behind
    assert [float(each) for each in theirs] == pytest.approx(own, abs=2e-3)
