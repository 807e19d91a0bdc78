"""The experiments of report 001: files that read, the rounds as reported, its search, its score.

Only files are read: no model, no rows, no benchmark. Names of registers in these files are looked
up in `tests/lab/session/test_unknown_names.py`.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from assay.data.reported.read_reported import read_reported
from assay.experiment.experiment import Experiment
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import GrpoStage
from assay.judge.averages import harmonic_ratio
from assay.lab.sweep.read_sweep import plan, read_sweep

MATH = Path(__file__).parents[2] / "experiments" / "math"
BENCHMARKS = ["amc23", "gsm8k", "math500", "olympiadbench"]
SINGLE = ["short-cot", "long-cot", "grpo-round", "grpo-rounds"]


@cache
def experiment(name: str) -> Experiment:
    return read_experiment(MATH / f"{name}.toml")


def rounds(name: str = "grpo-rounds") -> Mapping[str, GrpoStage]:
    stages = experiment(name).stage
    return {each: stage for each, stage in stages.items() if isinstance(stage, GrpoStage)}


@pytest.mark.parametrize("name", SINGLE)
def test_a_file_says_why_and_what_to_expect_and_reports_the_four_benchmarks(name: str) -> None:
    found = experiment(name)
    assert found.name == name and found.about and found.note is not None
    assert found.note.why and found.note.expected and found.note.faults
    assert found.model == "hf:Qwen/Qwen2.5-Math-1.5B"
    reporting = {k: e for k, e in found.evaluate.items() if e.role == "report"}
    assert sorted(reporting) == BENCHMARKS
    for key, evaluation in reporting.items():
        assert evaluation.benchmark == f"math/{key}" and "hf" in evaluation.options
        assert evaluation.sampling.temperature == 0.0
    rendered = {each.rendering for each in (*found.stage.values(), *found.evaluate.values())}
    assert rendered == {"template"}


def test_the_reported_best_score_comes_out_of_the_reported_counts() -> None:
    (record,) = read_reported(
        MATH.parents[1] / "experiments/reported/001-math-cot-grpo.toml"
    ).records
    (search,) = record.searches
    runs = {run.name: run.scores for run in record.runs}
    found, base = runs["short CoT"], runs["course baseline, short CoT"]
    items = record.scoring.items
    assert isinstance(items, Mapping)
    counts = [(round(float(found[name][0]) * items[name]), items[name]) for name in items]
    score = harmonic_ratio(counts, [float(base[name][0]) for name in items])
    assert score == 1.0758890919394155 == float(search.says or 0)


def test_the_search_is_nine_runs_with_eighteen_points_as_reported() -> None:
    found = read_sweep(MATH / "short-cot-search.toml")
    runs = [run.experiment.stage["sft"] for run in plan(found)]
    points = {(run.model_dump()["batch"], run.optimizer.lr, run.epochs) for run in runs}
    assert points == {(b, lr, 6) for b in (128, 256, 512) for lr in (1e-5, 2e-5, 4e-5)}
    assert len(runs) == 9 and found.checkpoint_axis is not None
    assert found.checkpoint_axis.values == (3, 6)
    won = experiment("short-cot").stage["sft"]
    assert (won.model_dump()["batch"], won.optimizer.lr, won.epochs) == (512, 2e-5, 6)
    (record,) = read_reported(
        MATH.parents[1] / "experiments/reported/001-math-cot-grpo.toml"
    ).records
    assert record.searches[0].points == 18
    (base,) = [run for run in record.runs if run.name == record.searches[0].baseline]
    reported = {name.lower(): float(values[0]) for name, values in base.scores.items()}
    assert {n: r for n, r in found.sweep.ratios_to.items() if n in BENCHMARKS} == reported
