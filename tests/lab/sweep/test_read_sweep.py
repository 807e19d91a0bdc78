"""Sweep files: what is refused and where, which runs they mean, and how these are named."""

import tomllib

import pytest

from assay.errors import InputError
from assay.lab.sweep.read_sweep import plan, read_sweep
from tests.docs.pages import blocks
from tests.lab.pivot_lab import PivotLab

SWEEP = """\
name = "cot"
base = "base.toml"
on = ["test"]
select = "dev"
baseline.where = { arm = "plain" }

[axes]
stage.sft.batch = [4, 8]
"stage.sft.optimizer.lr" = [1e-5, 2e-5]

[arms.plain]
[arms.more]
set.data.sums.take.rows = 200
"""


def message(lab: PivotLab, text: str) -> str:
    with pytest.raises(InputError) as raised:
        plan(read_sweep(lab.sweep(text)))
    assert raised.value.exit_code == 2
    said = str(raised.value)
    assert "\n" not in said
    return said.replace(f"{lab.root}/", "")


def test_every_combination_is_one_run_named_after_its_values(lab):
    runs = plan(read_sweep(lab.sweep(SWEEP)))
    assert [run.name for run in runs[:3]] == [
        "cot.plain.batch-4.lr-1e-05",
        "cot.more.batch-4.lr-1e-05",
        "cot.plain.batch-4.lr-2e-05",
    ]
    assert len(runs) == 8
    last = runs[-1].experiment
    assert last.name == "cot.more.batch-8.lr-2e-05"
    assert last.stage["sft"].model_dump()["batch"] == 8
    assert last.stage["sft"].optimizer.lr == 2e-5
    take = last.data["sums"].take
    assert take is not None and (take.rows, take.how) == (200, "first")
    assert runs[0].experiment.data["sums"].model_dump()["take"]["rows"] == 100


def test_settings_of_an_evaluation_are_measured_on_one_run(lab):
    text = SWEEP.partition("[axes]")[0].replace('arm = "plain"', '"evaluate.test.take.rows" = 10')
    text += "[axes]\nevaluate.test.options.examples = [1, 2]\nevaluate.test.take.rows = [10, 20]\n"
    text += "stage.sft.batch = [4]\n"
    (run,) = plan(read_sweep(lab.sweep(text)))
    assert run.name == "cot.batch-4"
    assert [cell.on for cell in run.cells] == [
        ("test",),
        ("test-examples-1-rows-20",),
        ("test-examples-2-rows-10",),
        ("test-examples-2-rows-20",),
    ]
    evaluations = run.experiment.evaluate
    assert set(evaluations) == {"dev", "test", "hard", *(cell.on[0] for cell in run.cells)}
    for cell in run.cells:
        spec = evaluations[cell.on[0]]
        assert spec.options == {"examples": cell.place["evaluate.test.options.examples"]}
        assert spec.take is not None
        assert spec.take.rows == cell.place["evaluate.test.take.rows"]
        assert spec.benchmark == "math/gsm8k" and spec.checkpoints == ("base", "sft.all")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("select", "selct", "sweep.toml:4: selct: unknown key (did you mean 'select'"),
        ('on = ["test"]\n', "", "sweep.toml: on: missing"),
        ('on = ["test"]', 'on = ["tset"]', "sweep.toml:3: on: no evaluation 'tset' with role"),
        ('select = "dev"', 'select = "test"', "sweep.toml:4: select: no evaluation 'test'"),
        (
            "stage.sft.batch",
            "stage.sft.bach",
            "unknown key (did you mean 'batch'",
        ),
        ("[4, 8]", "[]", "sweep.toml:8: axes.stage.sft.batch: has no values"),
        ("[4, 8]", "[4, 4]", "sweep.toml:8: axes.stage.sft.batch: has the value 4 twice"),
        ("stage.sft.batch = [4, 8]", "seeds = [1, 2]", "sweep.toml:8: axes.seeds: 'seeds' is no"),
        ('"base.toml"', '"bse.toml"', "sweep.toml:2: base: bse.toml: no such file"),
        ("take.rows = 200", "take.row = 200", "arms.more.set: "),
        ("where = {", 'run = "a"\nbaseline.where = {', "one of where, run and checkpoint"),
        ('on = ["test"]', 'on = ["test", "hard"]', "ratios_to: no baseline score for hard, test"),
        ('on = ["test"]', 'on = ["test"]\nratios_to = { hard = 1 }', "ratios_to: no baseline"),
        ("stage.sft.batch = [4, 8]", "evaluate.hard.repeats = [1]", "cells show test"),
        ('arm = "plain"', 'arm = "plian"', "sweep.toml:5: baseline.where.arm: arm is never"),
        ('arm = "plain"', 'amr = "plain"', "'amr' is no axis (did you mean 'arm'"),
        (
            'select = "dev"',
            'rows = "stage.sft.lr"',
            "toml:4: rows: 'stage.sft.lr' is no axis",
        ),
        (
            'select = "dev"',
            'checkpoint = "last"',
            "toml:4: checkpoint: 'last' is no single check",
        ),
    ],
)
def test_a_problem_is_one_line_with_its_place(lab, old, new, expected):
    assert SWEEP.count(old) >= 1
    assert expected in message(lab, SWEEP.replace(old, new, 1))


def test_two_values_with_one_name_are_refused(lab):
    text = SWEEP.replace("stage.sft.batch = [4, 8]", 'model = ["path:a/b", "path:a-b"]')
    assert "two runs would be named" in message(lab, text)


def test_the_sweeps_of_the_manual_are_read(lab):
    first, search = blocks("sweeps.md", "toml")
    runs = plan(read_sweep(lab.sweep(first)))
    assert runs[-1].name == "cot.more.batch-8.lr-2e-05"
    assert "cot.ARM.batch-8.lr-2e-05" in first
    spec = tomllib.loads(search)
    assert len(spec["select"]) == len(spec["on"]) == len(spec["ratios_to"]) / 2 == 2
    kinds = {"on": 'benchmark = "math/gsm8k"\nrole = "report"'}
    kinds["select"] = 'data = "sums.dev"\nreward = "accuracy"\nrole = "select"'
    benchmarks = "".join(
        f'[evaluate.{name}]\n{kind}\ncheckpoints = ["sft.all"]\n'
        for key, kind in kinds.items()
        for name in spec[key]
    )
    stage = lab.base.read_text().partition("[evaluate.dev]")[0].replace("steps = 40", "epochs = 6")
    base = stage.replace("every = 20", "every = { epochs = 3 }") + benchmarks
    (lab.root / spec["base"]).write_text(base)
    found = read_sweep(lab.sweep(search))
    assert len(plan(found)) == 9 and found.axes[-1].values == (3, 6)


HEAD = 'name = "s"\nbase = "base.toml"\non = ["test"]\n'


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("[axes]\nstage.sft.batch = [0]\n", "stage.sft.batch"),
        ("[axes]\nstep = [30]\n", "no checkpoint to measure at step 30"),
        ("[axes]\nstep = [0]\n", "0 is no step after training"),
        ("[axes]\nstep = [20]\nepoch = [1]\n", "step names the checkpoints"),
        ('[axes]\ncheckpoint = ["sft.all"]\n', "'sft.all' is no single"),
        ('checkpoint = "sft.best"\n[axes]\nstep = [20]\n', "is one checkpoint"),
    ],
)
def test_a_checkpoint_that_cannot_be_is_one_line(lab, lines, said):
    assert said in message(lab, HEAD + lines)


def test_epochs_need_checkpoints_and_an_evaluation_of_them(lab):
    epochs = lab.base.read_text().replace("steps = 40", "epochs = 6")
    text = HEAD + "[axes]\nstage.sft.batch = [2]\nepoch = [3, 6]\n"
    every = "checkpoint_every = 20"
    three = epochs.replace(every, "checkpoint_every = { epochs = 3 }")
    lacking = "has no checkpoint to measure at epoch"
    for base, said in (
        (epochs.replace(every, ""), f"{lacking} 3 (write stage.sft.checkpoint_every = "),
        (epochs.replace(every, "checkpoint_every = { epochs = 4 }"), f"{lacking} 3"),
        (three.replace("epochs = 6", "epochs = 5"), f"{lacking} 6"),
        (three.replace('["base", "sft.all"]', '["sft.last"]'), 'checkpoints = ["sft.all"]'),
    ):
        lab.base.write_text(base)
        with pytest.raises(InputError) as raised:
            read_sweep(lab.sweep(text))
        assert said in str(raised.value)
    lab.base.write_text(three)
    assert len(plan(read_sweep(lab.sweep(text)))) == 1
