"""The experiments of the tool log: each file loads, is sound in a tiny lab and runs two steps."""

import json
from functools import cache
from pathlib import Path

import pytest

from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.judge.confounds import differences
from tests.experiments.tiny import LOG, TOOLS, make_model, scaled_down
from tests.few import few
from tests.from_files import check_experiment, start

ROOT = TOOLS.parents[1]
NAMED = [f.stem for f in LOG]
LATER = {"verl10", "verl11", "verl12", "verl13", "verl15", "verl17", "verl24", "full10", "full11"}
ASKED = (
    {"baseline", "baseline_06b", "baseline_4b", "baseline_4bthinking", "baseline_8b"}
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


@pytest.mark.parametrize("name", [n for n in NAMED if experiment(n).control])
def test_a_run_differs_from_its_control_in_what_it_declares(name: str):
    """What the control lacks altogether is what the run is about, so `stage` and `data` may stand
    for whole tables against a baseline."""
    found = experiment(name)
    assert found.control in NAMED
    own, before = (
        e.model_dump(mode="json", exclude={"name", "about", "note", "control", "vary"})
        for e in (found, experiment(str(found.control)))
    )
    paths = [d.path for d in differences(before, own)]
    measured = "evaluate.bfcl.checkpoints"
    assert paths, "a twin of its control"
    assert [p for p in paths if not under(p, (*found.vary, measured))] == []
    assert [v for v in found.vary if not any(under(p, (v,)) for p in paths)] == [], "idle"


def under(path: str, declared: tuple[str, ...]) -> bool:
    return any(path == one or path.startswith(f"{one}.") for one in declared)


@few("name", ["verl8", "full2"], fast=1)
def test_an_experiment_checks_and_runs_two_steps_in_a_tiny_lab(
    name: str, model: Path, tmp_path: Path
):
    two_steps(name, model, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMED)
def test_every_experiment_checks_and_runs_two_steps_in_a_tiny_lab(
    name: str, model: Path, tmp_path: Path
):
    two_steps(name, model, tmp_path)


def two_steps(name: str, model: Path, root: Path) -> None:
    """Checks without an error, trains two steps, measures one item of the benchmark."""
    file, settings = TOOLS / f"{name}.toml", scaled_down(TOOLS / f"{name}.toml", model)
    (root / "experiments").symlink_to(ROOT / "experiments")
    report = check_experiment(file, settings, root=root)
    assert [f.what for f in report.findings if f.severity == "error"] == []
    (run,) = start(file, settings, root=root)
    lines = run.metrics.read_text().splitlines() if run.metrics.exists() else []
    stages = list(experiment(name).stage)
    assert [json.loads(line)["step"] for line in lines] == [1, 2] * len(stages)
    (record,) = run.evaluations.glob("bfcl-*/*.parquet")
    assert record.stat().st_size > 0
