"""The checkpoints of a run on several benchmarks, with the harmonic mean of their ratios."""

from dataclasses import replace

import pytest

from assay.compare.judged_table import compare_checkpoints
from assay.compare.table import benchmarks_table
from assay.judge.averages import harmonic_of
from assay.pages.run_page import write_report
from assay.pages.run_terminal import final_blocks
from tests.judge.simulated import single_pass
from tests.pages.pages import Page, printed
from tests.pages.synthetic import RECORD, add_scores, empty_run

CLEAN = replace(RECORD, shared={})
LAST = "rl.step-000030"
BEFORE = {
    "held_out": [1.0] * 9 + [0.0] * 11,
    "lenient": [1.0] * 4 + [0.0] * 16,
    "third": [0.0] * 20,
}
AFTER = {"held_out": [1.0] * 12 + [0.0] * 8, "lenient": [1.0] * 9 + [0.0] * 11}


@pytest.fixture
def run(tmp_path):
    run = empty_run(tmp_path)
    for name, before in BEFORE.items():
        record = replace(CLEAN, name=name, benchmark=name)
        add_scores(run, "base", before, record)
        add_scores(run, LAST, AFTER.get(name, before), record)
    return run


def test_ratios_are_to_the_control_as_it_was_measured(run):
    found = benchmarks_table([compare_checkpoints(run, name) for name in AFTER])
    control, last = found.rows
    wanted = harmonic_of(
        [single_pass(values) for values in AFTER.values()],
        [single_pass(BEFORE[name]) for name in AFTER],
    )
    assert found.control == "base" and control.harmonic is not None
    assert control.harmonic.value == 1.0
    assert last.ratios == pytest.approx((12 / 9, 9 / 4))
    assert last.harmonic is not None and last.harmonic.value == pytest.approx(wanted.value)
    assert last.harmonic.interval == wanted.interval


def test_the_page_of_a_run_has_the_table_of_its_benchmarks(run):
    page = Page(write_report(run))
    (row,) = [r for r in page.rows if r[0].startswith("rl · step 30") and "×2.25" in r[2]]
    assert len(row) == 5 and "the baseline is 0" in row[4]
    assert "All benchmarks" in printed(final_blocks(run))
