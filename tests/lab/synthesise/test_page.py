"""The page says what was made, refused and spent, in both languages; a teacher's text is text."""

import pytest

from assay.pages.run_page import write_report
from assay.runs.run_directory import read_manifest
from tests.cli.conftest import answer, call
from tests.from_files import start
from tests.lab.synthesise.sums import made, make_sums

EVIL = "<script>alert(1)</script> ![x](http://e.x/a.png) [red]how many?"
TRAIN = """
[data.train]
source = "synthesise:more"
[stage.sft]
method = "sft"
data = "train"
steps = 1
batch = 2
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    rules = [
        {"prompt": "Seed 0.*number 1$", "answer": made(1)},
        {"prompt": "Seed 1.*number 1$", "answer": made(2, question=EVIL, answer="3")},
        {"prompt": "Seed 2.*number 1$", "answer": f"No. \x1b[2J {EVIL}"},
    ]
    folder = tmp_path_factory.mktemp("page")
    return make_sums(folder, "rows = 2", rules, seeds=3)


@pytest.fixture(scope="module")
def english(file):
    result = answer(call("synthesise", "--lab", file.parent, file, "--json"))["result"]["tables"][0]
    return result, file.parent / "synthesised/sums/more"


def test_the_page_says_what_verified_means_and_what_was_refused(english):
    _, folder = english
    for text in ((folder / "report.md").read_text(), (folder / "report.html").read_text()):
        assert "2 verified rows of 2 wanted, from 3 answers" in text
        assert "it may be wrong and verified" in text
        assert "no row of the format" in text and "Compared with no test" in text


def test_what_a_teacher_wrote_acts_in_no_medium(english, file):
    _, folder = english
    html, markdown = ((folder / f"report.{kind}").read_text() for kind in ("html", "md"))
    shown = call("synthesise", "--lab", file.parent, file).stdout
    assert not any(sign in html + markdown + shown for sign in ("<script>", "![x](", "\x1b[2J"))


def test_a_run_says_which_of_its_rows_a_teacher_made(english, file):
    other = file.with_name("train.toml")
    other.write_text(file.read_text() + TRAIN)
    (run,) = start(other, root=file.parent)
    teachers = read_manifest(run)["data"]["train"]["teachers"]
    (name,) = teachers
    assert name.startswith("scripted:teacher.jsonl ") and teachers[name] == 2
    page = write_report(run, "en").with_suffix(".md").read_text()
    assert "Made by a teacher: 2 of the rows, by scripted:teacher.jsonl" in page
    table = read_manifest(run)["data"]["train"]["synthesise"]
    assert table["reward"] == "accuracy" and len(table["rows_sha256"]) == 64


def test_a_check_names_a_set_that_is_not_made_and_a_run_pays_no_teacher(file):
    other = file.with_name("unmade.toml")
    other.write_text(file.read_text().replace('name = "sums"', 'name = "unmade"') + TRAIN)
    for verb in ("check", "run"):
        done = call(verb, "--lab", file.parent, other)
        assert done.exit_code == 2 and "assay synthesise FILE makes them" in done.output
    assert not (file.parent / "synthesised/unmade").exists()
