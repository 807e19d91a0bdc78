"""`assay report RUN --bfcl FOLDER`: BFCL's own command scores the files as Assay scored the run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.data.row import Message
from assay.labs.tools.multi_turn import truth_completion
from assay.labs.tools.parsing import call_text
from assay.labs.tools.single_turn import entries
from assay.runs.records import conversation_columns
from tests.cli.conftest import answer, assert_one_line, call
from tests.labs.tools.upstream import asked
from tests.pages.synthetic import RECORD, add_record, empty_run
from tests.pages.synthetic import answer as line


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_LAB", str(tmp_path))
    return tmp_path


def measured(lab: Path, category: str, answers: dict[int, dict[str, Any]], run: Any = None) -> Any:
    """A run with answers to entries of a category, by their place."""
    run = run or empty_run(lab, "tools")
    rows, record = entries(category), replace(RECORD, name=category, benchmark=f"bfcl/{category}")
    lines = [
        line(category, "base", f"x_{n}", 0, 1.0) | {"item_id": rows[n].id} | own
        for n, own in answers.items()
    ]
    add_record(run, "base", lines, record)
    return run


def test_bfcls_own_command_scores_the_files(lab: Path):
    gold = {n: call_text(entries("simple_python")[n].messages[-1].tool_calls) for n in range(3)}
    texts = {0: gold[0], 1: f"<think>{gold[0]}</think>\n\n{gold[1]}", 2: gold[1]}
    run = measured(lab, "simple_python", {n: {"output": text} for n, text in texts.items()})
    measured(lab, "live_irrelevance", {0: {"output": "No."}, 1: {"output": gold[0]}}, run)
    truth = truth_completion(entries("multi_turn_base")[1]).messages
    cut = (*truth[:-1], Message("assistant", "<tool_call>"))
    dialogues = {1: truth, 2: truth, 3: cut}
    told = {n: conversation_columns(m, ()) for n, m in dialogues.items()}
    measured(lab, "multi_turn_base", told, run)
    found = call("report", "tools", "--bfcl", lab / "new" / "out", "--json")
    result = answer(found)["result"]
    assert len(result["files"]) == 3
    assert f"--result-dir {lab / 'new' / 'out' / 'base'}" in result["commands"][0]
    counts = asked(lab, results=str(lab / "new" / "out" / "base"))
    assert counts == {
        "simple_python": [2, 3],
        "live_irrelevance": [1, 2],
        "multi_turn_base": [1, 3],
    }


def test_a_run_without_bfcl_and_a_folder_that_is_a_file_are_one_line(lab: Path):
    empty_run(lab, "other")
    assert_one_line(call("report", "other", "--bfcl", lab / "out"), "no category of BFCL")
    assert not (lab / "out").exists()
    measured(lab, "simple_python", {0: {}})
    (lab / "taken").write_text("")
    assert_one_line(call("report", "tools", "--bfcl", lab / "taken"), "taken")
