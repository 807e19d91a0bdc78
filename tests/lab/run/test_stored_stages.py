"""Stages that learn from stored candidates, through `assay run`: judged by what is stored, killed
and resumed to the last bit, refused where they cannot be what they say."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.experiment.training_settings import AdaptiveKl
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory, runs_of
from tests.cli.conftest import assert_one_line, call
from tests.from_files import run_from
from tests.lab.selector_task import make_colours_lab

pytestmark = pytest.mark.usefixtures("colour_words")
STAGES = """
[stage.weigh]
method = "rce"
data   = "train"
candidates = "stored"
epochs = 2
prompts = 3
tau    = { start = 2.0, end = 0.5 }
validation = "train.dev"
validation_every = { epochs = 1 }
optimizer = { lr = 1e-2 }

[stage.keep]
method = "rft"
data   = "train"
candidates = "stored"
reward = "share"
keep   = 0.5
steps  = 2
prompts = 3
curriculum = { best = [1] }
optimizer = { lr = 1e-2 }

[stage.rl]
method = "grpo"
algorithm = "lever_plus"
data   = "train"
candidates = "stored"
reward = { picked = { kind = "share", weight = 2.0 } }
epochs = 2
prompts = 3
kl     = { coef = 0.12, estimator = "k3_sequence_reverse", adaptive = {} }
curriculum = { best = [2, 3] }
validation = "train.dev"
validation_every = { epochs = 1 }
checkpoint_every = 4
optimizer = { lr = 1e-2 }
"""


def make_stored_lab(folder: Path) -> Path:
    file = make_colours_lab(folder)
    file.write_text(file.read_text().partition("[stage.imitate]")[0] + STAGES)
    return file


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, colour_words: None) -> RunDirectory:
    return run_from(make_stored_lab(tmp_path_factory.mktemp("stored")))


def lines(run: RunDirectory, stage: str) -> list[dict[str, Any]]:
    return [line for line in read_metrics(run.metrics) if line["stage"] == stage]


def test_the_validation_loss_of_rce_is_measured_every_epoch_and_falls(run):
    found = lines(run, "weigh")
    measured = {x["step"]: x["validation_loss"] for x in found if "validation_loss" in x}
    assert list(measured) == [8, 16] and measured[16] < measured[8]


def test_candidates_are_judged_by_the_reward_that_the_stage_names(run):
    """The table doubles what they carry, and the best two count first."""
    found = lines(run, "rl")
    assert all(line["reward_mean"] == pytest.approx(2 * line["part/picked"]) for line in found)
    first, later = (sum(line["part/picked"] for line in half) for half in (found[:8], found[8:]))
    assert first > later > 0
    assert all(line["reward_mean"] == 1.0 for line in lines(run, "keep"))
    assert not list(run.path.rglob("step-*.parquet")), "nothing was sampled"


def test_the_total_is_ppo_and_beta_times_kl_and_beta_follows_the_kl(run):
    found, rule = lines(run, "rl"), AdaptiveKl()
    assert found[0]["kl_loss"] == 0 and found[-1]["kl_loss"] > 0
    for line in found:
        total = line["policy_loss"] + line["kl_coef"] * line["kl_loss"]
        assert line["loss"] == pytest.approx(total, abs=1e-12)
    coefs = [0.12]
    for line in found:
        assert line["kl_coef"] == coefs[-1]
        coefs.append(rule.next(coefs[-1], line["kl_loss"]))
    state = json.loads((run.checkpoint("rl", 16) / "state.json").read_text())
    assert state["kl_coef"] == coefs[-1] != 0.12


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("stage.rl.rewards=normalised", "as_reported"),
        ('stage.rl.kl={ coef = 0.1, estimator = "k1", where = "reward" }', "no samples of the"),
    ],
)
def test_what_a_stored_stage_cannot_be_is_refused_in_one_line(tmp_path, change, said):
    file = make_stored_lab(tmp_path)
    assert_one_line(call("run", file, "--lab", tmp_path, "--set", change), said)
    assert not (tmp_path / "runs").exists()


def test_a_file_without_a_right_candidate_is_refused_and_a_dead_one_trains_nothing(tmp_path):
    file = make_stored_lab(tmp_path)
    task = tmp_path / "colours_task.py"
    dead = task.read_text().replace('"reward": helps(row, picks)', '"reward": 0.0')
    task.write_text(dead)
    text = file.read_text().partition("[stage.keep]")[0]
    file.write_text(
        text.replace('validation = "train.dev"\nvalidation_every = { epochs = 1 }\n', "")
    )
    result = call("run", file, "--lab", tmp_path)
    assert result.exit_code == 0, result.output
    (found,) = runs_of(tmp_path, "colours")
    assert {line["signal_share"] for line in lines(found, "weigh")} == {0.0}
    assert {line["grad_norm"] for line in lines(found, "weigh")} == {0.0}
    shutil.rmtree(tmp_path / "runs")
    words = ("--set", "stage.weigh.require_positive=true")
    assert_one_line(call("run", file, "--lab", tmp_path, *words), "no stored candidate is left")
