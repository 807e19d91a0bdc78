"""The notebook: every run and the notes, in order of time, and nothing that acts."""

import json
from dataclasses import replace

from assay.pages.notebook import notebook
from assay.runs.notes import add_note
from assay.runs.run_directory import stored_status, write_status
from tests.pages.synthetic import Shape, demo_run, empty_run

SMALL = Shape(items=30, steps=6, groups=2)


def test_a_run_has_its_date_state_results_verdicts_and_notes(tmp_path):
    run = demo_run(tmp_path, SMALL)
    add_note(tmp_path, str(run), "why is rl no better?")
    text = notebook(tmp_path)
    date = stored_status(run.path).started[:10]
    assert f"## {date} · demo/{run.id} · seed 42 · finished\n" in text
    assert "held\\_out: rl · step 30" in text and "**better**: rl · step 30 against base: " in text
    assert "why is rl no better?" in text
    assert text.startswith("# Notebook of ")


def test_runs_that_are_not_finished_are_pending(tmp_path):
    run = empty_run(tmp_path, "half")
    write_status(run.path, replace(stored_status(run.path), status="interrupted", message="power"))
    assert f"half/{run.id} · seed 42 · interrupted · pending\n\n> power" in notebook(tmp_path)


def test_the_notebook_of_one_run_holds_nothing_of_the_others(tmp_path):
    run, _ = demo_run(tmp_path, SMALL), empty_run(tmp_path, "other")
    text = notebook(tmp_path, run)
    assert "other" not in text and text.startswith("## ")


def test_notes_outlive_their_runs(tmp_path):
    add_note(tmp_path, "gone/20260101T000000Z-aaaaaa", "deleted for space")
    text = notebook(tmp_path)
    assert "not in the lab any more" in text and "deleted for space" in text


def test_a_damaged_run_does_not_hide_the_others(tmp_path):
    bad, good = empty_run(tmp_path, "bad"), demo_run(tmp_path, SMALL)
    bad.spec.write_text("name = ")
    text = notebook(tmp_path)
    assert "the records cannot be read" in text and f"demo/{good.id}" in text


def test_notes_cannot_write_markup_and_may_hold_any_language(tmp_path):
    run = empty_run(tmp_path)
    add_note(tmp_path, str(run), "<b>粗体</b> | `x`\n# title")
    text = notebook(tmp_path)
    assert "\\<b\\>粗体" in text and "\n# title" not in text
    stored = (tmp_path / "notebook.jsonl").read_text(encoding="utf-8")
    assert json.loads(stored)["text"].endswith("# title")
