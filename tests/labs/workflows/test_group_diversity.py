"""How different programs of a group are, over valid programs alone, whatever their group's size."""

from assay.data.episode import Reward
from assay.lab.monitor.guards import GROUP_MEANS
from assay.labs.workflows.execution import GROUP_DIVERSITY, fact, valid_program
from tests.labs.workflows.programs.good_programs import text

ONE = text('return (await self.custom(input=problem, instruction="Solve."))["response"]')
REWORDED = ONE.replace("Solve.", "Think.")
SAME_OPERATOR = text('r = await self.custom(input=problem, instruction="")\nreturn r["response"]')
OTHER = text('r = await self.programmer(problem=problem)\nreturn r["output"]')

trees = GROUP_DIVERSITY["different_trees_share"]


def rewarded(*programs: str, error: str = "") -> list[Reward]:
    return [Reward(1.0, facts={"program": p, "error": error}) for p in programs]


def test_a_group_of_reworded_programs_is_0_and_one_of_different_programs_1():
    assert trees([rewarded(ONE, REWORDED, ONE, ONE)]) == 0.0
    assert trees([rewarded(ONE, SAME_OPERATOR, OTHER)]) == 1.0
    assert trees([rewarded(ONE, ONE.replace("operator.Custom(", "operator.Format("))]) == 1.0


def test_invalid_programs_and_single_ones_do_not_count():
    invalid = rewarded(OTHER, error="not_awaited")
    absent = [Reward(-0.2, facts={"program": "", "error": "no_program"})]
    assert trees([[*rewarded(ONE, ONE), *invalid, *absent]]) == 0.0
    assert trees([rewarded(ONE), rewarded(OTHER)]) is None
    assert trees([invalid + absent]) is None


def test_facts_of_a_sum_of_rewards_are_found():
    facts = {"workflows.solved/program": ONE, "workflows.solved/error": ""}
    assert fact(facts, "program") == valid_program(facts) == ONE
    assert fact(facts, "cost") is None
    assert trees([[Reward(1.0, facts=facts), *rewarded(OTHER)]]) == 1.0


def test_milestones_know_them_as_means_over_groups() -> None:
    assert GROUP_DIVERSITY.keys() == GROUP_MEANS
