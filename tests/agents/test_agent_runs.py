"""An agent of a file is trained and measured like any task, and a killed run goes on to the bit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.data.episode import Reward
from assay.lab.monitor.observer import Silent
from assay.lab.replay import replay
from assay.lab.session.session import Session
from assay.rollout.episodes import Played
from assay.runs.history import History
from assay.runs.run_directory import RunDirectory, runs_of
from assay.runs.run_names import experiment_of
from assay.train.sampled_groups import failed
from tests.cli.conftest import assert_one_line, call
from tests.from_files import start
from tests.tiny_labs import make_lab

AGENT = """
import asyncio

async def solve(row, client):
    async def ask(messages):
        answer = await client.chat.completions.create(model="policy", messages=messages)
        return answer.choices[0].message.content
    first = [{"role": "user", "content": row.messages[0].content}]
    drafts = await asyncio.gather(ask(first), ask([*first, {"role": "user", "content": "Now."}]))
    text = await ask([*first, {"role": "assistant", "content": drafts[0]},
                      {"role": "user", "content": "Sure?"}])
    return len(set(text)) / 12
"""
TABLES = """
[stage.rl]
method = "grpo"
data   = "sums"
steps  = 4
prompts  = 2
group    = 4
sampling = { temperature = 1.0, max_tokens = 12 }
optimizer = { lr = 1e-3 }
checkpoint_every = 1

[evaluate.test]
data   = "sums.dev"
role   = "report"
checkpoints = ["base", "rl.last"]
sampling = { max_tokens = 12 }
"""
EDITS = {'task  = "math"': 'task  = "chat"\nagent = "path:agent.py:solve"'}
ASSAY = str(Path(sys.executable).with_name("assay"))
DESPITE = "an agent that rewards letters"


def agent_lab(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "agent.py").write_text(AGENT)
    return make_lab(folder, until="[stage.sft]", tables=TABLES, edits=EDITS)


def trained(folder: Path) -> RunDirectory:
    """The run of a new lab."""
    start(agent_lab(folder), (), root=folder, despite=DESPITE)
    (run,) = runs_of(folder, "tiny")
    return run


def sampled(run: RunDirectory) -> list[tuple[object, ...]]:
    """Row, turns' tokens and reward of every sample."""
    history = History(run)
    return [
        (each.row, each.tokens, each.reward)
        for step in range(1, 5)
        for each in history.samples("rl", step)
    ]


def test_an_agent_is_trained_and_measured_and_the_manifest_names_its_file(tmp_path):
    run = trained(tmp_path / "one")
    lines = list(History(run).lines("rl"))
    assert [(line["abstained_share"], line["steps_mean"]) for line in lines] == [(0, 3.0)] * 4
    with Session(experiment_of(run), run, 7, Silent()).sharing_workers() as session:
        assert session.task.agent.helpers() is session.helpers  # whose calls the run counts
    assert '"agent.py"' in (run.path / "manifest.json").read_text()
    assert sampled(trained(tmp_path / "two")) == sampled(run)
    same, punished = (
        replay(run, 2, settings, stage="rl", observer=Silent())
        for settings in ((), ("overlong={ buffer = 12, factor = 1.0 }",))
    )
    assert same.proof.exact
    assert [s.reward_after for s in same.samples] == [s.reward_before for s in same.samples]
    assert any(s.reward_after < s.reward_before for s in punished.samples)


def test_an_agent_that_took_no_turn_abstains_with_its_own_reason():
    why = Reward(None, why="the agent raised KeyError: 'HOME'")
    asked_nothing = Played((), "stored")
    assert failed(asked_nothing, why) is why
    for other in (None, Reward(1.0)):
        told = failed(asked_nothing, other)
        assert told is not None and told.value is None and "asked for nothing" in told.why


@pytest.mark.slow
def test_a_killed_run_of_an_agent_goes_on_to_the_bit(tmp_path):
    one = trained(tmp_path / "whole")
    other = agent_lab(tmp_path / "killed")
    command = [ASSAY, "run", "tiny.toml", "--despite", DESPITE]
    process = subprocess.Popen(command, cwd=other.parent, start_new_session=True)
    metrics = None
    while metrics is None or len(metrics.read_text().splitlines()) < 2:
        time.sleep(0.05)
        metrics = next(iter(other.parent.glob("runs/tiny/*/metrics.jsonl")), None)
        assert process.poll() is None, "it ended before it was killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    subprocess.run([ASSAY, "resume", "tiny"], cwd=other.parent, check=True)
    (two,) = runs_of(other.parent, "tiny")
    assert sampled(one) == sampled(two)
    last = "checkpoints/rl/step-000004/model.safetensors"
    assert (one.path / last).read_bytes() == (two.path / last).read_bytes()


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ('"path:nothing.py:solve"', "nothing.py"),
        ('"path:agent.py:other"', "there is no function 'other'"),
        ('{ command = ["no-such-program-here"] }', "there is no program"),
        ("{ deadline = 3 }", "neither"),
    ],
)
def test_an_agent_that_is_not_there_is_one_line_before_a_model_is_read(tmp_path, agent, words):
    file = agent_lab(tmp_path / "lab")
    file.write_text(file.read_text().replace('"path:agent.py:solve"', agent))
    refused = call("run", file, "--lab", file.parent)
    assert_one_line(refused, words)
    assert refused.stderr.count("\n") == 1
    assert not (file.parent / "runs").exists()
