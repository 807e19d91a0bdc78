"""The page says what the records and the judge say, and nothing in it can act."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.compare.judged_table import compare_checkpoints
from assay.pages.content import difference_blocks, pairings
from assay.pages.run_page import write_report
from assay.pages.words import percent, points, words
from assay.runs.metrics import append_metrics
from assay.runs.run_directory import RunDirectory, stored_status, write_status
from assay.runs.run_files import write_listed
from tests.compare.test_judged_table import control_of
from tests.pages.pages import Page
from tests.pages.synthetic import (
    RECORD,
    Shape,
    add_record,
    add_scores,
    answer,
    demo_run,
    empty_run,
    write_questions,
)

EVIL = '</pre><script>alert(1)</script><img src="http://evil.example/x" onerror="alert(2)">'


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return demo_run(tmp_path_factory.mktemp("lab"), Shape(items=120, steps=24, groups=4))


@pytest.fixture(scope="module")
def page(demo) -> Page:
    return Page(write_report(demo))


@pytest.fixture(scope="module")
def markdown(demo, page) -> str:
    return (demo.path / "report.md").read_text(encoding="utf-8")


LABELS = {"base": "base", "sft.step-000014": "sft · step 14", "rl.step-000030": "rl · step 30"}


def sections(page: Page) -> set[str]:
    return {value for _, name, value in page.attributes if name == "id"}


def small_run(root: Path, outputs: list[str]) -> RunDirectory:
    """A run of two checkpoints; the last one answered `outputs`, all wrong but the first."""
    write_questions(root / "held_out.jsonl", len(outputs))
    run = empty_run(root)
    add_scores(run, "base", [0.0] * len(outputs))
    lines = [
        answer("held_out", "rl.step-000030", f"simple_python_{i}", 0, float(i == 0), output=text)
        for i, text in enumerate(outputs)
    ]
    add_record(run, "rl.step-000030", lines)
    return run


def test_the_numbers_of_the_table_are_the_judges(demo, page, markdown):
    for line in compare_checkpoints(demo, "held_out").lines:
        label = LABELS[line.name]
        interval = f"{percent(line.interval.low)} to {percent(line.interval.high)}"
        row = page.row(label, percent(line.score))
        assert row[1:3] == [percent(line.score), interval]
        assert row[3].startswith(f"{line.items} × {line.repeats}")
        assert f"| {percent(line.score)} | {interval} | {line.items} × " in markdown
        for pairing in filter(None, (line.to_control, line.to_previous)):
            found = pairing.comparison
            row = page.row(f"{label} against {LABELS[pairing.control]}")
            assert row[1].startswith(found.verdict) and row[2] == points(found.difference)


def test_an_undecided_difference_is_called_so_with_what_can_be_detected(tmp_path):
    run = small_run(tmp_path, ["a"] * 30)
    comparison = control_of(compare_checkpoints(run, "held_out").lines[1]).comparison
    assert comparison.verdict == "undecided"
    page = Page(write_report(run))
    cell_ = page.row("rl · step 30 against base")[1]
    smallest = f"{(comparison.minimum_detectable_difference or 0) * 100:.1f}"
    assert cell_.startswith("undecided")
    assert f"minimum detectable difference: {smallest} points (80% power)" in cell_
    assert f"minimum detectable difference: {smallest} points (80% power)" in page.source


def test_abstentions_are_shown(demo, page, markdown):
    assert page.row("rl · step 30", "")[3] == (
        "120 × 11 unscored (reward failed): the score lies between 57.5% and 58.3%"
    )
    assert page.row("unscored (reward failed)")[1:] == ["0 (0.0%)", "0 (0.0%)", "1 (0.8%)"]
    assert "120 × 1, 1 unscored" in markdown


def test_a_missing_cell_is_not_run_and_never_zero(page, markdown):
    assert page.row("rl · step 40", "not run")[1:] == ["not run"]
    assert re.search(r"^\| rl · step 40 \| not run \| +\| +\|$", markdown, re.M)


def test_a_part_that_no_answer_has_is_not_zero(tmp_path):
    run = small_run(tmp_path, ["a", "b"])
    lines = [
        answer("held_out", "sft.step-000014", f"simple_python_{i}", 0, 0.0, parts="{}")
        for i in range(2)
    ]
    add_record(run, "sft.step-000014", lines)
    assert Page(write_report(run)).row("arguments") == ["arguments", "0.0%", "N/A", "50.0%"]


def test_a_model_cannot_write_markup_into_the_page(tmp_path):
    page = Page(write_report(small_run(tmp_path, [EVIL, EVIL])))
    assert "script" not in page.elements and "img" not in page.elements
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert page.blocks.count(EVIL) >= 1


def test_names_reasons_and_errors_are_escaped_too(tmp_path):
    run = small_run(tmp_path, ["a", "b"])
    spec = run.spec.read_text().replace("Function calls by SFT", "<script>alert(3)</script>")
    write_listed(run.path, run.spec, spec)
    lines = [
        answer("held_out", "sft.step-000014", "simple_python_0", 0, 0.0, error="<script>e"),
        answer("held_out", "sft.step-000014", "simple_python_1", 0, None, why="<script>w"),
    ]
    add_record(run, "sft.step-000014", lines)
    write_status(run.path, replace(stored_status(run.path), status="failed", message="<script>m"))
    page = Page(write_report(run))
    assert "script" not in page.elements
    assert "<script>e" in page.row("<script>e")[0]
    assert "<script" not in (run.path / "report.md").read_text().replace("\\<script", "")


def test_the_page_asks_for_nothing_from_outside(page):
    assert not re.search(r"https?:|@import|url\(", page.source)
    links = [a for a in page.attributes if a[1] in ("src", "href", "srcset", "xlink:href")]
    assert links and all(value.startswith("#") for _, _, value in links)
    assert not {"script", "link", "iframe", "object", "img", "base"} & set(page.elements)
    policy = next(value for _, _, value in page.attributes if "default-src" in value)
    assert "default-src 'none'" in policy and "script-src" not in policy


def test_every_entry_of_the_contents_leads_to_a_section_in_the_order_of_the_page(page):
    entries = [value[1:] for _, name, value in page.attributes if name == "href"]
    sections = [value for tag, name, value in page.attributes if (tag, name) == ("section", "id")]
    assert entries == sections == ["results", "progress", "training", "examples", "next", "more"]


def words_of(text: str) -> float:
    """Words, of which Chinese ones have 1.7 signs."""
    chinese = len(re.findall("[\u4e00-\u9fff]", text))
    others = re.sub("[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]", " ", text).split()
    return len(others) + chinese / 1.7


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_page_is_read_in_700_words_and_its_markdown_has_250_lines(demo, page, language):
    file = write_report(demo, language)
    assert 300 < words_of(Page(file).visible) <= 700
    markdown = file.with_suffix(".md").read_text("utf-8")
    assert 100 < markdown.count("\n") <= 250 and "report.html" in markdown.splitlines()[-3]


@pytest.mark.slow
def test_a_run_of_forty_checkpoints_is_as_short_and_folds_the_rest(tmp_path):
    run = demo_run(tmp_path, Shape(items=20, steps=80, groups=2, group=2))
    for step in range(2, 81, 2):
        add_scores(run, f"rl.step-{step:06d}", [1.0] * (step // 8) + [0.0] * (20 - step // 8))
    file = write_report(run)
    page = Page(file)
    assert words_of(page.visible) <= 700 >= words_of(Page(write_report(run, "zh")).visible)
    assert file.with_suffix(".md").read_text("utf-8").count("\n") <= 250
    results = page.source.partition('id="results"')[2].partition("</section>")[0]
    shown, _, folded = results.partition("<details")
    assert shown.count("<table") == 2 and "rl · step 30" in shown and "rl · step 32" not in shown
    assert all(f"rl · step {step}" in folded for step in range(2, 81, 2))


def test_verdict_and_errors_stand_before_the_results(tmp_path):
    run = small_run(tmp_path, ["a", "b"])
    for step in (1, 2, 3):
        append_metrics(run.metrics, "rl", step, 1.0, reward_mean=0.1, grad_norm=float("nan"))
    head, _, rest = Page(write_report(run)).visible.partition("Results")
    assert "error" in head and "against base" in head
    assert "error" not in rest.rpartition("Before")[0]
    assert "What to do" not in head and "lower the learning" in rest.rpartition("Next")[2]


def test_of_many_verdicts_the_table_has_those_against_the_control(demo):
    table = compare_checkpoints(demo, "held_out")
    for each, shown in ((table, 3), (replace(table, lines=table.lines * 2), 4)):
        verdicts, told = difference_blocks(each, LABELS, words())
        assert len(verdicts.rows) == shown  # type: ignore[attr-defined]
        assert len(told.blocks[0].lines) == len(pairings(each))  # type: ignore[attr-defined]


def test_each_repeat_and_their_standard_deviation_stand_below_the_mean(tmp_path):
    run = small_run(tmp_path, ["a"])
    scores: Any = [[1.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    add_scores(run, "base", scores, replace(RECORD, name="sampled", sampling={"temperature": 1.0}))
    page = Page(write_report(run))
    # Means 3/4, 1/4, 2/4: their standard deviation is 1/4. Of three answers all items have a right
    # one; of two, items with one right in three miss it once in three pairs.
    spread = "repeats 75.0%, 25.0%, 50.0%; standard deviation 25.0"
    passed = "pass@2 83.3%, pass@3 100.0%"
    assert page.row("base", "50.0%")[1] == f"50.0%{spread}{passed}"


def test_examples_are_gained_and_lost_items(page):
    section = page.source.partition('id="examples"')[2].partition("</section>")[0]
    kinds = re.findall(r'<span class="badge \w*">(gained|lost)</span>', section)
    assert kinds and kinds[0] == "gained"
    assert any(block.startswith("How warm is it in") for block in page.blocks)


def test_questions_that_cannot_be_read_are_missed_openly(tmp_path):
    run = small_run(tmp_path, ["a", "b"])
    (tmp_path / "held_out.jsonl").unlink()
    page = Page(write_report(run))
    assert "The questions could not be read again" in page.source
    assert "held_out.jsonl: no such file" in page.source


def test_rows_left_out_are_counted_by_reason_and_the_leakage_check_is_shown(page):
    assert "258 rows in the source, 33 left out, 201 to train on, 24 dev." in page.source
    assert page.row("same function name as a test item (bfcl/simple_python)")[1] == "21"
    assert page.row("prompt longer than max_prompt_tokens")[1] == "9"
    assert "Leakage check against bfcl/simple_python: 21 training rows" in page.source


def test_a_test_part_is_counted(tmp_path):
    run = empty_run(tmp_path)
    manifest = json.loads(run.manifest.read_text(encoding="utf-8"))
    manifest["data"]["train"]["test"] = {"rows": 9}
    run.manifest.write_text(json.dumps(manifest), encoding="utf-8")
    assert "201 to train on, 24 dev. 9 test: held out" in Page(write_report(run)).source


def test_the_chosen_checkpoint_is_marked(page, markdown):
    assert page.row("rl · step 30")[0].endswith("chosen on dev")
    assert re.search(r"^\| 30 \| 54\.2%, \*\*chosen\*\* \|", markdown, re.M)
    assert markdown.count("**chosen**") == 1


def test_the_surrogate_is_never_shown_as_a_loss(demo, page, markdown):
    assert not re.search(r"\bloss\b", page.source, re.I)
    assert not re.search(r"\bloss\b", markdown, re.I)


def test_a_stage_that_may_part_from_its_evaluations_is_marked(tmp_path):
    run = small_run(tmp_path, ["a"])
    assert "other_rendering_than" not in Page(write_report(run)).source
    text = run.spec.read_text()
    mark = 'method = "sft"\nother_rendering_than = ["held_out"]'
    write_listed(run.path, run.spec, text.replace('method = "sft"', mark, 1))
    for language in ("en", "zh"):
        source = Page(write_report(run, language)).source
        assert "held_out (other_rendering_than)" in source.replace("（", " (").replace("）", ")")


def test_a_run_without_any_record_still_has_a_page(tmp_path):
    page = Page(write_report(empty_run(tmp_path)))
    assert "held_out: not run" in page.source
    assert "no reporting evaluation" not in page.source
    assert "Not measured: held_out has no score." in page.source
    assert {"training", "health", "methods"}.isdisjoint(sections(page))


def test_a_metric_that_stays_0_but_for_rounding_has_no_curve_and_the_reward_always_has(tmp_path):
    run = small_run(tmp_path, ["a", "b"])
    for step in (1, 2, 3):
        line = {"reward_mean": 0.0, "kl": 3e-9 * step, "clip_low_share": 0.0, "entropy": 0.5 / step}
        append_metrics(run.metrics, "rl", step, 1.0, **line)
    page = Page(write_report(run))
    section = page.source.partition('id="training"')[2].partition("</section>")[0]
    assert "Entropy" in section and "Mean reward" in section
    assert "KL" not in section and "clipped" not in section


def test_a_page_of_another_language_lies_beside_the_english_one(tmp_path):
    run = small_run(tmp_path, ["a", "b"])
    pages = [write_report(run, lang) for lang in ("en", "zh")]
    assert [page.name for page in pages] == ["report.html", "report.zh.html"]
    names = [f"report{lang}.{kind}" for lang in ("", ".zh") for kind in ("html", "md")]
    assert [page.name for page in run.pages] == names
    assert "Results" in pages[0].read_text("utf-8") and "结果" in pages[1].read_text("utf-8")
