"""`assay explain` prints what the reference page and the presets hold, and no guess."""

from assay.rl.presets import PRESETS
from tests.cli.conftest import answer, assert_one_line, call


def test_a_key_is_explained_in_every_table_that_has_it_and_a_table_whole():
    entries = answer(call("explain", "stage.rl.checkpoint_every", "--json"))["result"]["entries"]
    (lines,) = entries.values()
    assert lines[0].startswith("- `checkpoint_every` (")
    clip = answer(call("explain", "Clip", "--json"))["result"]["entries"]["Clip"]
    assert {"low", "high", "dual"} <= {line.split("`")[1] for line in clip[1:]}
    assert "](#" not in call("explain", "kl").stdout, "no links of the page"


def test_a_preset_is_what_a_stage_would_use_with_its_source_and_other_tools():
    preset = answer(call("explain", "dapo", "--json"))["result"]["preset"]
    assert preset["clip"]["high"] == PRESETS["dapo"].clip.high == 0.28
    assert preset["elsewhere"]["TRL"]["epsilon_high"] == "0.28"
    assert "arXiv 2503.14476" in call("explain", "dapo").stdout


def test_an_unknown_word_is_one_line_with_the_nearest():
    assert_one_line(call("explain", "chekpoint_every"), "checkpoint_every")
