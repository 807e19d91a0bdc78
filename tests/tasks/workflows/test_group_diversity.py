"""How different programs of a group are, over valid programs alone, whatever their group's size."""

from typing import Any

import pytest

from assay.data.episode import Reward
from assay.experiment.stage_tables import RftStage
from assay.lab.monitor.milestones import GROUP_MEANS
from assay.lab.setup.stage_methods import with_step_metrics
from assay.tasks.reward_metrics import own_names
from assay.tasks.workflows.execution import GROUP_DIVERSITY, difficulties, fact, valid_program
from assay.tasks.workflows.task import TASK
from tests.tasks.workflows.programs.good_programs import text
from tests.train.test_methods import grpo

ONE = text('return (await self.custom(input=problem, instruction="Solve."))["response"]')
REWORDED = ONE.replace("Solve.", "Think.")
SAME_OPERATOR = text('r = await self.custom(input=problem, instruction="")\nreturn r["response"]')
OTHER = text('r = await self.programmer(problem=problem)\nreturn r["output"]')

combinations = GROUP_DIVERSITY["different_combinations_share"]
trees = GROUP_DIVERSITY["different_trees_share"]


def rewarded(*programs: str, error: str = "") -> list[Reward]:
    return [Reward(1.0, facts={"program": p, "error": error}) for p in programs]


def test_a_group_of_reworded_programs_is_0_and_one_of_different_programs_1():
    assert trees([rewarded(ONE, REWORDED, ONE, ONE)]) == combinations([rewarded(ONE, ONE)]) == 0.0
    assert trees([rewarded(ONE, SAME_OPERATOR, OTHER)]) == 1.0
    assert combinations([rewarded(ONE, SAME_OPERATOR, OTHER)]) == pytest.approx(1 / 2)


def test_the_mean_is_over_groups_each_counting_once():
    groups = [rewarded(ONE, ONE, ONE, OTHER), rewarded(ONE, OTHER)]
    assert trees(groups) == pytest.approx((1 / 3 + 1) / 2)


def test_invalid_programs_and_single_ones_do_not_count():
    invalid = rewarded(OTHER, error="not_awaited")
    absent = [Reward(-0.2, facts={"program": "", "error": "no_program"})]
    assert trees([[*rewarded(ONE, ONE), *invalid, *absent]]) == 0.0
    assert trees([rewarded(ONE), rewarded(OTHER)]) is None
    assert trees([invalid + absent]) is None


def test_a_program_that_ran_and_failed_is_valid():
    failed = rewarded(OTHER, error="raised KeyError") + rewarded(SAME_OPERATOR, error="judge")
    assert trees([[*rewarded(ONE), *failed]]) == 1.0


def test_hostile_programs_have_no_shape_and_stop_nothing():
    hostile = ["\0", "class Workflow", "<script>", "x" + ".y" * 9_000, "(" * 5_000]
    assert trees([rewarded(ONE, ONE, *hostile)]) == 0.0


def test_facts_of_a_sum_of_rewards_are_found():
    facts = {"workflows.solved/program": ONE, "workflows.solved/error": ""}
    assert fact(facts, "program") == valid_program(facts) == ONE
    assert fact(facts, "cost") is None
    assert trees([[Reward(1.0, facts=facts), *rewarded(OTHER)]]) == 1.0


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"operations": 2}, {"operations": 2.0}),
        ({"level": "Level 5", "operations": None}, {"level": 5.0}),
        ({"level": "Level ?"}, {}),
        ({}, {}),
    ],
)
def test_how_hard_a_problem_is_stands_in_the_facts(row, expected):
    assert difficulties(row) == expected


def test_the_task_declares_them_and_stages_that_sample_compute_them():
    assert own_names(TASK) == GROUP_DIVERSITY.keys()
    table = {"method": "rft", "data": "d", "prompts": 1, "steps": 1, "reward": "solved"}
    stage = RftStage.model_validate(table)
    method: Any = with_step_metrics(stage, TASK, 1, grpo())
    assert method.of_groups == GROUP_DIVERSITY


def test_milestones_know_them_as_means_over_groups() -> None:
    assert GROUP_DIVERSITY.keys() == GROUP_MEANS
