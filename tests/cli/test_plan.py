"""`assay plan` as a user meets it: designs from a pilot or typed numbers, refusals in one line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay.judge.power import items_needed
from tests.cli.conftest import answer, assert_one_line, call
from tests.compare.test_judged_table import other_run
from tests.pages.synthetic import MANIFEST, RECORD

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
