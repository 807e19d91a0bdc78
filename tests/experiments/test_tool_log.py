"""The experiments of the tool log: each file loads, is sound in a tiny lab and runs two steps."""

import json
from functools import cache
from pathlib import Path
from statistics import NormalDist

import pytest

from assay.data.reported.read_reported import read_reported
from assay.data.splits import length_statistics
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.judge.confounds import differences
from assay.lab.check.all_checks import check_experiment
from assay.lab.run.runner import start
from tests.experiments.tiny import LOG, TOOLS, make_model, scaled_down
from tests.few import few

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


def test_no_figure_of_the_log_stands_in_a_file_by_hand():
    """Printed means are in `experiments/reported`; a note may speak of whole percents only."""
    for record in (ROOT / "experiments" / "reported").glob("00[05]*.toml"):
        for run in read_reported(record).records[0].runs:
            for values in run.scores.values():
                mean = f"{sum(values) / len(values):.2f}".rstrip("0").rstrip(".")
                texts = [f.read_text() for f in LOG if "." in mean]
                assert not any(f" {mean}" in text.split("[data.")[0] for text in texts), mean


def test_the_filter_of_verl5_leaves_the_rows_whose_lengths_the_log_gives():
    """Rows spread as the log says of the 5k (1.9k tokens, deviation 0.7k) become the 2k that it
    measured (2.5k, 0.4k)."""
    limit = experiment("verl5").data["train"].min_tokens
    assert limit is not None
    spread = NormalDist(1900, 700)
    lengths = [round(spread.inv_cdf((n + 0.5) / 5000)) for n in range(5000)]
    kept = [length for length in lengths if length >= limit]
    after = length_statistics(kept)
    assert round(after.mean, -2) == 2500 and round(after.sd, -2) == 400
    assert round(len(kept), -3) == 2000


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
    report = check_experiment(file, settings, root=root)
    assert [f.what for f in report.findings if f.severity == "error"] == []
    (run,) = start(file, settings, root=root)
    lines = run.metrics.read_text().splitlines() if run.metrics.exists() else []
    stages = list(experiment(name).stage)
    assert [json.loads(line)["step"] for line in lines] == [1, 2] * len(stages)
    (record,) = run.evaluations.glob("bfcl-*/*.parquet")
    assert record.stat().st_size > 0
