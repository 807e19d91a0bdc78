"""The workflows ladder: arms share the executor and the test, and learn from the same problems."""

from pathlib import Path

from assay.data.hashing import normalise_text
from assay.experiment.stage_tables import DpoStage, GrpoStage
from assay.lab.sweep.planned_runs import plan
from assay.lab.sweep.read_sweep import SweepFile, files_in_order
from assay.tasks.workflows.fixed_workflows import FIXED_SOURCES, WORKFLOW
from assay.tasks.workflows.problems import PROBLEM, READERS

FILE = Path(__file__).parents[2] / "experiments" / "workflows" / "ladder.toml"
*BEFORE, LADDER = files_in_order(FILE)
assert isinstance(LADDER, SweepFile)
ARMS = {run.name.removeprefix("workflows-ladder."): run.experiment for run in plan(LADDER)}


def test_the_models_come_before_the_arms_that_start_from_them():
    assert [each.stem for each in BEFORE if isinstance(each, Path)] == [
        "executor",
        "warm-up",
        "executions",
    ]
    trained = {ARMS[name].model for name in ("sft", "grpo", "score_dpo")}
    assert trained == {"run:workflows-warm-up@warm.last"}


def test_every_arm_answers_the_same_problems_with_the_same_executor():
    tests = [arm.evaluate["test"].model_copy(update={"checkpoints": ()}) for arm in ARMS.values()]
    assert all(each == tests[0] for each in tests)
    executors = [arm.helpers["executor"] for arm in ARMS.values()]
    assert all(each == executors[0] for each in executors)


def test_both_methods_learn_from_the_same_problems_with_the_same_reward():
    rl, prefer = ARMS["grpo"].stage["rl"], ARMS["score_dpo"].stage["prefer"]
    assert isinstance(rl, GrpoStage) and isinstance(prefer, DpoStage)
    executions = plan_of("executions")
    assert ARMS["score_dpo"].data["groups"].source == f"run:{executions.name}"
    assert executions.data == {k: ARMS["grpo"].data[k] for k in executions.data}
    assert executions.evaluate["train"].reward == rl.reward == "solved"


def test_fixed_arms_are_workflows_that_there_are():
    fixed = [arm.model for arm in ARMS.values() if arm.model.startswith(WORKFLOW)]
    assert len(fixed) >= 2
    assert {each.partition(":")[2] for each in fixed} <= FIXED_SOURCES.keys()


def test_no_problem_of_the_test_teaches_anyone():
    test = ARMS["sft"].evaluate["test"].options["sources"]
    for source in test:
        scheme = source.partition(":")[0]
        asked = {normalise_text(r.extra[PROBLEM]) for r in READERS[scheme]("test").rows}
        for side in {"asdiv": ("sft", "rl", "dev"), "subjects": ("executor", "rl", "dev")}[scheme]:
            seen = {normalise_text(r.extra[PROBLEM]) for r in READERS[scheme](side).rows}
            assert not asked & seen, (scheme, side)


def plan_of(stem: str):
    """The experiment of a file that the ladder stands on."""
    from assay.experiment.read_file import read_experiment

    return read_experiment(next(f for f in BEFORE if isinstance(f, Path) and f.stem == stem))
