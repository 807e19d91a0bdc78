"""Points of a search: listed or drawn, named as runs, with checkpoints as points of one run."""

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.lab.sweep.matrix.request import Request, sweep_layout
from assay.lab.sweep.planned_runs import plan
from assay.lab.sweep.read_sweep import drawn_points, read_sweep, uniform, value_at
from assay.lab.sweep.sweep_tables import RangeSpec
from tests.lab.pivot_lab import PivotLab, make_pivot_lab

HEAD = 'name = "s"\nbase = "base.toml"\non = ["test"]\nselect = "dev"\n'
RATE, BATCH = "stage.sft.optimizer.lr", "stage.sft.batch"
DRAWN = f"""\
{HEAD}search = {{ how = "random", points = 4, seed = 7 }}
[axes]
{BATCH} = [2, 4, 8]
{RATE} = {{ low = 1e-5, high = 1e-3, scale = "log" }}
"""
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


def test_drawn_points_are_these_on_every_machine():
    """The first values were written down: another draw would be another search."""
    axes = {"a": [1, 2, 3], "b": RangeSpec(low=1e-5, high=1e-3, scale="log")}
    assert uniform(1, 0, "a") == pytest.approx(0.9441615265191707, abs=1e-12)
    assert drawn_points(axes, 3, 1) == [
        {"a": 3, "b": 0.00022},
        {"a": 1, "b": 7.66e-05},
        {"a": 1, "b": 0.000398},
    ]


def test_more_points_keep_the_earlier_and_another_axis_keeps_the_values_of_the_others():
    axes = {"a": list(range(10)), "b": RangeSpec(low=0.0, high=1.0, scale="linear")}
    many = drawn_points(axes, 30, 5)
    assert drawn_points(axes, 12, 5) == many[:12] and len({str(p) for p in many}) == 30
    assert drawn_points(axes, 12, 6) != many[:12]
    wider = drawn_points({**axes, "c": [1, 2]}, 12, 5)
    assert [p["b"] for p in wider] == [p["b"] for p in many[:12]]


def test_all_points_of_a_list_can_be_drawn_and_no_more():
    axes = {"a": [1, 2, 3], "b": ["x", "y", "z"]}
    assert len(drawn_points(axes, 9, 3)) == len(drawn_points(axes, 40, 3)) == 9


@pytest.mark.parametrize(
    ("low", "high", "scale", "shares", "values"),
    [
        (1e-5, 1e-3, "log", (0.0, 0.5, 0.999999), [1e-5, 1e-4, 1e-3]),
        (0.0, 1.0, "linear", (0.0, 0.25, 0.9999999), [0.0, 0.25, 1.0]),
        (64, 512, "log", (0.0, 0.5, 0.9999999), [64, 181, 512]),
        (1, 3, "linear", (0.0, 0.4, 0.9999999), [1, 2, 3]),
    ],
)
def test_a_range_reaches_both_ends_and_keeps_whole_numbers_whole(low, high, scale, shares, values):
    spec = RangeSpec(low=low, high=high, scale=scale)
    found = [value_at(share, spec) for share in shares]
    assert found == values and {type(v) for v in found} == {type(low)}


def test_a_random_search_runs_its_points_alone(lab):
    found = read_sweep(lab.sweep(DRAWN))
    runs = plan(found)
    assert len(runs) == len(found.points) == 4
    for run, point in zip(runs, found.points, strict=True):
        sft = run.experiment.stage["sft"]
        assert sft.optimizer.lr == point[RATE] and 1e-5 <= point[RATE] <= 1e-3
        assert sft.model_dump()["batch"] == point[BATCH]
        assert run.name == f"s.{run.point}"
    assert names(lab, DRAWN.replace("points = 4", "points = 6"))[:4] == [run.name for run in runs]
    axis = next(axis for axis in found.axes if axis.key == RATE)
    assert axis.values == tuple(sorted(point[RATE] for point in found.points))
    listed = HEAD + 'search = { how = "random", points = 5 }\n[axes]\n'
    listed += f"{BATCH} = [2, 4, 8]\n{RATE} = [1e-5, 2e-5, 4e-5]\n"
    assert len(names(lab, listed)) == 5


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


def test_checkpoints_of_one_run_are_points_and_make_no_runs(lab):
    text = HEAD + f"[axes]\n{BATCH} = [2, 4]\nstep = [20, 40]\n"
    found = read_sweep(lab.sweep(text))
    assert [run.name for run in plan(found)] == ["s.batch-2", "s.batch-4"]
    assert sweep_layout(found, Request()).keys == (BATCH, "step")


def test_a_few_points_of_many_values_are_a_list_and_not_an_empty_table(lab):
    text = DRAWN.replace("[2, 4, 8]", "[2, 4, 8]\nstage.sft.optimizer.weight_decay = [0.0, 0.1]")
    found = read_sweep(lab.sweep(text + "step = [20, 40]\n"))
    assert sweep_layout(found, Request()).keys == ("point", "step")
    assert sweep_layout(read_sweep(lab.sweep(LISTED)), Request()).keys == (BATCH, RATE)


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (DRAWN, "points = 4, ", "", "toml:5: search.points: a random search needs a number"),
        (DRAWN, '"random", points = 4, seed = 7', '"grid"', "a range has no values of its own"),
        (DRAWN, "low = 1e-5", "low = 1", f"toml:8: axes.{RATE}.high: must be more than low, 1"),
        (DRAWN, "low = 1e-5", "low = 0.0", f"axes.{RATE}.low: must be more than 0 on a log scale"),
        (DRAWN, ', scale = "log"', "", "toml:8: axes.stage.sft.optimizer.lr.low: base.toml has no"),
        (DRAWN, '{ low = 1e-5, high = 1e-3, scale = "log" }', "[1e-5]", "there are only 3 points"),
        (LISTED, "sft.batch = 8", "sft.bach = 8", "toml:7: points.1.stage.sft.bach: base.toml has"),
        (LISTED, "{ stage.sft.batch = 8 }", AGAIN, "point 1 again"),
        (LISTED, "{ stage", "{ step = 20, stage", "'step' belongs into [axes]"),
        (LISTED, END, "},\n]\n[axes]\nstage.sft.steps = [20]\n", "belongs into the points"),
        (LISTED, END, '},\n]\nsearch = { how = "random", points = 2 }\n', "points are listed"),
        (LISTED, END, "},\n]\n[arms.a]\n", "toml:6: points.0: names no arm of the sweep"),
        (LISTED, "= 8 }", "= 0 }", "stage.sft.batch"),
        (LISTED, 'select = "dev"', 'select = ["dev", "test"]', "no baseline score for dev, test"),
        (LISTED, END, "},\n]\n[axes]\nstep = [30]\n", "stage sft has no checkpoint at step 30"),
        (LISTED, END, "},\n]\n[axes]\nstep = [60]\n", "stage sft ends after step 40"),
        (LISTED, END, "},\n]\n[axes]\nstep = [0]\n", "0 is not after any training"),
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

    def said(base: str) -> str:
        lab.base.write_text(base)
        with pytest.raises(InputError) as raised:
            read_sweep(lab.sweep(text))
        return str(raised.value)

    every = "checkpoint_every = 20"
    assert "stage.sft.checkpoint_every = { epochs = 3 }" in said(epochs.replace(every, ""))
    four = "checkpoint_every = { epochs = 4 }"
    assert "has no checkpoint at epoch 3" in said(epochs.replace(every, four))
    three = epochs.replace(every, "checkpoint_every = { epochs = 3 }")
    assert "ends after epoch 5" in said(three.replace("epochs = 6", "epochs = 5"))
    last = three.replace('["base", "sft.all"]', '["sft.last"]')
    assert 'evaluate.test.checkpoints = ["sft.all"]' in said(last)
    lab.base.write_text(three)
    assert len(plan(read_sweep(lab.sweep(text)))) == 1
