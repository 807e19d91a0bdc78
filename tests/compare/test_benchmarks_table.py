"""Several benchmarks against a control, by `assay compare` and in run pages."""

from dataclasses import replace
from pathlib import Path

import pytest

import assay
from assay.judge.averages import harmonic_of
from assay.pages.run_page import write_report
from assay.pages.run_terminal import final_blocks
from assay.runs.run_names import find_run, parse_run_name
from tests.cli.conftest import answer, assert_one_line, call
from tests.compare.test_judged_table import RL, SFT, other_run
from tests.judge.simulated import single_pass
from tests.pages.pages import Page, printed
from tests.pages.synthetic import MANIFEST, RECORD, add_scores

CLEAN = replace(RECORD, shared={})
OTHER = replace(CLEAN, name="lenient", benchmark="bfcl/simple_python")
HARD = {"verl7": [1.0] * 4 + [0.0] * 16, "verl8": [1.0] * 9 + [0.0] * 11}


@pytest.fixture
def root(tmp_path):
    for name, values in (("verl7", SFT), ("verl8", RL)):
        run = other_run(tmp_path, MANIFEST, values, name, CLEAN)
        add_scores(run, "base", [1.0] + [0.0] * 19, OTHER)
        add_scores(run, "rl.step-000030", HARD[name], OTHER)
    return tmp_path


def compared(root, *arguments):
    return answer(call("compare", *arguments, "--lab", root, "--json"))["result"]


def test_ratios_are_to_the_control_as_it_was_measured(root):
    found = compared(root, "verl7", "verl8", "--on", "held_out", "--on", "lenient")
    control, other = found["rows"]
    wanted = harmonic_of(
        [single_pass(RL), single_pass(HARD["verl8"])],
        [single_pass(SFT), single_pass(HARD["verl7"])],
    )
    assert found["evaluations"] == ["held_out", "lenient"]
    assert control["harmonic"]["value"] == 1.0
    assert list(other["ratios"].values()) == pytest.approx([12 / 9, 9 / 4])
    assert other["harmonic"]["value"] == pytest.approx(wanted.value)
    assert other["harmonic"]["interval"]["low"] == pytest.approx(wanted.interval.low)
    assert [table["evaluation"] for table in found["tables"]] == ["held_out", "lenient"]
    line = found["tables"][0]["lines"][0]
    assert (line["limits"]["max_tokens"], line["truncated"], line["sampled"]) == (256, 0, None)
    page = Page(Path(found["page"]))
    again = assay.compare_benchmarks("verl7", "verl8", on=["held_out", "lenient"], root=root)
    assert list(again.harmonic.values()) == pytest.approx([1.0, wanted.value])
    assert f"{wanted.value:.3f}" in again._repr_html_()
    assert page.row("verl8")[3].startswith(f"{wanted.value:.3f}")
    assert "×1.333" in page.row("verl8")[1] and "undecided" in page.row("verl8")[1]


def test_accepted_differences_mark_the_table_of_all_benchmarks_too(tmp_path):
    for name, manifest in (("one", MANIFEST), ("two", {**MANIFEST, "code": {"commit": "c0ffee"}})):
        run = other_run(tmp_path, manifest, SFT, name, CLEAN)
        add_scores(run, "rl.step-000030", HARD["verl7"], OTHER)
    names = ("one", "two", "--on", "held_out", "--on", "lenient")
    tables = compared(tmp_path, *names)["tables"]
    verdicts = [t["lines"][1]["to_control"]["comparison"]["verdict"] for t in tables]
    assert verdicts == ["not comparable"] * 2
    allowed = (*names, "--allow", "code.commit")
    shown = call("compare", *allowed, "--lab", tmp_path).stdout
    page = Path(compared(tmp_path, *allowed)["page"])
    for said in (shown, page.read_text(), page.with_suffix(".md").read_text()):
        assert "Not a fair comparison" in " ".join(said.split()) and "code.commit" in said


def test_the_page_of_a_run_has_the_table_of_its_benchmarks(root):
    run = find_run(root, parse_run_name("verl8"))
    add_scores(run, "base", [1.0] * 6 + [0.0] * 14, replace(CLEAN, name="third", benchmark="third"))
    add_scores(run, "rl.step-000030", RL, replace(CLEAN, name="third", benchmark="third"))
    page = Page(write_report(run))
    (row,) = [r for r in page.rows if r[0].startswith("rl · step 30") and "×9" in r[2]]
    assert len(row) == 5 and "the baseline is 0" in row[4]
    assert "All benchmarks" in printed(final_blocks(run))


def test_files_of_other_tools_are_compared_on_one_benchmark(root):
    asked = ("--on", "held_out", "--on", "lenient", "--metric", "x")
    assert_one_line(call("compare", "verl7", "verl8", *asked, "--lab", root), "in the lab alone")
