"""A checkpoint that is asked fewer items: which, what is recorded, and what it is compared on."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from assay.compare.judged_table import compare_checkpoints
from assay.data.splits import drawn
from assay.errors import InputError
from assay.lab.session.validate import read_whole
from assay.pages.content import about_evaluation, result_blocks
from assay.pages.facts import gather
from assay.pages.markdown import blocks_markdown
from assay.pages.words import words
from assay.runs.history import answers_in, find_record
from assay.runs.records import EvaluationRecord, read_scores
from assay.runs.run_files import DamagedFile
from tests.from_files import run_from
from tests.pages.synthetic import add_scores, empty_run
from tests.tiny_labs import make_lab
from tests.written import as_written

RECORD = EvaluationRecord(
    "bfcl", "bfcl/simple_python", "report", tuple("abcdefgh"), "h", 2, {}, "r", "c", {}, 1
)


TABLE = """
[evaluate.test]
benchmark = "math/gsm8k"
options = { path = "test.jsonl", format = "messages" }
role = "report"
checkpoints = ["base", "sft.last"]
"""
SHORT = {"steps  = 40": "steps = 2", "checkpoint_every = 8\n": ""}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fewer")
    tables = TABLE + "sampling = { max_tokens = 12 }\nfewer = { base = 3 }\nrepeats = 2\n"
    return run_from(make_lab(folder, until="[stage.rl]", edits=SHORT, tables=tables))


def untrained(folder, fewer, role="report"):
    """The file of an evaluation of the base model alone."""
    table = TABLE.replace(', "sft.last"', "").replace("report", role)
    return make_lab(folder, until="[stage.sft]", tables=f"{table}fewer = {fewer}\n")


def test_a_part_is_drawn_by_ids_and_fewer_are_among_more():
    some = [replace(RECORD, fewer={"base": n}).items_of("base") for n in range(1, 9)]
    assert all(set(one) < set(more) for one, more in pairwise(some))
    assert set(some[2]) == set(drawn(RECORD.items, 3)), "as a random `take` of so many"
    assert list(some[2]) == sorted(some[2]), "in the order of the items"
    assert replace(RECORD, fewer={"base": 3}).items_of("sft.step-000002") == RECORD.items
    assert replace(RECORD, fewer={"sft": 3}).items_of("sft.step-000002") == some[2]


def test_only_another_number_of_items_is_another_record():
    assert replace(RECORD, fewer={}).key == RECORD.key == "bfcl-" + RECORD.key[-8:]
    assert len({replace(RECORD, fewer={"base": n}).key for n in (2, 3)} | {RECORD.key}) == 3


def test_a_checkpoint_is_asked_its_part_with_every_repeat_and_the_others_all(run):
    record = find_record(run, on="test")
    base, sft = (
        answers_in(record.file(run.evaluations, name)) for name in ("base", "sft.step-000002")
    )
    assert len(record.items) == 8
    assert sorted((a["item_id"], a["repeat"]) for a in base) == sorted(
        (item, repeat) for item in record.items_of("base") for repeat in (0, 1)
    )
    assert len(base) == 3 * 2
    assert len(sft) == 8 * 2
    assert read_scores(run, record, "base").part
    assert not read_scores(run, record, "sft.step-000002").part


def test_a_table_says_how_many_were_asked_and_compares_on_those_that_both_were(run):
    base, sft = compare_checkpoints(run, "test").lines
    assert (base.items, base.part_of, sft.items, sft.part_of) == (3, 8, 8, None)
    assert sft.to_control is not None
    found = sft.to_control.comparison
    assert (found.items, found.control_only) == (3, 5)
    flips = sft.to_control.flips
    assert len(flips.gained) + len(flips.lost) + len(flips.unchanged) == 3
    assert sft.to_control.agreement is not None


def test_the_page_says_how_many_items_of_how_many_and_why(run):
    facts = gather(run)
    assert facts.main is not None
    shown = blocks_markdown(result_blocks(facts, facts.main, words()), words())
    assert "| 3 of 8 × 2 |" in shown and "| 8 × 2 |" in shown
    assert "fewer items, drawn by their ids before anything was measured: base 3" in shown
    assert ", on the 3 items that both" in shown
    assert facts.main.table is not None
    whole = replace(facts.main.table, evaluation=replace(facts.main.table.evaluation, fewer={}))
    assert "fewer" not in about_evaluation(whole, words())


@pytest.mark.parametrize("fewer", [None, {"base": "3"}, {"base": 0}])
def test_a_damaged_number_of_items_is_named(tmp_path, fewer):
    lab = empty_run(tmp_path)
    add_scores(lab, "base", [1.0, 0.0])
    (file,) = lab.evaluations.glob("*/evaluation.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "fewer": fewer}))
    as_written(file)
    with pytest.raises(DamagedFile, match=r"'fewer' is not of its type|a number of items, is none"):
        find_record(lab, "held_out")


@pytest.mark.parametrize(
    ("fewer", "role", "says"),
    [
        ("{ sft = 3 }", "report", "no checkpoint of 'sft' is measured"),
        ("{ base = 0 }", "report", "must be at least 1, not 0"),
        ("{ base = 3 }", "select", "checkpoints are chosen on the same items"),
    ],
)
def test_a_part_that_cannot_be_is_refused(tmp_path, fewer, role, says):
    with pytest.raises(InputError, match=says) as refused:
        read_whole(untrained(tmp_path, fewer, role), [], tmp_path)
    assert "fewer" in str(refused.value)


def test_more_than_all_items_are_refused_in_one_line(tmp_path):
    with pytest.raises(InputError, match="asks for 9 of 8 items"):
        run_from(untrained(tmp_path, "{ base = 9 }"))
