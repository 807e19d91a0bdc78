"""A made set holds what the task proves, once, apart from tests; the rest is kept with a reason."""

import json
import shutil
from collections import Counter

import pytest

from assay.data.formats.formats import read_rows
from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.experiment.selection_tables import MADE_BY
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.lab.synthesise import make
from assay.runs.run_directory import RunDirectory
from tests.lab.synthesise.sums import asks, calls_of, made, make_sums, synthesise

HELD = '[data.held]\nsource = "path:held.jsonl"\nformat = "math"\n'
PLANTED = {
    "number 1$": made(1),
    "number 2$": made(1).replace("Ben", "BEN"),
    "number 3$": made(3, question="Of 7?"),
    "number 4$": made(4, question="Seed 0?"),
    "number 5$": made(5, question="Taken, of a TEST?"),
    "number 6$": json.dumps({"problem": "Of 7?", "solution": "It is \\boxed{8}.", "answer": "9"}),
    "number 7$": "No.",
    "number 8$": made(8),
}
REASONS = {"same": 2, "leaked": 1, "gold": 1, "unreadable": 1}


def rules(answers=PLANTED):
    return [{"prompt": f"{pattern}", "answer": text} for pattern, text in answers.items()]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    held = {"id": "t", "problem": "taken of a test", "answer": "4"}
    (folder / "held.jsonl").write_text(json.dumps(held) + "\n")
    table = 'rows = 9\nsamples = 8\ndisjoint_from = ["held"]'
    file = make_sums(folder, table, rules(), seeds=1, more=HELD)
    return file, synthesise(file)


def test_each_planted_fault_is_refused_by_its_own_reason_and_the_sound_rows_are_kept(planted):
    file, found = planted
    assert [id_ for id_, _ in asks(found)] == ["s0/0", "s0/2", "s0/7"]
    assert found.reasons == Counter(REASONS)
    stored = (file.parent / "synthesised/sums/more/refused.jsonl").read_text().splitlines()
    assert Counter(json.loads(line)["reason"] for line in stored) == Counter(REASONS)
    assert found.held_out == ("held",)


def test_fewer_rows_than_wanted_is_an_error_that_says_why(planted):
    _, found = planted
    (error,) = [each for each in found.findings if each.severity == "error"]
    assert "3 of 9 rows" in error.what and found.stopped == make.ALL_ASKED


def test_a_row_says_where_it_came_from_and_what_it_cost(planted):
    _, found = planted
    told = found.rows[0].extra[MADE_BY]
    assert told["seed"] == "s0" and told["sample"] == 0 and told["key"] == [7, "s0", "0"]
    assert told["teacher"] == "scripted:teacher.jsonl" and len(told["fingerprint"]) == 64
    assert len(told["prompt_sha256"]) == 64 and told["at"].startswith("20")
    read = 8  # user: Another one like Seed 0?, number 1
    assert told["cost"] == pytest.approx((read + len(made(1).split())) * 10.0 / 1e6)
    assert found.total is not None and found.cost_per_row == pytest.approx(found.total.cost / 3)


def test_the_rows_are_a_source_like_any_other(planted):
    file, found = planted
    path = read_rows(found.file, "messages")
    own = "[data.train]\nsource = 'synthesise:more'\n"
    other = file.with_name("train.toml")
    other.write_text(file.read_text() + own)
    experiment = read_experiment(other)
    session = Session(experiment, RunDirectory(file.parent, "sums", "x"), 7, Silent())
    rows = session.sets["train"].train
    assert [row.id for row in rows] == [row.id for row in path] == ["s0/0", "s0/2", "s0/7"]
    assert rows[0].gold == "3" and rows[0].conversation == "s0"
    assert rows[0].extra[MADE_BY] == found.rows[0].extra[MADE_BY]


def test_a_set_judged_by_other_settings_is_no_source_until_it_is_judged_again(planted):
    file, _ = planted
    other = file.with_name("stale.toml")
    text = file.read_text().replace("rows = 9", "rows = 8")
    other.write_text(text + "[data.train]\nsource = 'synthesise:more'\n")
    session = Session(read_experiment(other), RunDirectory(file.parent, "sums", "x"), 7, Silent())
    with pytest.raises(InputError, match="judged by other settings"):
        session.sets["train"]


def test_the_set_does_not_depend_on_how_many_answers_are_judged_together(planted, monkeypatch):
    file, found = planted
    monkeypatch.setattr(make, "BATCH", 1)
    again = synthesise(file)
    assert asks(again) == asks(found)
    assert [each.id for each in again.refused] != [] and again.reasons == found.reasons


@pytest.fixture
def lab(planted, tmp_path):
    shutil.copytree(planted[0].parent / "model", tmp_path / "model")
    return tmp_path


def numbered(count=40):
    return [
        {"prompt": f"Seed {n % 4}.*number {n // 4 + 1}$", "answer": made(n)} for n in range(count)
    ]


def test_settings_of_judging_change_at_no_cost_and_more_rows_are_paid_for_alone(lab):
    file = make_sums(lab, "rows = 8\nsamples = 10", numbered())
    first = synthesise(file)
    assert len(first.rows) == 8 and calls_of(file)["answered"] == 8
    again = synthesise(file, 'synthesise.more.keep=["level"]', "synthesise.more.rows=7")
    assert calls_of(file) == {"answered": 8}
    assert len(again.rows) == 7 and again.not_needed == 1
    more = synthesise(file, "synthesise.more.rows=12")
    assert asks(more)[:8] == asks(first) and len(more.rows) == 12
    assert calls_of(file)["answered"] == 16


def test_another_prompt_is_another_set(lab):
    file = make_sums(lab, "rows = 2", numbered())
    synthesise(file)
    with pytest.raises(InputError, match=r"made of other prompts \(delete the folder"):
        synthesise(file, "synthesise.more.prompt=Like {question}, number {number}")


def test_a_ledger_that_is_gone_is_not_paid_for_again_in_silence(lab):
    file = make_sums(lab, "rows = 2", numbered())
    found = synthesise(file)
    for part in found.file.parent.glob("costs.sqlite*"):
        part.unlink()
    with pytest.raises(InputError, match="it held 4 calls"):
        synthesise(file)


def test_calls_and_budgets_end_the_work_with_all_rows_kept_and_more_go_on(lab):
    short = "model.teacher.sampling.max_tokens=20"
    file = make_sums(lab, "rows = 20\nsamples = 10\ncalls = 10", numbered())
    found = synthesise(file, short)
    assert found.stopped == "calls = 10 are made" and len(found.rows) == 10
    assert calls_of(file)["answered"] == 10
    # Twenty answers cost 0.0046, and each may cost 0.0008 before it is there.
    price = "price = { prompt = 10.0, completion = 10.0 }\nbudget = { run = 0.003 }"
    dear = make_sums(lab, "rows = 20\nsamples = 10", numbered(), model=price)
    found = synthesise(dear, short)
    assert "budget.run" in found.stopped and 3 <= len(found.rows) < 20
    assert found.total is not None and found.total.cost is not None
    # It ended where the next call alone had no room, not beside others on their way.
    assert 0.003 - 0.0008 < found.total.cost <= 0.003
    whole = synthesise(make_sums(lab, "rows = 20\nsamples = 10", numbered()), short)
    assert not whole.stopped and [*map(str, range(20))] == sorted(
        (text.split()[2] for _, text in asks(whole)), key=int
    )


def test_a_reward_that_an_empty_answer_earns_proves_nothing(lab):
    (lab / "own.py").write_text("def always(row, completion):\n    return 1.0\n")
    file = make_sums(lab, "rows = 2", numbered())
    found = synthesise(file, "synthesise.more.reward=path:own.py:always")
    assert found.reasons == {"empty": 4} and not found.rows
