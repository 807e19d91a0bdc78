"""What a run sampled is learned from token by token: never written again, never after another
prompt."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.data.episode import Episode
from assay.errors import InputError
from assay.experiment.base_table import RenderingSettings
from assay.experiment.read_file import read_experiment
from assay.lab.models.learner import stored_turns
from assay.lab.monitor.observer import Silent
from assay.lab.session.session import Session
from assay.lab.session.stage_methods import build_method, stored_groups_of
from assay.runs.metrics import read_metrics
from assay.runs.records import write_samples
from assay.runs.run_directory import RunDirectory, runs_of
from assay.train.loop import FirstBatchCheck
from tests.cli.conftest import assert_one_line, call
from tests.from_files import run_from
from tests.sample_lines import read_samples
from tests.written import as_written

SAMPLED = """
[stage.rl]
method = "grpo"
data = "sums"
steps = 3
prompts = 4
group = 4
sampling = { max_tokens = 6 }
reward = { spread = { kind = "path:rewards.py:spread" } }

[evaluate.often]
data = "sums"
reward = { spread = { kind = "path:rewards.py:spread" } }
role = "select"
checkpoints = ["rl.all"]
repeats = 3
sampling = { temperature = 1.0, max_tokens = 6 }
"""
SPREAD = """
from assay.data.episode import Reward


def spread(row, completion):
    right = bool(completion.text) and completion.text == row.messages[-1].content
    return Reward(1.0 if right else sum(completion.tokens) % 5 / 5)
"""
LEARNED = """
name = "learned"
model = "path:model"
task = "math"

[data.groups]
source = "run:tiny"
samples = { stage = "rl", each = "group" }

[data.often]
source = "run:tiny"
samples = { evaluation = "often", checkpoint = "rl.last", each = "group" }

[stage.keep]
method = "rft"
candidates = "stored"
data = "groups"
keep = 0.5
steps = 1
prompts = 4

[stage.weigh]
method = "rce"
candidates = "stored"
data = "often"
tau = 0.1
steps = 1
prompts = 4

[stage.push]
method = "grpo"
candidates = "stored"
data = "groups"
steps = 1
prompts = 4

[stage.prefer]
method = "dpo"
data = "groups"
steps = 1
batch = 4
scores = "score"
"""


@pytest.fixture(scope="module")
def lab(sampled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(sampled, folder, dirs_exist_ok=True)
    (folder / "learned.toml").write_text(LEARNED)
    return folder


def source_of(lab: Path) -> RunDirectory:
    (run,) = runs_of(lab, "tiny")
    return run


def session_of(lab: Path) -> Session:
    experiment = read_experiment(lab / "learned.toml")
    return Session(experiment, RunDirectory(lab, "learned", "none"), 7, Silent())


def learned_by(session: Session, stage: str) -> dict[str, Episode]:
    """All candidates of a stage by row and place."""
    spec = session.experiment.stage[stage]
    given = session.stage_input(spec)
    method = build_method(spec, given, 1)
    groups = stored_groups_of(method.method if isinstance(method, FirstBatchCheck) else method)
    return {episode.id: episode for group in groups for episode in group}


def samples(lab: Path) -> list[dict[str, Any]]:
    files = sorted((source_of(lab).path / "samples" / "rl").glob("*.parquet"))
    return [line for file in files for line in read_samples(file)]


@pytest.mark.parametrize("stage", ["keep", "push", "prefer"])
def test_a_stage_learns_the_very_tokens_that_were_sampled(lab: Path, stage: str) -> None:
    session = session_of(lab)
    found = learned_by(session, stage)
    encoder = session.learner.encoder(RenderingSettings())
    recorded: dict[str, list[tuple[int, ...]]] = {}
    for line in samples(lab):
        name = f"{line['row_id']}@{line['step']}.{line['visit']}"
        recorded.setdefault(name, []).append(tuple(line["tokens"]))
    for name, episode in found.items():
        row, _, place = name.rpartition("#")
        (turn,) = episode.turns
        assert turn.actions == recorded[row][int(place)] and all(turn.loss_mask)
        assert turn.ended == "stored" and turn.behaviour_logps is None
    assert len(found) > 8
    # Random bytes are no text: written and read again they would be other tokens.
    assert any("\ufffd" in encoder.decode(e.turns[0].actions) for e in found.values())


def test_every_method_trains_on_them(lab: Path) -> None:
    lines = read_metrics(run_from(lab / "learned.toml").metrics)
    assert [line["stage"] for line in lines] == ["keep", "weigh", "push", "prefer"]
    assert all(line["grad_norm"] > 0 for line in lines)
    assert lines[2]["part/spread"] == lines[2]["reward_mean"], "parts come along"


def test_another_prompt_than_the_recorded_one_is_refused(lab: Path) -> None:
    session = session_of(lab)
    row = session.sets["groups"].train[0]
    encoder, candidates = session.learner.encoder(RenderingSettings()), row.extra["candidates"]
    longer = replace(row, messages=(replace(row.messages[0], content="? "), *row.messages[1:]))
    with pytest.raises(InputError, match=r"rendered to other tokens than tiny/.* sampled from"):
        stored_turns(encoder, session.task, longer, candidates)
    bare = [{**each, "prompt_sha256": None} for each in candidates]
    with pytest.raises(InputError, match="did not record which prompt"):
        stored_turns(encoder, session.task, row, bare)
    words = ("--set", "stage.prefer.rendering=completion", "--set", "name=bare")
    result = call("run", lab / "learned.toml", "--lab", lab, "--new", *words)
    assert_one_line(result, "rendered to other tokens")


def test_abstentions_are_dropped_and_counted(lab: Path, tmp_path: Path) -> None:
    file = sorted((source_of(lab).path / "samples" / "rl").glob("*.parquet"))[0]
    before = file.read_bytes()
    lines = read_samples(file)
    try:
        write_samples(file, [{**lines[0], "reward": None}, *lines[1:]])
        as_written(file)
        made = session_of(lab).sets["groups"]
    finally:
        file.write_bytes(before)
    assert [len(ids) for ids in made.dropped.values()] == [1]
    assert list(made.dropped) == ["the reward abstained"]
    assert len(made.train[0].extra["candidates"]) == 3
