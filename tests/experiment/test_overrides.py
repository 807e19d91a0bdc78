"""`--set PATH=VALUE`: what is replaced, and what is said about one that names nothing."""

import pytest

from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import GrpoStage
from tests.experiment.spec_texts import write_spec
from tests.experiment.test_read_file import message


def grpo(folder, *overrides: str) -> GrpoStage:
    stage = read_experiment(write_spec(folder), overrides).stage["rl"]
    assert isinstance(stage, GrpoStage)
    return stage


def test_a_value_is_replaced_by_its_dotted_path(tmp_path):
    assert grpo(tmp_path, "stage.rl.steps=20").steps == 20
    assert grpo(tmp_path, "stage.rl.steps = 20 ").steps == 20


def test_a_table_that_the_file_leaves_out_is_made(tmp_path):
    stage = grpo(tmp_path, "stage.rl.overlong.buffer=64")
    assert stage.overlong is not None
    assert stage.overlong.buffer == 64


def test_quoted_parts_of_a_path_may_hold_dots(tmp_path):
    reward = grpo(tmp_path, 'stage.rl.reward."tools.strict_binary"=2.0').reward
    assert isinstance(reward, dict)
    assert reward["tools.strict_binary"] == 2.0


@pytest.mark.parametrize("value", ["k2", '"k2"', "'k2'"])
def test_strings_need_no_quotes_where_a_string_stands(tmp_path, value):
    assert grpo(tmp_path, f"stage.rl.kl.estimator={value}").kl.estimator == "k2"


def test_a_value_cannot_smuggle_in_a_second_key(tmp_path):
    text = message(write_spec(tmp_path), "stage.rl.steps=1\nname = 2")
    assert text.endswith("is not a TOML value")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "stage.rl.step=20",
            "--set stage.rl.step=20: stage.rl.step: unknown key (did you mean 'steps'?)",
        ),
        (
            "stage.r.steps=1",
            "--set stage.r.steps=1: no stage named 'r' (did you mean 'rl'? known: rl, sft)",
        ),
        ("seeds.a=1", "--set seeds.a=1: seeds: is not a table"),
    ],
)
def test_a_bad_override_is_named(tmp_path, override, expected):
    assert message(write_spec(tmp_path), override) == expected


def test_problems_of_the_file_come_before_those_of_overrides(tmp_path):
    file = write_spec(tmp_path, ("group = 4", "group = 0"))
    assert message(file, "stage.rl.steps=0") == (
        "e.toml:24: stage.rl.group: must be at least 1, not 0 (1 more problem)"
    )


def test_the_length_of_a_stage_set_in_one_way_takes_the_place_of_the_other(tmp_path):
    file = write_spec(tmp_path)
    assert read_experiment(file).stage["sft"].epochs == 1
    stage = read_experiment(file, ["stage.sft.steps=2"]).stage["sft"]
    assert (stage.steps, stage.epochs) == (2, None)
    back = read_experiment(file, ["stage.sft.steps=2", "stage.sft.epochs=3"]).stage["sft"]
    assert (back.steps, back.epochs) == (None, 3)
    other = read_experiment(file, ["stage.rl.updates.epochs=2"]).stage["rl"]
    assert other.steps == 15, "an inner table has epochs of its own"
