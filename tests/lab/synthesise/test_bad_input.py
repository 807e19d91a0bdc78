"""What is wrong with a table is said before anything is asked: file, line, field, fix."""

import pytest

from assay.errors import InputError
from tests.cli.conftest import call
from tests.lab.synthesise.sums import make_sums, synthesise

WRONG = {
    'prompt = "{qestion}?"': r"toml:\d+: synthesise\.more\.prompt: no gap \{qestion\}.*question",
    'prompt = "path:no.txt"': r"synthesise\.more\.prompt: .*no\.txt: no such file",
    'reward = "length_bonus"': r"synthesise\.more\.reward: unknown reward",
    'teacher = "teachr"': r"synthesise\.more\.teacher: no helper model 'teachr' .*'teacher'",
    'disjoint_from = ["gsm8k"]': r"synthesise\.more\.disjoint_from: unknown benchmark or data set",
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return make_sums(tmp_path_factory.mktemp("bad"), "rows = 2", [{"answer": "x"}])


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_value_is_named_with_its_place_and_a_fix(file, line):
    before, table, after = file.read_text().partition("[synthesise.more]\n")
    key = line.partition("=")[0]
    kept = [each for each in after.split("\n") if not each.startswith(key)]
    wrong = file.with_name("wrong.toml")
    wrong.write_text(before + table + "\n".join([line, *kept]))
    with pytest.raises(InputError, match=WRONG[line]) as told:
        synthesise(wrong)
    assert told.value.exit_code == 2 and "\n" not in str(told.value)
    assert not (file.parent / "synthesised").exists()


def test_samples_of_a_greedy_teacher_are_refused(file):
    with pytest.raises(InputError, match=r"samples: 'teacher' answers all 3 times the same"):
        synthesise(file, "synthesise.more.samples=3", "model.teacher.sampling.temperature=0.0")


def test_a_seed_without_what_the_prompt_asks_for_is_named_before_anything_is_asked(file):
    with pytest.raises(InputError, match=r"the seed s0 has no extra\.level"):
        synthesise(file, "synthesise.more.prompt={question} of {extra.level}")


def test_the_command_says_one_line_and_exits_2_without_a_table_or_with_another_name(file):
    bare = file.with_name("bare.toml")
    bare.write_text(file.read_text().partition("[synthesise.more]")[0])
    root = ("--lab", file.parent)
    for arguments in ((bare,), (file, "mre")):
        done = call("synthesise", *root, *arguments)
        assert done.exit_code == 2 and done.stderr.count("\n") == 1
    assert "did you mean 'more'" in done.stderr
