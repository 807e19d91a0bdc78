"""What helper models cost in a whole run: recorded by step and problem, bounded, shown."""

import json
from pathlib import Path

import pytest

from assay.data.episode import Completion, Reward
from assay.data.row import Row
from assay.lab.monitor.run_costs import run_costs
from assay.lab.run.resume import resume
from assay.labs.math.rewards import REWARDS
from assay.runs.cost_ledger import read_calls
from assay.runs.metrics import read_metrics
from assay.runs.run_directory import RunDirectory, all_runs, read_status
from assay.runs.verify_files import verify_run
from assay.tasks.helper_model import HelperModel, OverBudget
from assay.tasks.judge_reward import JudgeReward, answers
from tests.cli.conftest import call
from tests.from_files import start
from tests.tiny_labs import make_lab

TABLES = """
[model.judge]
source = "scripted:judge.jsonl"
price = { prompt = 0.0, completion = 1e6 }
sampling = { max_tokens = 4 }
{budget}

[stage.rl]
method = "grpo"
data   = "sums"
steps  = 4
prompts  = 2
group    = 2
sampling = { max_tokens = 4 }
reward   = { asked = 1.0 }
reward_concurrency = 1
drop_without_signal = false
checkpoint_every = 1

[evaluate.dev]
data   = "sums.dev"
reward = "asked"
role   = "report"
checkpoints = ["rl.last"]
sampling = { max_tokens = 4 }
"""
EACH, RESERVED = 2.0, 4.0
"""An answer of two words, of which it may have four."""


def asked(batch: list[tuple[Row, Completion]], helpers: dict[str, HelperModel]) -> list[Reward]:
    from assay.data.row import Message

    ((row, completion),) = batch
    answers(helpers["judge"], [(Message("user", row.id + completion.text),)], [completion.id])
    return [Reward(float(len(completion.text) % 5))]


@pytest.fixture(autouse=True)
def reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REWARDS, "asked", JudgeReward(asked, ("judge",)))  # type: ignore[arg-type]


def lab(folder: Path, budget: str = "") -> Path:
    tables = TABLES.replace("{budget}", budget)
    edits = {"model =": "model.policy ="}
    file = make_lab(folder, until="[stage.sft]", edits=edits, tables=tables)
    (folder / "judge.jsonl").write_text(json.dumps({"answer": "quite good"}) + "\n")
    return file


def test_every_call_of_a_run_is_in_its_ledger_by_stage_step_and_problem(tmp_path):
    (run,) = start(lab(tmp_path), root=tmp_path)
    calls = [each for each in read_calls(run.path) if each.completion]
    trained = [each for each in calls if each.stage == "rl"]
    assert [each.step for each in trained] == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4
    assert all(each.completion.startswith(f"{each.step}/{each.problem}#") for each in trained)
    measured = [each for each in calls if each.stage == "dev"]
    assert {each.step for each in measured} == {4} and len(measured) == len(calls) - 16
    metrics = [line["helper/judge/cost"] for line in read_metrics(run.metrics)]
    assert metrics == [pytest.approx(4 * EACH)] * 4
    assert not verify_run(run).faults

    found = run_costs(run)
    assert found.total is not None
    assert found.total.calls == len(read_calls(run.path))
    by_stage = {line.name: line for line in found.stages}
    assert by_stage["rl"].cost == pytest.approx(16 * EACH)
    assert found.per_step == pytest.approx(4 * EACH) and found.per_call == pytest.approx(EACH)
    assert found.per_problem == pytest.approx(EACH)

    shown = call("costs", "tiny", "--lab", tmp_path)
    assert shown.exit_code == 0 and "Costs by model" in shown.stdout
    assert f"in the mean: {EACH:.2f} a call, {EACH:.2f} a completion" in shown.stdout
    value = json.loads(call("costs", "tiny", "--lab", tmp_path, "--json").stdout)["result"]
    assert value["total"]["cost"] == pytest.approx(found.total.cost)
    assert "平均" in call("costs", "tiny", "--lab", tmp_path, "--lang", "zh").stdout


def stopped(folder: Path, scope: str, limit: float) -> RunDirectory:
    """A run that a budget stops."""
    with pytest.raises(OverBudget, match=rf"model\.judge\.budget\.{scope}"):
        start(lab(folder, f"budget = {{ {scope} = {limit} }}"), root=folder)
    (run,) = all_runs(folder)
    return run


def spent(run: RunDirectory) -> float:
    return sum(each.most for each in read_calls(run.path)) / 1e9


def test_a_budget_of_a_step_stops_the_run_and_so_does_what_continues_it(tmp_path):
    run = stopped(tmp_path, "step", 2 * EACH + RESERVED - 1)
    status = read_status(run.path)
    assert status.status == "failed" and "budget.step" in status.message
    steps = [each for each in read_calls(run.path) if each.step]
    assert [each.status for each in steps] == ["answered"] * 2
    with pytest.raises(OverBudget, match=r"budget\.step: 4 of 7 spent or reserved, and the next"):
        resume(run)
    assert [each for each in read_calls(run.path) if each.step] == steps
