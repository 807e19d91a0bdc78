"""`assay compare` as a user meets it: what it prints, where the page goes, how it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from assay.runs.run_directory import stored_status, write_status
from tests.cli.conftest import answer, assert_one_line, call
from tests.compare.test_judged_table import RL, SFT, other_run
from tests.pages.synthetic import MANIFEST, RECORD, empty_run
from tests.written import as_written

CLEAN = replace(RECORD, shared={})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, values in (("verl7", SFT), ("verl8", RL), ("verl9", SFT[::-1])):
        other_run(tmp_path, MANIFEST, values, name, CLEAN)
    return tmp_path


def controls(root: Path, *arguments: str) -> list[str]:
    """The runs of the table in their order, the control first."""
    found = answer(call("compare", *arguments, "--lab", root, "--json"))["result"]["lines"]
    return [line["checkpoint"].partition("/")[0] for line in found]


def name_control(root: Path, name: str, control: str) -> None:
    (spec,) = root.glob(f"runs/{name}/*/spec.toml")
    spec.write_text(f'control = "{control}"\n' + spec.read_text())
    as_written(spec)


def test_the_first_run_is_the_control_unless_another_is_asked_for(root):
    assert controls(root, "verl8", "verl7") == ["verl8", "verl7"]
    assert controls(root, "verl8", "verl7", "--control", "verl7") == ["verl7", "verl8"]
    assert controls(root, "verl8", "--control", "verl7") == ["verl7", "verl8"]


def test_the_control_of_the_experiment_files_is_taken(root):
    name_control(root, "verl8", "verl7")
    assert controls(root, "verl9", "verl8", "verl7") == ["verl7", "verl9", "verl8"]
    assert controls(root, "verl8") == ["verl7", "verl8"]
    assert controls(root, "verl9", "verl8") == ["verl9", "verl8"]
    name_control(root, "verl9", "verl8")
    assert controls(root, "verl9", "verl8", "verl7") == ["verl9", "verl8", "verl7"]


def test_the_table_names_score_interval_p_verdict_and_smallest_difference(root):
    shown = call("compare", "verl7", "verl8", "--lab", root).stdout
    words = " ".join(shown.split())
    for head in ("Score", "95% interval", "Items", "p (Holm)", "detectable"):
        assert head in words
    assert "undecided" in words and "4 items gained, 1 lost, 15 unchanged" in words
    assert "The same: base weights" in words
    assert "simple_python_8" not in words


def test_programs_get_the_addresses_of_both_sides(root):
    table = answer(call("compare", "verl7", "verl8", "--lab", root, "--json"))["result"]
    found = table["lines"][1]["to_control"]
    assert found["unchanged"] == 15 and found["show"].keys() == {*found["gained"], *found["lost"]}
    for side, name in (("control", "verl7"), ("other", "verl8")):
        address = found["show"]["simple_python_8"][side]
        assert address.startswith(f"{name}/") and address.endswith("/simple_python_8")
        assert call("report", address, "--lab", root).exit_code == 0
    assert table["parts"]["code"] == {"kind": "same", "paths": []}
    assert Path(table["lines"][0]["record"]).is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("verl7", "verl88"), ("'verl88'", "did you mean 'verl8'")),
        (("verl7", "verl8", "--control", "verk7"), ("'verk7'", "'verl7'")),
        (("verl7", "verl8", "--on", "held_in"), ("'held_in'", "'held_out'")),
        (("verl7", "verl8@rl.step-31"), ("rl",)),
        (("verl7", "verl8", "--lang", "fr"), ("'fr'",)),
        (("verl7", "verl7#42"), ("itself",)),
    ],
)
def test_bad_input_is_one_line_and_writes_no_page(root, arguments, words):
    assert_one_line(call("compare", *arguments, "--lab", root), *words)
    assert not (root / "comparisons").exists()


def test_an_unfair_difference_is_a_verdict_and_can_be_accepted(root):
    (manifest,) = root.glob("runs/verl8/*/manifest.json")
    manifest.write_text(json.dumps({**MANIFEST, "code": {"commit": "x"}}))
    plain = call("compare", "verl7", "verl8", "--lab", root)
    assert plain.exit_code == 0 and "not comparable: differs in code.commit" in plain.stdout
    assert "confound" in plain.stdout and "(absent)" in plain.stdout
    allowed = call("compare", "verl7", "verl8", "--lab", root, "--allow", "code")
    assert "Not a fair comparison" in allowed.stdout and "undecided" in allowed.stdout


def test_a_damaged_record_is_named_and_the_others_are_shown(root):
    (file,) = root.glob("runs/verl8/*/evaluations/*/rl.step-000030.parquet")
    file.write_bytes(file.read_bytes()[:-30])
    result = call("compare", "verl7", "verl8", "verl9", "--lab", root)
    assert_one_line(result, str(file), "left out")
    assert "verl9" in result.stdout and "Traceback" not in result.stderr
    assert_one_line(call("compare", "verl7", "verl8", "--lab", root), str(file), "cannot be read")


def test_unfinished_runs_are_refused(root):
    unfinished = empty_run(root, "verl1")
    write_status(unfinished.path, replace(stored_status(unfinished.path), status="failed"))
    assert_one_line(
        call("compare", "verl7", "verl1", "--lab", root), "verl1/", "only finished runs"
    )
