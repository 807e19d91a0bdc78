"""The ladder: its arms differ in what they are about, and each file is sound on a tiny model."""

from pathlib import Path

import pytest

from assay.data.formats.formats import read_rows
from assay.experiment.read_file import read_experiment
from assay.experiment.stage_tables import DistillStage, GrpoStage, RftStage, SftStage
from assay.lab.check.all_checks import check_experiment
from assay.lab.sweep.planned_runs import plan
from assay.lab.sweep.read_sweep import read_sweep
from tests.experiments.tiny import TOOLS, make_model

LADDER = read_sweep(TOOLS / "ladder.toml")
EVERY = {run.name.removeprefix("ladder."): run.experiment for run in plan(LADDER)}
GENERATED = ["start", "grpo_generated", "rft_generated", "sft_generated"]
"""The rungs that learn from generated calls, and what they start from."""
DISTILLED = ["teacher", "distill", "distill_mixed", "distill_own", "sft_teacher", "sft_own"]
"""The teacher and its students."""
OTHERS = {*GENERATED, *DISTILLED}
RUNS = {name: experiment for name, experiment in EVERY.items() if name not in OTHERS}
SMALL = (
    "data.calls.take.rows=8",
    "data.warm_calls.take.rows=8",
    "data.talks.source=simulated:4",
    "data.warm_talks.source=simulated:4",
    "data.held_out.source=simulated_held_out:2",
    # The tiny tokenizer writes English in twice as many tokens.
    *(f"data.{name}.max_prompt_tokens=10000" for name in ("talks", "warm_talks", "held_out")),
)


def test_all_arms_are_measured_alike_and_train_on_the_same_rows():
    first, *others = RUNS.values()
    for other in others:
        for name, evaluation in first.evaluate.items():
            same = {"checkpoints": ("x",)}
            assert evaluation.model_copy(update=same) == other.evaluate[name].model_copy(
                update=same
            )
        assert other.data["talks"] == others[0].data["talks"]
        assert other.data["calls"] == others[0].data["calls"]
        assert other.data["held_out"] == first.data["held_out"]


def test_the_three_arms_learn_the_same_questions_from_one_start_and_are_measured_alike():
    start, *arms = (EVERY[name] for name in GENERATED)
    first = arms[0]
    for arm in arms:
        assert arm.model == "run:ladder.start@calls.last"
        assert (arm.data, arm.evaluate, arm.seeds) == (first.data, first.evaluate, first.seeds)
        before, after = start.evaluate["calls"], arm.evaluate["calls"]
        assert after.model_copy(update={"checkpoints": before.checkpoints}) == before
    pool = read_experiment(TOOLS / "ladder" / "pool.toml")
    asked, learned = pool.data["generated"], first.data["generated"]
    assert learned == asked.model_copy(update={"take": learned.take}) and pool.model == first.model
    assert learned.take is not None and learned.take.selection and len(first.seeds) == 3
    grpo, rft, sft = (arm.stage["generated"] for arm in arms)
    assert isinstance(grpo, GrpoStage) and isinstance(rft, RftStage) and sft.method == "sft"
    for sampled in (grpo, rft):
        assert (sampled.sampling, sampled.reward) == (grpo.sampling, grpo.reward)
        assert (sampled.steps, sampled.prompts, sampled.group) == (30, 4, 8)
    for stage in (rft, sft):
        assert (stage.adapt, stage.optimizer) == (grpo.adapt, grpo.optimizer)


def test_students_differ_in_how_they_learn_of_their_teacher_and_where_they_start():
    students = {name: EVERY[name] for name in DISTILLED[1:]}
    first = students["distill"]
    for name, each in students.items():
        own = name.endswith("_own")
        assert each.model == ("run:ladder.teacher@calls.last" if own else EVERY["teacher"].model)
        assert each.data == first.data and each.evaluate == first.evaluate
        assert each.helpers == ({} if "sft" in name else first.helpers)
    own, mixed, again, *controls = (each.stage["distilled"] for each in students.values())
    assert isinstance(own, DistillStage) and own == again
    assert mixed.model_copy(update={"lmbda": own.lmbda, "beta": own.beta}) == own != mixed
    for sft in controls:
        assert isinstance(sft, SftStage)
        assert (sft.batch, sft.optimizer) == (own.prompts, own.optimizer)


def test_grpo_and_egpo_differ_in_the_estimator_alone():
    grpo, egpo = RUNS["grpo_think"], RUNS["egpo_think"]
    changed = {"algorithm": "grpo"}
    back = {
        name: stage.model_copy(update=changed if stage.method == "grpo" else {})
        for name, stage in egpo.stage.items()
    }
    assert back == grpo.stage and egpo.stage != grpo.stage


def test_the_rows_with_thoughts_think_before_one_call_of_a_tool_they_have():
    rows = read_rows(TOOLS / "ladder" / "thoughts.jsonl", "messages")
    for row in rows:
        target = row.messages[-1]
        (call,) = target.tool_calls
        described = {tool["function"]["name"] for tool in row.tools}
        assert target.reasoning and call.name in described and len(described) == 2


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["lora_grpo", "baseline", "full_sft_last", "egpo_think"])
def test_an_arm_is_sound_in_a_tiny_lab(arm: str, tmp_path: Path):
    model = make_model(tmp_path)
    (run,) = [r for r in plan(LADDER) if r.name == f"ladder.{arm}"]
    known = [s for s in SMALL if s.split(".")[1] in run.experiment.data]
    root = TOOLS.parents[1]
    settings = [*run.overrides, *known, f"model=path:{model}"]
    settings += ["evaluate.calls.take.rows=2", "evaluate.sampled.take.rows=2"]
    report = check_experiment(run.base, settings, root=root)
    assert [f for f in report.findings if f.severity == "error"] == []
