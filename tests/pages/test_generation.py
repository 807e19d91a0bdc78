"""Pages and terminal say under which limits answers were generated, and pass@k."""

from dataclasses import replace

import pytest

from assay.judge.arms import pass_at_k
from assay.pages.run_page import write_report
from assay.pages.run_terminal import final_blocks
from tests.pages.pages import Page, printed
from tests.pages.synthetic import RECORD, add_record, answer, empty_run, item_ids, write_questions

SAMPLED = replace(
    RECORD,
    name="sampled",
    sampling={"temperature": 0.7, "top_p": 0.95, "max_tokens": 64},
    repeats=4,
)
ANSWERS = (("7", "7", "7", "3"), ("1", "7", "2", ""), ("5", "5", "6", "6"))
"""Final answers to three items; 7 is right."""


def lines(checkpoint: str, name: str = "sampled") -> list[dict]:
    found = []
    for item, given in zip(item_ids(3), ANSWERS, strict=True):
        for repeat, text in enumerate(given):
            line = answer(name, checkpoint, item, repeat, float(text == "7"))
            line["ended"] = "length" if text == "" else "stop"
            found.append(line)
    return found


@pytest.fixture
def run(tmp_path):
    write_questions(tmp_path / "held_out.jsonl", 3)
    made = empty_run(tmp_path)
    for name in ("base", "rl.step-000030"):
        add_record(made, name, [answer("held_out", name, i, 0, 1.0) for i in item_ids(3)])
    return made


def test_repeats_have_mean_and_pass_on_page_and_terminal(run):
    add_record(run, "rl.step-000030", lines("rl.step-000030"), SAMPLED)
    page, shown = Page(write_report(run)), printed(final_blocks(run))
    pass_2 = (1 + pass_at_k(4, 1, 2) + 0) / 3
    markdown = (run.path / "report.md").read_text(encoding="utf-8")
    for name, value in (("mean@4", 4 / 12), ("pass@2", pass_2), ("pass@4", 2 / 3)):
        (row,) = [row for row in page.rows if len(row) == 5 and name in row[4]]
        assert f"{name} {value:.1%} (" in row[4] and f"{name} {value:.1%} (" in markdown
        assert f"{name}" in shown and f"{value:.1%}" in shown


def test_limits_and_truncated_answers_stand_by_every_evaluation(run):
    add_record(run, "rl.step-000030", lines("rl.step-000030"), SAMPLED)
    page, shown = Page(write_report(run)), printed(final_blocks(run))
    greedy = [row for row in page.rows if row[0] == "held_out" and "max_tokens" in row[2]]
    assert greedy[0][2] == "temperature 0, top_p 1, top_k 0, max_tokens 256"
    assert greedy[0][3] == "0.0% (0 of 3)"
    cut = next(row for row in page.rows if row[0] == "sampled" and "max_tokens" in row[2])
    assert cut[3] == "8.3% (1 of 12)"
    assert "8.3% (1 of 12)" in shown and "top_p 0.95, max_tokens 64" in shown


def test_a_page_begins_with_what_the_token_limit_cut_and_shows_an_item_where_none_changed(run):
    page = Page(write_report(run))
    assert "were cut at the token limit" not in page.source
    assert 'plain">unchanged</span> 3' in page.source.partition('id="examples"')[2]
    cut = [answer("held_out", "rl.last", i, 0, 0.0) | {"ended": "length"} for i in item_ids(3)]
    add_record(run, "rl.step-000040", cut)
    head = Page(write_report(run)).source.partition('id="results"')[0]
    assert "100.0% of the answers of rl · step 40 were cut at the token limit" in head
