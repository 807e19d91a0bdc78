"""Bad input ends in one clear line and exit code 2, before anything is trained."""

import json
from pathlib import Path

import pytest

from assay.data.files import write_checksums
from tests.cli.conftest import TinyLab, assert_one_line, call


def test_an_experiment_file_that_is_not_there_is_refused_with_its_neighbours(
    tmp_path: Path,
) -> None:
    assert_one_line(call("check", tmp_path / "tny.toml"), "no such file", "name another")
    (tmp_path / "tiny.toml").touch()
    assert_one_line(call("check", tmp_path / "tny.toml"), "no such file", "'tiny.toml'")


def refuse(lab: TinyLab, *words: str, arguments: tuple[object, ...] = ()) -> None:
    """`assay run` of the lab's file fails as bad input with these words; no step is trained."""
    assert_one_line(call("run", lab.file, "--lab", lab.root, *arguments), *words)
    assert not list(lab.root.glob("runs/*/*/metrics.jsonl"))


def edit_row(lab: TinyLab, number: int, **changes: object) -> None:
    """Change fields of one line of the training data; None takes a field away."""
    file = lab.root / "sums.jsonl"
    lines = file.read_text().splitlines()
    row = {**json.loads(lines[number - 1]), **changes}
    lines[number - 1] = json.dumps({k: v for k, v in row.items() if v is not None})
    file.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[stage.sft]", "[stage.sft]\nbatchh = 4", ("tiny.toml:", "batchh", "'batch'")),
        ('method = "grpo"', 'method = "gpro"', ("'gpro'", "'grpo'")),
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
    refuse(lab, *words)


@pytest.mark.parametrize("words", [("runs",), ("runs", "--trials"), ("runs", "log")])
def test_a_lab_that_is_not_there_is_named_and_not_called_empty(tmp_path: Path, words):
    assert_one_line(call("--lab", tmp_path / "nope", *words), "nope: no such folder", "a lab")
    (tmp_path / "file").touch()
    assert_one_line(call("--lab", tmp_path / "file", *words), "file: is no folder")


def test_an_override_that_names_nothing_is_refused(lab: TinyLab):
    setting = ("--set", "stage.rll.steps=1")
    refuse(lab, "'rll'", "'rl'", arguments=setting)
    assert_one_line(call("check", lab.file, "--lab", lab.root, *setting), "'rll'", "'rl'")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"messages": None}, ("sums.jsonl:3", "messages")),
        ({"tools": [{"name": "f", "parameters": {"type": "objekt"}}]}, ("sums.jsonl:3", "objekt")),
        ({"tools": "not json"}, ("sums.jsonl:3", "tools")),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(
    lab: TinyLab, changes: dict[str, object], words: tuple[str, ...]
):
    edit_row(lab, 3, **changes)
    refuse(lab, *words)


@pytest.mark.slow
def test_a_checkpoint_of_another_architecture_is_refused(trained: TinyLab):
    (checkpoint,) = trained.root.glob("runs/tiny/*/checkpoints/rl/step-000004")
    config = json.loads((checkpoint / "config.json").read_text())
    config |= {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    (checkpoint / "config.json").write_text(json.dumps(config))
    write_checksums(checkpoint)
    result = call(*evaluation(trained, "tiny@rl.last", "--take", 2))
    assert_one_line(result, "Qwen2ForCausalLM", "LlamaForCausalLM")


def evaluation(lab: TinyLab, target: str, *more: object) -> tuple[object, ...]:
    """`assay eval` on the lab's test file."""
    given = ("--option", f"path={lab.root / 'test.jsonl'}", "--option", "format=messages")
    benchmark = ("--benchmark", "math/gsm8k", "--max-tokens", 12)
    return ("eval", target, "--lab", lab.root, *benchmark, *given, *more)


def test_a_name_that_has_a_run_offers_what_can_be_done(trained: TinyLab):
    result = call("run", trained.file, "--lab", trained.root)
    assert_one_line(result, "'tiny' exists", "finished", "assay report tiny", "--new")
    assert len(list(trained.root.glob("runs/tiny/*"))) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("resume", "tiyn"), ("'tiyn'", "'tiny'")),
        (("report", "tiny/0000"), ("tiny", "0000")),
        (("report", "tiny", "--lang", "fr"), ("'fr'", "en")),
        (("compare", "tiny@sft.best", "tiny@rl.lst"), ("rl.lst",)),
        (("compare", "tiny@base", "tiny@rl.step-3"), ("rl.step-3", "rl.step-4")),
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


def test_a_model_from_the_hub_without_network_says_what_works_offline(
    lab: TinyLab, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    result = call(*evaluation(lab, "hf:nobody/nothing"))
    assert_one_line(result, "hf:nobody/nothing", "no network", "path:DIR", "pypi:")
    assert not list(lab.root.glob("runs/*"))
