"""Several seeds of each arm: methods are judged, and where only checkpoints are, it is said."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from assay.compare.arm import Arm, agreement
from assay.judge.arms import arm_interval, compare_arms
from assay.judge.scores import ItemScores
from assay.runs.run_directory import RunDirectory, create_run, stored_status, write_status
from assay.runs.run_files import Selection, write_selections
from tests.cli.conftest import answer, call
from tests.judge.simulated import single_pass
from tests.pages.synthetic import MANIFEST, RECORD, SPEC, add_scores

CLEAN = replace(RECORD, shared={})
ITEMS = 20


def trained(
    root: Path, name: str, seed: int, values: list[float], spec: str = SPEC
) -> RunDirectory:
    """A finished run of one seed."""
    run = create_run(root, name, seed=seed, spec=spec.format(name=name), new=True)
    run.manifest.write_text(json.dumps(MANIFEST))
    add_scores(run, "rl.step-000030", values, CLEAN)
    write_status(run.path, replace(stored_status(run.path), status="finished"))
    return run


@pytest.fixture
def arms(tmp_path: Path) -> dict[str, list[ItemScores]]:
    """Three seeds of each of two arms on disk under `tmp_path`, as scores by name."""
    rng = np.random.default_rng(1)
    found: dict[str, list[ItemScores]] = {}
    for name, chance in (("sft", 0.3), ("rl", 0.7)):
        for seed in (1, 2, 3):
            values = [float(v) for v in rng.random(ITEMS) < chance]
            trained(tmp_path, name, seed, values)
            found.setdefault(name, []).append(single_pass(values))
    return found


def compared(root: Path, *names: str) -> dict:
    return answer(call("compare", *names, "--lab", root, "--json"))


def test_bare_names_of_several_seeds_compare_the_methods(arms, tmp_path):
    control, other = compared(tmp_path, "sft", "rl")["result"]["lines"]
    expected = compare_arms(arms["sft"], arms["rl"])
    found = other["to_control"]["comparison"]
    assert found["p_value"] == pytest.approx(expected.p_value)
    assert found["method"] == "t over seeds and items"
    assert control["checkpoint"] == "sft#1+2+3@rl.step-000030"
    interval = arm_interval(arms["sft"])
    assert (control["interval"]["low"], control["interval"]["high"]) == pytest.approx(
        (interval.low, interval.high)
    )


def test_equal_texts_are_counted_over_all_seeds():
    one = Arm("one", single_pass([1.0]), cast(Any, None), {("item", 0): "yes"})
    two = replace(one, outputs={("item", 0): "no"})
    assert agreement(replace(one, seeds=(one, two)), replace(one, seeds=(one, one))) == 0.5


def test_other_looks_of_the_lab_stand_beside_the_verdict_and_its_own_do_not(arms, tmp_path):
    lines = compared(tmp_path, "sft", "rl")["result"]["lines"]
    assert "the lab had" not in lines[1]["to_control"]["explanation"]
    lines = compared(tmp_path, "sft#1", "rl#2")["result"]["lines"]
    found = lines[1]["to_control"]
    assert "the lab had 4 looks at held_out besides (6 runs in all" in found["explanation"]
    call("runs", "delete", "rl#3", "--lab", tmp_path)
    again = compared(tmp_path, "sft#1", "rl#2")["result"]["lines"][1]["to_control"]
    assert "4 looks at held_out besides (6 runs in all; 1 look by deleted" in again["explanation"]
    assert "held_out" in call("runs", "--trials", "--lab", tmp_path).stdout
    listed = answer(call("runs", "--trials", "--lab", tmp_path, "--json"))["result"]["held_out"]
    assert (listed["looks"], listed["deleted"]) == (6, 1)
    assert listed["expected_false_better"] == pytest.approx(6 * 0.025)


def test_where_one_arm_has_one_seed_the_newest_checkpoints_are_compared_and_that_is_said(
    arms, tmp_path
):
    trained(tmp_path, "single", 1, [1.0] * ITEMS)
    found = compared(tmp_path, "sft", "single")
    assert "McNemar" in found["result"]["lines"][1]["to_control"]["comparison"]["method"]
    assert any("checkpoints, not methods" in finding["what"] for finding in found["findings"])


def test_a_seed_made_with_other_settings_is_no_seed_of_the_arm(arms, tmp_path):
    other = trained(tmp_path, "sft", 4, [1.0] * ITEMS, SPEC.replace("0.7", "0.9"))
    lines = compared(tmp_path, "sft", "rl")["result"]["lines"]
    assert lines[0]["checkpoint"].startswith(str(other))
    assert "McNemar" in lines[1]["to_control"]["comparison"]["method"]


def test_a_best_checkpoint_that_is_the_start_says_that_the_gate_kept_it(tmp_path):
    run = trained(tmp_path, "demo", 1, [1.0] * ITEMS)
    add_scores(run, "sft.step-000020", [1.0] * ITEMS, CLEAN)
    for stage, step in (("sft", 20), ("rl", 30)):
        run.checkpoint(stage, step).mkdir(parents=True)
    start = "sft.step-000020"
    write_selections(run.path, "rl", [Selection(start, start, "dev", 0.5, looks=3)])
    found = call("compare", "demo@sft.last", "demo@rl.best", "--lab", tmp_path)
    said = " ".join(found.stderr.split())
    assert found.exit_code == 2 and "with itself" not in said
    assert "because the gate kept the start: none of 3 later checkpoints was shown" in said
    assert "compare with the stage's .last" in said
    same = call("compare", "demo@sft.last", "demo@sft.step-20", "--lab", tmp_path)
    assert "cannot be compared with itself" in same.stderr
    other = call("compare", "demo@rl.best", "demo@rl.last", "--lab", tmp_path)
    assert "kept the start" not in other.stderr
