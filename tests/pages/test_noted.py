"""What an experiment file says of itself in the notebook, and what others reported of it."""

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.experiment.tables import ReportedRun
from assay.judge.intervals import wilson
from assay.pages.notebook import file_entry, notebook, reported_scores
from assay.pages.words import words
from tests.pages.synthetic import SPEC, empty_run

NOTE = """
[note]
why = "Is it the | layout?"
expected = "<b>More</b> than verl7."
faults = ["cut at 1 024 tokens", "first rows"]
reported = {{ file = "log.toml", run = "verl8" }}

[data."""
RECORD = """
[scoring]
items = 200
[[runs]]
name = "verl8"
scores = [61.0, 62.0, 63.0]
[[runs]]
name = "planned"
finished = false
"""
SPEC_WITH_NOTE = SPEC.replace("[data.", NOTE.lstrip(), 1)


def noted(root: Path, lang: str = "en") -> str:
    empty_run(root, "verl8", SPEC_WITH_NOTE)
    return notebook(root, lang=lang)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    (tmp_path / "log.toml").write_text(RECORD)
    return tmp_path


def test_the_entry_of_a_run_says_why_what_was_expected_and_every_fault(record: Path):
    text = noted(record)
    assert "- why: Is it the \\| layout?" in text
    assert "- expected: \\<b\\>More\\</b\\> than verl7." in text
    assert text.count("- known fault: ") == 2 and "cut at 1 024 tokens" in text


def test_the_reported_score_has_its_passes_items_and_the_interval_of_one_pass(record: Path):
    (score,) = reported_scores(record, ReportedRun(file="log.toml", run="verl8"))
    assert (score.score, score.passes, score.items) == (0.62, 3, 200)
    assert score.interval == wilson(124, 200), "passes over the same items are no further items"
    said = "reported as verl8 in log.toml: 62.0%, mean of 3 passes over 200 items (95% interval "
    assert said + "55.1% to 68.4%)" in noted(record)


def test_a_run_without_a_result_is_not_zero(record: Path):
    assert reported_scores(record, ReportedRun(file="log.toml", run="planned")) == []
    spec = SPEC_WITH_NOTE.replace('run = "verl8"', 'run = "planned"')
    empty_run(record, "other", spec)
    assert "reported as planned in log.toml: no result" in notebook(record)


def test_a_record_that_is_not_there_or_lacks_the_run_is_named(tmp_path: Path, record: Path):
    with pytest.raises(InputError, match=r"log\.toml: has no run 'verl9' .*'verl8'"):
        reported_scores(record, ReportedRun(file="log.toml", run="verl9"))
    (record / "log.toml").unlink()
    assert "log.toml, which cannot be read: " in noted(record)


def test_a_file_has_an_entry_before_it_has_runs(record: Path):
    file = record / "verl8.toml"
    file.write_text(SPEC_WITH_NOTE.format(name="verl8"), encoding="utf-8")
    experiment = read_experiment(file)
    before = file_entry(experiment, record, words())
    assert before.startswith(f"## {experiment.name}\n") and "- no run in this lab yet" in before
    assert "- known fault: first rows" in before
    run = empty_run(record, experiment.name, SPEC_WITH_NOTE)
    assert f"- runs: {run}" in file_entry(experiment, record, words())
    assert "已知缺陷：first rows" in file_entry(experiment, record, words("zh"))


def test_an_unknown_key_of_a_note_is_an_error_with_its_line(tmp_path: Path):
    file = tmp_path / "e.toml"
    text = SPEC_WITH_NOTE.replace("faults =", "fault =").format(name="verl8")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"e\.toml:\d+: note\.fault: unknown key .*'faults'"):
        read_experiment(file)
