"""`assay plan` as a user meets it: designs from a pilot or typed numbers, refusals in one line."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay.judge.power import items_needed
from assay.runs.run_directory import create_run
from assay.runs.status import stored_status, write_status
from tests.cli.conftest import answer, assert_one_line, call
from tests.compare.test_judged_table import other_run
from tests.pages.synthetic import MANIFEST, RECORD, SPEC, add_scores

CLEAN = replace(RECORD, shared={})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    for name, chance in (("sft", 0.4), ("rl", 0.5)):
        other_run(tmp_path, MANIFEST, list((rng.random(20) < chance) * 1.0), name, CLEAN)
    return tmp_path


def planned(*arguments: object) -> dict:
    return answer(call("plan", *arguments, "--json"))["result"]


def test_typed_numbers_give_the_items_of_mcnemars_test(tmp_path):
    found = planned("--discordance", 0.2, "--difference", 5, "--arms", 3, "--lab", tmp_path)
    assert found["designs"][0]["items"] == items_needed(0.2, 0.05, alpha=0.025)
    assert found["designs"][0]["answers"] == 3 * found["designs"][0]["items"]
    assert found["level"] == 0.025 and found["evaluation"] is None


def test_a_pilot_shows_what_its_own_items_see_and_what_it_takes(root):
    found = planned("sft", "rl", "--difference", 5, "--lab", root)
    own, needed = found["designs"]
    assert own["items"] == 20 and not own["enough"] and own["smallest_difference"] > 0.05
    assert needed["enough"]
    assert found["evaluation"] == "held_out"


def test_all_finished_seeds_of_a_bare_name_are_the_pilot(root):
    rng = np.random.default_rng(2)
    for name in ("sft", "rl"):
        run = create_run(root, name, seed=7, spec=SPEC.format(name=name), new=True)
        run.manifest.write_text(json.dumps(MANIFEST))
        add_scores(run, "rl.step-000030", list((rng.random(20) < 0.4) * 1.0), CLEAN)
        write_status(run.path, replace(stored_status(run.path), status="finished"))
    variances = planned("sft", "rl", "--seeds", 3, "--lab", root)["variances"]
    assert variances["seeds"] is not None and variances["sampling"] is None
    single = planned("sft#7", "rl#7", "--lab", root)["variances"]
    assert single["seeds"] is None and single["discordance"] is not None


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "pilot"),
        (["sft"], "two"),
        (["sft", "nobody"], "nobody"),
        (["sft", "rl", "--on", "elsewhere"], "elsewhere"),
        (["sft", "rl", "--score", "0.5"], "exclude"),
        (["--score", "45"], "share"),
        (["--score", "0.4", "--discordance", "0.2"], "one of the three"),
        (["--score", "0.4", "--arms", "1"], "--arms"),
        (["--score", "0.4", "--seeds", "1000"], "--seeds"),
        (["--score", "0.4", "--difference", "0"], "difference"),
        (["--score", "0.4", "--difference", "nan"], "difference"),
        (["--score", "0.4", "--power", "80"], "power"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(root, arguments, word):
    assert_one_line(call("plan", *arguments, "--lab", root), word)
