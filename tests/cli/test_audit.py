"""`assay audit` as a user meets it: findings for people and programs, and bad files in one line."""

from pathlib import Path

import pytest

from tests.cli.conftest import answer, assert_one_line, call
from tests.docs.pages import blocks

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "experiments" / "reported" / "000-tool-calling.toml"
EVERY_TABLE = ROOT / "docs" / "audit-record.toml"


def test_findings_are_printed_worst_first_and_counted():
    result = call("audit", TOOLS)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("error: baseline_4bthinking: 14.25, 14.75 cannot be")
    assert lines[-1].endswith("5 errors, 11 warnings, 11 notes in 90 results")
    severities = [line.split(":")[0] for line in lines if not line.startswith(" ")][:-1]
    assert severities == ["error"] * 5 + ["warning"] * 11 + ["note"] * 11
    assert not result.stderr


def test_a_program_gets_the_record_the_keys_and_the_words():
    found = answer(call("audit", TOOLS, "--json"))
    assert found["command"] == "audit"
    assert len(found["result"]["flaws"]) == len(found["findings"]) == 27
    flaw = found["result"]["flaws"][0]
    assert (flaw["key"], flaw["numbers"]["items"]) == ("impossible_granularity", 200)
    assert {"severity", "what", "evidence", "fix"} == set(found["findings"][0])
    runs = {run["name"]: run for run in found["result"]["reports"][0]["runs"]}
    assert runs["lora1"]["scores"][""][0] == "26.50"


def test_items_control_and_columns_may_be_given_for_a_table(tmp_path: Path):
    file = tmp_path / "log.md"
    file.write_text("|Model|acc|\n|-|-|\n|baseline|20.0|\n|ours|60.0|\n", encoding="utf-8")
    named = ("--column", "run=Model", "--column", "score=acc", "--control", "baseline")
    assert "better" not in call("audit", file, *named).stdout
    assert "note: ours / baseline: better" in call("audit", file, *named, "--items", 200).stdout
    assert_one_line(call("audit", file), "log.md", "no table has the columns run and score")
    assert_one_line(call("audit", file, "--column", "run"), "'run' is not ROLE=TITLE")


def test_a_file_without_results_ends_in_one_line(tmp_path: Path):
    file = tmp_path / "log.toml"
    file.write_text("[[runs]]\nname = 1\n", encoding="utf-8")
    assert_one_line(call("audit", file), "log.toml:2", "runs.0.name", "string")
    file.write_text("about = 'x'\n", encoding="utf-8")
    assert_one_line(call("audit", file), "log.toml", "no recognisable results")


def test_a_folder_is_called_one(tmp_path: Path):
    assert_one_line(call("audit", tmp_path), f"{tmp_path}: is a folder", "name a report", ".toml")


@pytest.mark.parametrize(("language", "key"), [("toml", "inside_noise"), ("md", "undecided")])
def test_the_examples_of_the_manual_are_read(tmp_path: Path, language: str, key: str):
    (text,) = blocks("audit.md", language)
    file = tmp_path / f"example.{language}"
    file.write_text(text, encoding="utf-8")
    found = answer(call("audit", file, "--json"))
    keys = {flaw["key"] for flaw in found["result"]["flaws"]}
    assert key in keys


def test_the_record_with_every_table_shows_the_whole_format():
    from assay.data.reported.reported_record import Reported

    text = EVERY_TABLE.read_text(encoding="utf-8")
    shown = {line.split("]")[0].strip("[") for line in text.splitlines() if line.startswith("[")}
    assert shown == set(Reported.model_fields) - {"about", "line", "source"}
