"""The math ladder: three arms behind one start, alike in everything but how they learn."""

from pathlib import Path

from assay.experiment.stage_tables import GrpoStage, RftStage, SftStage
from assay.lab.sweep.planned_runs import plan
from assay.lab.sweep.read_sweep import read_sweep

FILE = Path(__file__).parents[2] / "experiments" / "math" / "ladder.toml"
LADDER = read_sweep(FILE)
ALL = {run.name.removeprefix("math-ladder."): run.experiment for run in plan(LADDER)}
ARMS = {name: ALL[name] for name in ("grpo", "rft", "gold")}


def test_the_arms_start_from_one_checkpoint_with_the_same_seeds():
    assert set(ALL) == {"start", *ARMS}
    assert {arm.model for arm in ARMS.values()} == {"run:math-ladder.start@sft.last"}
    assert {tuple(arm.seeds) for arm in ARMS.values()} == {(1, 2, 3)}


def test_the_arms_learn_from_the_same_rows_and_choose_and_report_alike():
    assert len({repr(sorted(arm.data.items())) for arm in ARMS.values()}) == 1
    assert len({repr(sorted(arm.evaluate.items())) for arm in ARMS.values()}) == 1
    data = ARMS["grpo"].data
    assert data["more"].source == "asdiv:rl_expressions"
    assert data["dev"].source == "asdiv:dev_expressions"
    assert ARMS["grpo"].evaluate["dev"].role == "select"


def test_rewards_see_each_problem_once_and_gold_answers_more_often():
    grpo, rft, gold = (ARMS[name].stage["more"] for name in ("grpo", "rft", "gold"))
    assert isinstance(grpo, GrpoStage) and isinstance(rft, RftStage) and isinstance(gold, SftStage)
    take = ARMS["grpo"].data["more"].take
    assert take is not None and grpo.steps is not None
    assert grpo.steps * grpo.prompts == take.rows == (rft.steps or 0) * rft.prompts
    assert grpo.group == rft.group and (gold.epochs or 0) > 1
    assert grpo.optimizer == rft.optimizer and grpo.adapt == rft.adapt == gold.adapt


def test_every_arm_and_the_start_answer_the_same_test_in_the_same_way():
    for name in ("test", "sampled"):
        asked = [arm.evaluate[name] for arm in ALL.values()]
        same = {(e.data, e.repeats, e.role, e.sampling.model_dump_json()) for e in asked}
        assert len(same) == 1 and asked[0].role == "report" and asked[0].take is None
    assert {arm.data["test"].source for arm in ALL.values()} == {"asdiv:test_expressions"}
