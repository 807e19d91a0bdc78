"""Runs whose own sampler draws otherwise than it is asked to: stopped, with all records kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from assay.models.precision import BF16_FLAGS
from assay.rl.sampling_proof import NotAsTold
from assay.rollout import token_choice
from assay.rollout.engines.cpu.sampler import LocalSampler
from assay.runs.history import History
from assay.runs.run_directory import RunDirectory, runs_of
from tests.from_files import start
from tests.tiny_labs import make_lab

WHY = "a random model is right by chance"
SETTINGS = (
    *("stage.sft.steps=2", "stage.sft.checkpoint_every=2", "stage.rl.steps=3"),
    *("stage.rl.prompts=6", "stage.rl.group=8", "stage.rl.checkpoint_every=1"),
)


def run_in(folder: Path) -> RunDirectory:
    file = make_lab(folder, until="[evaluate.dev]")
    start(file, SETTINGS, root=folder, despite=WHY)
    return runs_of(folder, "tiny")[0]


def stopped_in(folder: Path, words: str) -> int:
    """The step at which a run is stopped with these words, its records whole."""
    with pytest.raises(NotAsTold, match=rf"^step [123]: .*{words}") as stopped:
        run_in(folder)
    assert stopped.value.exit_code == 1 and "\n" not in str(stopped.value)
    (run,) = runs_of(folder, "tiny")
    history, step = History(run), int(str(stopped.value)[5])
    assert [line["step"] for line in history.lines("rl")] == list(range(1, step + 1))
    assert len(list(history.samples("rl", step))) == 48
    return step


def test_a_sampler_that_tells_log_probs_of_another_temperature_stops_its_run(
    tmp_path, monkeypatch
) -> None:
    # In fp32 the self-check at step 1 has so little rounding to allow for that it stops the run.
    monkeypatch.setattr("assay.models.precision.bf16_hardware", lambda device: BF16_FLAGS[0])
    right = LocalSampler.sample

    def sample(self, contexts, keys, sampling, policy_version=0):
        cold = replace(sampling, temperature=0.95 * sampling.temperature)
        return right(self, contexts, keys, cold, policy_version)

    monkeypatch.setattr(LocalSampler, "sample", sample)
    assert stopped_in(tmp_path, "told minus own log-probs.* lower temperature") == 1


def test_a_sampler_that_draws_colder_than_it_tells_stops_its_run(tmp_path, monkeypatch) -> None:
    right = token_choice.choose

    def choose(weights_BV, uniform_B):
        return right(weights_BV**2, uniform_B)[0], right(weights_BV, uniform_B)[1]

    monkeypatch.setattr(token_choice, "choose", choose)
    stopped_in(tmp_path, "minus the entropy")


def test_an_honest_run_says_each_step_how_it_drew(tmp_path) -> None:
    for line in History(run_in(tmp_path)).lines("rl"):
        assert {"drawn_z", "drawn_z_run", "told_gap", "told_z", "told_slope_z"} <= line.keys()
        assert abs(line["told_gap"]) < 0.01 and abs(line["drawn_z_run"]) < 4
        assert line["repeat_evidence"] < 1
