"""Bad input ends in one clear line and exit code 2, before anything is trained."""

from pathlib import Path

import pytest

from tests.cli.conftest import TinyLab, assert_one_line, call


def test_an_experiment_file_that_is_not_there_is_refused_with_its_neighbours(
    tmp_path: Path,
) -> None:
    assert_one_line(call("check", tmp_path / "tny.toml"), "no such file", "name another")
    (tmp_path / "tiny.toml").touch()
    assert_one_line(call("check", tmp_path / "tny.toml"), "no such file", "'tiny.toml'")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[stage.sft]", "[stage.sft]\nbatchh = 4", ("tiny.toml:", "batchh", "'batch'")),
        ("accuracy = 1.0, cosine", "acuracy = 1.0, cosine", ("'acuracy'", "'accuracy'")),
        ('"math/gsm8k"', '"math/gsm8"', ("'math/gsm8'", "'math/gsm8k'")),
        ('task  = "math"', 'task  = "maths"', ("'maths'", "'math'")),
        ('"path:sums.jsonl"', '"path:absent.jsonl"', ("absent.jsonl", "no such file")),
        ('"path:sums.jsonl"', '"path:model"', ("data.sums.source", "is a folder, not a file")),
        ('"path:model"', '"path:absent"', ("absent", "no such folder")),
        ('"path:model"', '"run:absent@rl.last"', ("model: ", "no run named 'absent'")),
        ("split  =", "max_prompt_tokens = 5\nsplit  =", ("no row is left", "longer", "16")),
    ],
)
def test_an_experiment_file_is_refused(lab: TinyLab, old: str, new: str, words: tuple[str, ...]):
    lab.edit(old, new)
    assert_one_line(call("run", lab.file, "--lab", lab.root), *words)
    assert not list(lab.root.glob("runs/*/*/metrics.jsonl"))


@pytest.mark.parametrize("words", [("runs",), ("runs", "--trials"), ("runs", "log")])
def test_a_lab_that_is_not_there_is_named_and_not_called_empty(tmp_path: Path, words):
    assert_one_line(call("--lab", tmp_path / "nope", *words), "nope: no such folder", "a lab")
    (tmp_path / "file").touch()
    assert_one_line(call("--lab", tmp_path / "file", *words), "file: is no folder")


def test_a_name_that_has_a_run_offers_what_can_be_done(trained: TinyLab):
    result = call("run", trained.file, "--lab", trained.root)
    assert_one_line(result, "'tiny' exists", "finished", "assay report tiny", "--new")
    assert len(list(trained.root.glob("runs/tiny/*"))) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("resume", "tiyn"), ("'tiyn'", "'tiny'")),
        (("compare", "tiny@sft.best", "tiny@rl.lst"), ("rl.lst",)),
        (("report", "tiny:tset/base/1+1"), ("tset", "test")),
        (("report", "tiny:test/bas/1+1#0"), ("'bas'", "'base'")),
        (("report", "tiny:test/base/1+2#0"), ("1+2#0", "did you mean")),
        (("eval", "tiny", "--benchmark", "math/gsm8k"), ("no checkpoint", "tiny@base")),
        (("eval", "tiny@rl.last", "--benchmark", "math/gsm8"), ("'math/gsm8k'",)),
        (("eval", "tiny@xx.last", "--benchmark", "math/gsm8k"), ("'xx'", "rl, sft")),
        (("eval", "tiny@base", "--benchmark", "math/gsm8k", "--option", "a"), ("KEY=VALUE",)),
        (("eval", "tiny@base", "--benchmark", "math/gsm8k", "--option", "pth=a"), ("'path'",)),
        (("run", "x.toml", "--new", "--or-resume"), ("--new", "--or-resume")),
    ],
)
def test_a_name_that_does_not_exist_is_refused_with_the_nearest(
    finished_lab: Path, arguments: tuple[str, ...], words: tuple[str, ...]
):
    assert_one_line(call(*arguments, "--lab", finished_lab), *words)
