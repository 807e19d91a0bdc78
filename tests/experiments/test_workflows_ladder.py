"""The workflows ladder: arms share the executor and the test, and learn from the same problems."""

from pathlib import Path

from assay.data.formats.problem_rows import PROBLEM
from assay.data.hashing import normalise_text
from assay.experiment.read_file import read_experiment
from assay.experiment.reward_tables import RewardPart
from assay.experiment.stage_tables import GrpoStage
from assay.lab.sweep.planned_runs import plan
from assay.lab.sweep.read_sweep import read_sweep
from tests.experiments.files import shipped

READERS = shipped("workflows/problems.py").READERS
FILE = Path(__file__).parents[2] / "experiments" / "workflows" / "ladder.toml"
LADDER = read_sweep(FILE)
ARMS = {run.name.removeprefix("workflows-ladder."): run.experiment for run in plan(LADDER)}


def test_every_arm_answers_the_same_problems_with_the_same_executor():
    tests = [arm.evaluate["test"].model_copy(update={"checkpoints": ()}) for arm in ARMS.values()]
    assert all(each == tests[0] for each in tests)
    executors = [arm.helpers["executor"] for arm in ARMS.values()]
    assert all(each == executors[0] for each in executors)


def test_what_is_rewarded_is_what_the_test_counts():
    (grpo,) = [arm.stage["rl"] for arm in ARMS.values() if "rl" in arm.stage]
    assert isinstance(grpo, GrpoStage) and isinstance(grpo.reward, dict)
    options = ARMS["sft"].evaluate["test"].options
    assert isinstance(net := grpo.reward["net"], RewardPart)
    assert net.options == {"price": options["price"]}
    samples = plan_of("samples")
    assert samples.evaluate["programs"].reward == grpo.reward
    assert {samples.model, ARMS["rce"].model} == {ARMS["sft"].model}
    assert samples.helpers == ARMS["rce"].helpers


def test_policies_are_offered_in_the_test_what_they_learned_with():
    options = [*(each.options for each in ARMS["grpo"].data.values() if each.options)]
    for stem in ("warm-up", "samples"):
        options += [each.options for each in plan_of(stem).data.values() if each.options]
    wanted = ARMS["sft"].evaluate["test"].options["operators"]
    assert options and all(each["operators"] == wanted for each in options)


def test_no_problem_of_the_test_teaches_anyone():
    for source in ARMS["sft"].evaluate["test"].options["sources"]:
        scheme, _, side = source.partition(":")
        assert side == "test"
        asked = {normalise_text(r.extra[PROBLEM]) for r in READERS[scheme]("test").rows}
        for other in ("sft", "rl", "dev"):
            seen = {normalise_text(r.extra[PROBLEM]) for r in READERS[scheme](other).rows}
            assert not asked & seen, (scheme, other)


def plan_of(stem: str):
    """The experiment of a file that the ladder stands on."""
    return read_experiment(FILE.parent / "ladder" / f"{stem}.toml")
