"""`assay report RUN --bfcl FOLDER`, as a user calls it."""

from dataclasses import replace
from pathlib import Path

import pytest

from assay.tasks.tools.single_turn import entries
from tests.cli.conftest import answer, assert_one_line, call
from tests.pages.synthetic import RECORD, add_record, empty_run
from tests.pages.synthetic import answer as line


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab with a run that was measured on one category."""
    monkeypatch.setenv("ASSAY_LAB", str(tmp_path))
    run = empty_run(tmp_path, "tools")
    record = replace(RECORD, name="bfcl", benchmark="bfcl/multi_turn_base")
    rows = entries("multi_turn_base")[:4]
    add_record(run, "base", [line("bfcl", "base", row.id, 0, 1.0) for row in rows], record)
    return tmp_path


@pytest.mark.slow
def test_the_files_are_written_and_named(lab: Path):
    found = call("report", "tools", "--bfcl", lab / "new" / "out")
    assert found.exit_code == 0, found.stderr
    text = " ".join(found.stdout.split())
    assert "multi_turn_base: 100.0% (51.0% to 100.0%), 4 of 200 items" in text
    assert "N/A" in text and "multi_turn_miss_func" in text
    names = {file.name for file in (lab / "new" / "out").iterdir()}
    assert names == {
        "data_multi_turn.csv",
        "bfcl_categories.csv",
        "bfcl_breakdown.csv",
        "bfcl_overall.csv",
    }


def test_programs_get_the_same_with_null_for_what_was_not_run(lab: Path):
    found = call("report", "tools", "--bfcl", lab / "out", "--json")
    result = answer(found)["result"]
    (scores,) = result["scores"]
    assert scores["multi_turn_overall"] is None
    assert (scores["categories"]["multi_turn_base"], scores["categories"]["live_simple"]) == (
        1,
        None,
    )
    assert len(scores["categories"]) == 23
    assert {share["by"] for share in scores["breakdown"]["multi_turn_base"]} == {"class", "turns"}
    assert len(result["files"]) == 4


def test_a_run_without_bfcl_is_one_line_and_writes_nothing(lab: Path):
    empty_run(lab, "other")
    found = call("report", "other", "--bfcl", lab / "out")
    assert_one_line(found, "was measured on no category of BFCL")
    assert not (lab / "out").exists()


def test_a_folder_that_is_a_file_is_one_line(lab: Path):
    (lab / "taken").write_text("")
    found = call("report", "tools", "--bfcl", lab / "taken")
    assert_one_line(found, "taken")
