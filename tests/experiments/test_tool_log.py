"""The experiments of the tool log: every file loads, is sound in a tiny lab and runs two steps in it."""

import json
from functools import cache
from pathlib import Path

import pytest

from assay.data.reported.read import read_reported
from assay.lab.check import check_experiment
from assay.lab.fairness import unfair
from assay.lab.reported_score import reported_scores
from assay.lab.runner import start
from assay.lab.spec.experiment import Experiment
from assay.lab.spec.names import check_names
from assay.lab.spec.read import read_experiment
from tests.experiments.tiny import LOG, TOOLS, make_model, scaled_down

ROOT = TOOLS.parents[1]
NAMED = [f.stem for f in LOG]
LATER = {"verl10", "verl11", "verl12", "verl13", "verl15", "verl17", "verl24", "full10", "full11"}
ASKED = (
    {"baseline", "baseline_4bthinking", "baseline_8b"}
    | {f"lora{n}" for n in (1, 2, 3)}
    | {f"{kind}{n}" for kind in ("full", "verl") for n in range(1, 10)}
    | LATER
)
"""What the log lists, and the later runs whose settings are known."""


@cache
def experiment(name: str) -> Experiment:
    return read_experiment(TOOLS / f"{name}.toml")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny"))


def test_every_run_of_the_log_is_a_file_of_its_name():
    assert set(NAMED) >= ASKED
    assert all(experiment(name).name == name for name in NAMED)


@pytest.mark.parametrize("name", NAMED)
def test_names_exist_and_the_note_says_why_and_what_to_expect(name: str):
    found = experiment(name)
    check_names(found, TOOLS / f"{name}.toml")
    assert found.about and found.note is not None
    assert found.note.why and found.note.expected
    assert all(fault and "\n" not in fault for fault in found.note.faults)
