"""A benchmark that lacks a part is N/A, with the reason, and stops nothing else."""

from pathlib import Path

import pytest

from assay.lab.check.all_checks import check_experiment
from assay.lab.monitor.observer import Silent
from assay.lab.run.runner import launch_or_resume
from assay.pages.run_page.page import write_report
from assay.runs.history import evaluation_records, measured_checkpoints
from assay.tasks.tools import task
from tests.labs import make_lab

WHY = "not installed: faiss-cpu (pip install faiss-cpu)"
EXPERIMENT = """\
name = "whole"
model = "path:model"
task = "tools"

[evaluate.vector]
benchmark = "bfcl/memory_vector"
role = "report"
checkpoints = ["base"]
sampling = { temperature = 0.0, max_tokens = 2 }

[evaluate.quiet]
benchmark = "bfcl/irrelevance"
role = "report"
take = { rows = 2, how = "first" }
checkpoints = ["base"]
sampling = { temperature = 0.0, max_tokens = 2 }
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(task, "missing", lambda category: WHY)
    return make_lab(tmp_path, EXPERIMENT, rows={})


def test_check_record_and_page_say_why_and_the_other_evaluations_run(file: Path):
    findings = check_experiment(file, root=file.parent).findings
    (found,) = [each for each in findings if "cannot be run here" in each.what]
    assert (found.severity, found.evidence) == ("warning", WHY)
    (done,) = launch_or_resume(file, [], root=file.parent, observer=Silent())
    records = {record.name: record for record in evaluation_records(done.run)}
    assert records["vector"].missing == WHY and records["quiet"].missing == ""
    assert measured_checkpoints(done.run, records["vector"]) == []
    assert measured_checkpoints(done.run, records["quiet"]) == ["base"]
    page = write_report(done.run).with_suffix(".md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("| vector")]
    assert WHY in line and "not run" in line and "%" not in line


def test_a_score_that_is_needed_is_refused_before_anything_is_asked(file: Path):
    chosen = EXPERIMENT.replace('"report"', '"select"', 1)
    file.write_text(chosen)
    findings = check_experiment(file, root=file.parent).findings
    assert [f.severity for f in findings if WHY in f.what] == ["error"]
