"""Points of a sweep: listed, named as runs, with checkpoints as points of one run."""

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.lab.sweep.planned_runs import plan
from assay.lab.sweep.read_sweep import read_sweep
from tests.lab.pivot_lab import PivotLab, make_pivot_lab

HEAD = 'name = "s"\nbase = "base.toml"\non = ["test"]\nselect = "dev"\n'
RATE, BATCH = "stage.sft.optimizer.lr", "stage.sft.batch"
LISTED = f"""\
{HEAD}points = [
  {{ "{BATCH}" = 4, "{RATE}" = 2e-5 }},
  {{ stage.sft.batch = 8 }},
]
"""
END = "},\n]\n"
AGAIN = f'{{ "{RATE}" = 2e-5, "{BATCH}" = 4 }}'


@pytest.fixture
def lab(tmp_path: Path) -> PivotLab:
    return make_pivot_lab(tmp_path)


def names(lab: PivotLab, text: str) -> list[str]:
    return [run.name for run in plan(read_sweep(lab.sweep(text)))]


def test_listed_points_are_run_as_they_are(lab):
    assert names(lab, LISTED) == ["s.batch-4.lr-2e-05", "s.batch-8"]
    first, second = (run.experiment.stage["sft"] for run in plan(read_sweep(lab.sweep(LISTED))))
    assert (first.optimizer.lr, second.optimizer.lr) == (2e-5, 1e-3)


def test_points_may_name_arms(lab):
    text = LISTED.replace("{ ", '{ arm = "more", ', 1).replace("{ stage", '{ arm = "plain", stage')
    text += "[arms.plain]\n[arms.more]\nset.data.sums.take.rows = 200\n"
    first, second = plan(read_sweep(lab.sweep(text)))
    assert (first.name, second.name) == ("s.more.batch-4.lr-2e-05", "s.plain.batch-8")
    assert first.experiment.data["sums"].model_dump()["take"]["rows"] == 200


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (LISTED, "sft.batch = 8", "sft.bach = 8", "unknown key (did you mean 'batch'"),
        (LISTED, "{ stage.sft.batch = 8 }", AGAIN, "point 1 again"),
        (LISTED, "{ stage", "{ step = 20, stage", "'step' belongs into [axes]"),
        (LISTED, END, "},\n]\n[axes]\nstage.sft.steps = [20]\n", "belongs into the points"),
        (LISTED, END, "},\n]\n[arms.a]\n", "toml:6: points.0: names no arm of the sweep"),
        (LISTED, "= 8 }", "= 0 }", "stage.sft.batch"),
        (LISTED, 'select = "dev"', 'select = ["dev", "test"]', "no baseline score for dev, test"),
        (LISTED, END, "},\n]\n[axes]\nstep = [30]\n", "no checkpoint to measure at step 30"),
        (LISTED, END, "},\n]\n[axes]\nstep = [0]\n", "0 is no step after training"),
        (
            LISTED,
            "]\n",
            "]\n[axes]\nstep = [20]\nepoch = [1]\n",
            "step names the checkpoints",
        ),
        (
            LISTED,
            END,
            '},\n]\n[axes]\ncheckpoint = ["sft.all"]\n',
            "'sft.all' is no single",
        ),
        (LISTED, END, '},\n]\ncheckpoint = "sft.best"\n[axes]\nstep = [20]\n', "is one checkpoint"),
    ],
)
def test_a_search_that_cannot_be_made_is_one_line(lab, text, old, new, said):
    assert old in text
    with pytest.raises(InputError) as raised:
        plan(read_sweep(lab.sweep(text.replace(old, new, 1))))
    assert said in str(raised.value).replace(f"{lab.root}/", "") and "\n" not in str(raised.value)


def test_epochs_need_checkpoints_and_an_evaluation_of_them(lab):
    epochs = lab.base.read_text().replace("steps = 40", "epochs = 6")
    text = HEAD + f"[axes]\n{BATCH} = [2]\nepoch = [3, 6]\n"
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
