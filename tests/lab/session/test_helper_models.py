"""Helper models of a session: opened once, asked from threads, counted and fingerprinted."""

import json
from pathlib import Path

import pytest

from assay.data.files import sha256_file
from assay.data.row import Message
from assay.errors import InputError
from assay.experiment.read_file import read_experiment
from assay.lab.models.helper_models import HelperModels
from assay.lab.monitor.observer import Silent
from assay.lab.session.manifest import make_manifest
from assay.lab.session.reward_parts import asked_helpers
from assay.lab.session.session import Session
from assay.lab.session.validate import read_whole
from assay.rl.policy import SampleKey, Sampling
from assay.runs.run_directory import RunDirectory
from assay.tasks.judge_reward import JudgeReward
from tests.scripted_helper import questions
from tests.tiny_labs import make_lab

RULES = [
    {"prompt": "capital", "answer": "Paris is it"},
    {"prompt": "sum", "logps": -2.0},
]
JUDGE = """
[model.judge]
source = "scripted:judge.jsonl"
price = { prompt = 1e5, completion = 2e5 }
"""
GREEDY = Sampling(0.0, 8)


def session_of(folder: Path, tables: str = JUDGE, rules: list | None = None) -> Session:
    file = make_lab(folder, until="[stage.rl]", edits={"model =": "model.policy ="}, tables=tables)
    lines = "".join(json.dumps(rule) + "\n" for rule in rules or RULES)
    (folder / "judge.jsonl").write_text(lines)
    experiment = read_experiment(file)
    return Session(experiment, RunDirectory(folder, "tiny", "x"), 7, Silent())


def said(text: str) -> tuple[Message, ...]:
    return (Message("user", text),)


def keys(count: int) -> list[SampleKey]:
    return [SampleKey(7, "row", sample) for sample in range(count)]


def test_costs_are_counted_between_two_calls(tmp_path):
    helpers = session_of(tmp_path).helpers
    helpers["judge"].answer(questions([said("the capital?"), said("x")], GREEDY, keys(2)))
    assert helpers.costs() == {
        "helper/judge/requests": 2.0,
        "helper/judge/failures": 1.0,
        "helper/judge/uncounted": 0.0,
        "helper/judge/remembered": 0.0,
        "helper/judge/prompt_tokens": 3.0,
        "helper/judge/completion_tokens": 3.0,
        "helper/judge/tokens": 6.0,
        "helper/judge/cost": pytest.approx(0.9),
    }
    helpers["judge"].score([said("sum")], ["4"])
    assert helpers.costs()["helper/judge/cost"] == pytest.approx(0.3)
    assert set(helpers.costs().values()) == {0.0}


def test_the_manifest_knows_a_script_by_what_it_holds(tmp_path):
    session = session_of(tmp_path)
    table = make_manifest(session)["helpers"]["judge"]
    assert table["source"] == "scripted"
    assert table["fingerprint"] == sha256_file(tmp_path / "judge.jsonl")
    assert "price" not in table


def test_a_name_that_is_not_declared_offers_the_nearest(tmp_path):
    helpers = session_of(tmp_path).helpers
    judge = JudgeReward(lambda *_: iter(()), ("jugde",))
    with pytest.raises(InputError, match=r"unknown helper model 'jugde' \(did you mean 'judge'"):
        asked_helpers(helpers, [judge])
    with pytest.raises(InputError, match=r"declare it as \[model\.jugde\]"):
        asked_helpers({}, [judge])


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (JUDGE.replace("scripted", "scriptde"), "model.judge.source: unknown kind of model source"),
        ('[model.judge]\nsource = "path:no"\n', "no: no such folder (it counts from"),
        (JUDGE + 'rendering = "hermse"\n', "model.judge.rendering: unknown rendering 'hermse'"),
        (JUDGE + '[budget]\n"helper/jugde/cost" = 1.0\n', "unknown helper model 'jugde'"),
    ],
)
def test_what_a_file_names_wrongly_is_told_before_anything_is_opened(tmp_path, tables, expected):
    session_of(tmp_path, tables)
    with pytest.raises(InputError) as raised:
        read_whole(tmp_path / "tiny.toml", (), tmp_path)
    assert expected in str(raised.value)


def test_no_model_is_opened_before_it_is_asked(tmp_path):
    helpers = HelperModels(session_of(tmp_path).experiment.helpers, tmp_path, None)  # type: ignore[arg-type]
    (tmp_path / "judge.jsonl").unlink()
    assert list(helpers) == ["judge"] and "judge" in helpers
    with pytest.raises(InputError, match="no such file"):
        helpers["judge"]
