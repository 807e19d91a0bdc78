"""The page of a comparison: the judge's numbers, each with its record, and nothing that acts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from markupsafe import escape

from assay.compare.table import ComparisonTable
from assay.pages.comparison_page import line_labels, write_comparison
from assay.pages.words import percent, points, words
from assay.runs.run_directory import RunDirectory
from tests.compare.tables import runs_table
from tests.compare.test_judged_table import BASE, RL, SFT, control_of, other_run
from tests.english import explain
from tests.pages.pages import Page
from tests.pages.synthetic import (
    MANIFEST,
    RECORD,
    add_record,
    add_scores,
    answer,
    empty_run,
    item_ids,
)

CLEAN = replace(RECORD, shared={})
EVIL = '</pre><script>alert(1)</script><img src="http://evil.example/x" onerror="alert(2)">'


def three_runs(root: Path) -> ComparisonTable:
    """A control, a run under test, and a run that differs in what nobody declared."""
    control = other_run(root, MANIFEST, SFT, "verl7", CLEAN)
    egpo = {**MANIFEST, "stages": {"rl": {"algorithm": "egpo"}}}
    varied = other_run(root, egpo, RL, "verl8", CLEAN)
    unfair = other_run(root, {**egpo, "code": {"commit": "c0ffee"}}, BASE, "verl9", CLEAN)
    vary = ["stage.rl.algorithm"]
    return runs_table(control, varied, unfair, vary=vary)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def table(root: Path) -> ComparisonTable:
    return three_runs(root)


@pytest.fixture(scope="module")
def file(root: Path, table: ComparisonTable) -> Path:
    return write_comparison(table, root)


@pytest.fixture(scope="module")
def page(file: Path) -> Page:
    return Page(file)


@pytest.fixture(scope="module")
def markdown(file: Path) -> str:
    return file.with_suffix(".md").read_text(encoding="utf-8")


def test_scores_and_intervals_are_the_judges(table, page, markdown):
    for line in table.lines:
        label = line.name.partition("/")[0]
        row = page.row(label, percent(line.score))
        interval = f"{percent(line.interval.low)} to {percent(line.interval.high)}"
        assert row[1:3] == [percent(line.score), interval]
        assert row[3:] == [f"{line.items} × {line.repeats}"]
        assert f"| {interval} | {line.items} × {line.repeats} |" in markdown


def test_differences_and_p_values_are_the_judges(table, page, markdown):
    varied, unfair = (control_of(line) for line in table.lines[1:])
    row = page.row("verl8", "undecided")
    found = varied.comparison
    smallest = f"{(found.minimum_detectable_difference or 0) * 100:.1f} points"
    assert smallest in row[1] and row[2].startswith(points(found.difference))
    assert row[4] == f"{found.adjusted_p:.2g}"
    assert "4 items gained, 1 lost, 15 unchanged; 75.0% of the answers" in page.source
    assert page.row("verl9", "not comparable")[4] == "–"
    for pairing in (varied, unfair):
        assert str(escape(explain(pairing.comparison))) in page.source
    assert "| undecided, " in markdown and "| not comparable |" in markdown


def test_what_differs_is_listed_part_by_part(page, markdown):
    assert "The same: base weights" in page.source
    assert page.row("estimator")[1] == "declared"
    row = page.row("code")
    assert row[1] == "confound" and "code.commit" in row[2] and "c0ffee" in row[2]
    assert "`code.commit` (confound): (absent) → c0ffee" in markdown


def test_the_records_that_numbers_come_from_are_there(table, page, file, markdown):
    links = [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    assert [(file.parent / link).resolve() for link in links] == [line.file for line in table.lines]
    assert all(f"({link})" in markdown for link in links)


def test_every_changed_item_is_named_by_what_show_takes(table, root, page, markdown):
    from assay.runs.history import find_samples
    from assay.runs.run_names import find_run, parse_run_name

    flips = control_of(table.lines[1]).flips
    address = table.lines[1].address
    for item in (*flips.gained, *flips.lost):
        assert f"<code>{address}{item}</code>" in page.source
    name, _, id_ = f"{address}{flips.lost[0]}".partition(":")
    (sample,) = find_samples(find_run(root, parse_run_name(name)), id_)
    assert (sample["item_id"], sample["score"]) == ("simple_python_8", 0.0)
    assert "simple\\_python\\_8" in markdown


def hostile(root: Path, name: str, score: float) -> RunDirectory:
    run = empty_run(root, name)
    lines = [
        answer("held_out", "base", item, 0, score, output=EVIL + "\x1b[2J\u202e")
        for item in item_ids(3)
    ]
    add_record(run, "base", lines, CLEAN)
    return run


def test_what_a_model_or_a_manifest_says_cannot_act(tmp_path):
    control, other = hostile(tmp_path, "a", 0.0), hostile(tmp_path, "b", 1.0)
    other.manifest.write_text(json.dumps({**MANIFEST, "code": {EVIL: EVIL}}))
    page_ = write_comparison(runs_table(control, other, allow=["code"]), tmp_path)
    page = Page(page_)
    assert not {"script", "img", "iframe", "object", "link"} & set(page.elements)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert any(EVIL in block and "␛[2J" in block for block in page.blocks)
    assert "\x1b" not in page.source and "\u202e" not in page.source
    markdown = page_.with_suffix(".md").read_text().replace("\\<script", "")
    assert "<script" not in markdown.replace("</pre><script", "")


def test_accepted_confounds_mark_every_table(tmp_path):
    control = other_run(tmp_path, MANIFEST, SFT, "a", CLEAN)
    other = other_run(tmp_path, {**MANIFEST, "code": {"commit": "x"}}, RL, "b", CLEAN)
    fair = Page(write_comparison(runs_table(control, other), tmp_path))
    assert "Not a fair comparison" not in fair.source
    file = write_comparison(runs_table(control, other, allow=["code"]), tmp_path)
    page, markdown = Page(file), file.with_suffix(".md").read_text()
    assert page.source.count("Not a fair comparison") == 3, "at the head and below both tables"
    assert markdown.count("Not a fair comparison") == 3


def test_runs_of_one_name_are_told_apart_by_their_ids(tmp_path):
    first = other_run(tmp_path, MANIFEST, SFT, "same", CLEAN)
    second = empty_run(tmp_path, "same")
    add_scores(second, "rl.step-000030", RL, CLEAN)
    labels = line_labels(runs_table(first, second), words())
    assert set(labels.values()) == {
        f"same/{run.id.rpartition('-')[2]} · rl · step 30" for run in (first, second)
    }
