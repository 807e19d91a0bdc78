"""Easy to hard by what a run measured, cooler from step to step, and a report's own sampling only
under its own flag."""

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from assay.lab.run.runner import start
from assay.runs.manifest_file import read_manifest
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory, runs_of
from tests.cli.conftest import assert_one_line, call
from tests.sample_lines import read_samples

MEASURED = """
[data.measured]
source = "path:sums.jsonl"
format = "messages"
pass_rate = { run = "tiny", stage = "rl", passes = 0.6 }
where = [{ field = "extra.pass_rate", exists = true }]
order = { by = "extra.pass_rate", descending = true }
"""
COOLER = """
[stage.cooler]
method = "grpo"
data = "measured"
steps = 3
prompts = 4
group = 2
sampling = { max_tokens = 6, temperature = { start = 0.5, end = 0.15, steps = 2 } }
reward = { spread = { kind = "path:rewards.py:spread" } }
"""
HEAD = '\nname = "curriculum"\nmodel = "path:model"\ntask = "math"\n'
REPORTED = "sampling = { max_tokens = 6, temperature = 0.9, top_p = 0.95, top_k = 50 }"


@pytest.fixture(scope="module")
def lab(sampled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(sampled, folder, dirs_exist_ok=True)
    (folder / "curriculum.toml").write_text(HEAD + MEASURED + COOLER)
    return folder


@pytest.fixture(scope="module")
def run(lab: Path) -> RunDirectory:
    (found,) = start(lab / "curriculum.toml", root=lab)
    return found


def test_rows_are_visited_from_the_easiest_to_the_hardest_as_a_run_measured_them(lab, run):
    (measured,) = runs_of(lab, "tiny")
    passed: dict[str, list[bool]] = {}
    for file in sorted((measured.path / "samples" / "rl").glob("*.parquet")):
        for line in read_samples(file):
            passed.setdefault(line["row_id"], []).append(line["reward"] >= 0.6)
    rates = {row: sum(found) / len(found) for row, found in passed.items()}
    visited = [
        line["row_id"] for step in (1, 2, 3) for line in read_samples(run.samples("cooler", step))
    ]
    assert len({*visited}) == 12 == len(rates) and len({*rates.values()}) > 2
    assert all(rates[a] >= rates[b] for a, b in pairwise(visited))


def test_a_row_that_was_not_measured_has_no_place_in_the_order(lab):
    text = (HEAD + MEASURED + COOLER).replace("curriculum", "unmeasured")
    without = "".join(line for line in text.splitlines(True) if not line.startswith("where"))
    (lab / "unmeasured.toml").write_text(without)
    result = call("run", lab / "unmeasured.toml", "--lab", lab)
    assert_one_line(result, "has no extra.pass_rate", "exists = true")


def test_each_step_is_sampled_and_scored_at_its_own_temperature(run):
    lines = read_metrics(run.metrics)
    assert [line["temperature"] for line in lines] == pytest.approx([0.5, 0.15, 0.15])
    # At another temperature the training forward would not find the rollout's log-probs.
    assert all(line["rollout_gap_mean"] < 0.01 for line in lines)


def test_top_p_and_top_k_in_grpo_are_a_reports_alone(lab):
    text = COOLER.partition("sampling")[0] + REPORTED + COOLER.partition("steps = 2 } }")[2]
    file = lab / "reported.toml"
    file.write_text((HEAD + MEASURED + text).replace("curriculum", "reported"))
    result = call("run", file, "--lab", lab)
    assert_one_line(result, "grpo samples from the full softmax", "as_reported = true")
    words = ("--set", "as_reported=true", "--set", "stage.cooler.steps=1")
    result = call("run", file, "--lab", lab, *words)
    assert result.exit_code == 0, result.output
    (found,) = runs_of(lab, "reported")
    assert read_manifest(found)["as_reported"] is True
    lines = read_metrics(found.metrics)
    assert [line["grad_norm"] > 0 for line in lines] == [True]
    assert "rollout_gap_mean" not in lines[0], "log-probs of a cut softmax measure no gap"
