"""Killed in the middle of judging and resumed, a run pays for no judgement twice."""

import os
import signal
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from assay.data.episode import Completion, Reward
from assay.data.hashing import sha256_text
from assay.data.row import Row
from assay.lab.run.runner import resume, start
from assay.runs.run_directory import RunDirectory, all_runs
from assay.tasks.judge_reward import JudgeReward
from assay.tasks.math.rewards import REWARDS
from tests.forked import forked
from tests.labs import make_lab

TABLES = """
[stage.rl]
method = "grpo"
data   = "sums"
steps  = 2
prompts  = 2
group    = 2
sampling = { max_tokens = 4 }
reward   = { paid = 1.0 }
reward_concurrency = 1
drop_without_signal = false

[evaluate.dev]
data   = "sums.dev"
reward = "paid"
reward_concurrency = 1
role   = "report"
checkpoints = ["rl.last"]
sampling = { max_tokens = 4 }
"""
TRAINED, DEV = 8, 4


def work(folder: Path, die_at: int) -> None:
    """Start the run or go on with it; dies by SIGKILL in the judgement number `die_at`."""
    calls = folder / "calls"

    def paid(batch: list[tuple[Row, Completion]], helpers: object) -> list[Reward]:
        ((_, completion),) = batch
        if completion.id:  # none where `check` tries the reward on gold answers
            with calls.open("a") as log:
                log.write(f"{completion.id}\n")
            if len(calls.read_text().splitlines()) == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
        # As one that samples its verdict: the same text may earn another reward.
        drawn = sha256_text(f"{completion.id} {completion.text}")
        return [Reward(float(int(drawn[:2], 16)), facts={"drawn": drawn})]

    REWARDS["paid"] = JudgeReward(paid)  # type: ignore[index]
    if runs := all_runs(folder):
        resume(runs[0])
    else:
        start(folder / "tiny.toml", root=folder)


def results(run: RunDirectory) -> dict[str, list[dict]]:
    """Samples and records, but for the seconds that they took."""
    files = [*run.path.glob("samples/*/*.parquet"), *run.path.glob("evaluations/*/*.parquet")]
    return {
        file.name: [
            {name: value for name, value in line.items() if name != "seconds"}
            for line in pq.read_table(file).to_pylist()
        ]
        for file in files
    }


def finished(folder: Path, *deaths: int) -> Counter[str]:
    """A run that is killed at these judgements; returns how often each was asked for."""
    make_lab(folder, until="[stage.sft]", tables=TABLES)
    for die_at in (*deaths, 0):
        process = forked(work, folder, die_at, log=folder / "log.txt")
        process.join(120)
        expected = -signal.SIGKILL if die_at else 0
        assert process.exitcode == expected, (folder / "log.txt").read_text()[-2000:]
    return Counter((folder / "calls").read_text().split())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict]]:
    folder = tmp_path_factory.mktemp("whole")
    calls = finished(folder)
    assert calls.total() == len(calls) == TRAINED + DEV
    return results(all_runs(folder)[0])


def test_a_run_killed_while_it_judges_asks_again_for_that_judgement_alone(whole, tmp_path) -> None:
    deaths = (3, TRAINED + 2)  # in a step, and in the evaluation
    calls = finished(tmp_path, *deaths)
    (run,) = all_runs(tmp_path)
    assert sorted(calls.values())[-len(deaths) :] == [2] * len(deaths)
    assert calls.total() == TRAINED + DEV + len(deaths)
    assert results(run) == whole
    assert not [*run.path.glob("judgements-*")], "what is recorded is journalled no longer"
    assert not [*run.path.rglob("judgements.jsonl")]
