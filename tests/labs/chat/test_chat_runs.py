"""Chat SFT and RL on a table of questions and answers, without a line of Python."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import call
from tests.models.folders import save_tiny_model

EXPERIMENT = """\
name  = "capitals"
model = "path:model"
task  = "chat"
seeds = [1]

[data.train]
source = "path:capitals.csv"
format = "csv"
split  = { dev = 4 }

[stage.sft]
method = "sft"
data   = "train"
steps  = 2
batch  = 4

[stage.rl]
method = "grpo"
data   = "train"
reward = { "chat.exact_match" = 1.0, contains = 0.2 }
steps  = 2
prompts = 2
group   = 4
sampling = { max_tokens = 6 }

[evaluate.test]
data   = "train.dev"
reward = "exact_match"
role   = "report"
checkpoints = ["base", "rl.last"]
sampling = { max_tokens = 6 }
"""
CAPITALS = "France,Paris Italy,Rome Spain,Madrid Peru,Lima Japan,Tokyo Kenya,Nairobi Cuba,Havana"
CAPITALS += " Chile,Santiago Egypt,Cairo Norway,Oslo Ghana,Accra Iran,Tehran"


def test_a_csv_file_is_checked_trained_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_tiny_model(tmp_path / "model")
    lines = [f"The capital of {line}" for line in CAPITALS.split()]
    (tmp_path / "capitals.csv").write_text("\n".join(["prompt,answer", *lines]) + "\n")
    (tmp_path / "capitals.toml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    checked = call("check", "capitals.toml", "--json")
    report = json.loads(checked.stdout)
    assert checked.exit_code == 0, report
    assert report["result"]["numbers"]["stage.rl"]["gold_full_share: chat.exact_match"] == 1.0
    ran = call("run", "capitals.toml")
    assert ran.exit_code == 0, ran.output
    (metrics,) = tmp_path.glob("runs/capitals/*/metrics.jsonl")
    rewards = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert any("part/contains" in line or "contains" in str(line) for line in rewards)
    (record,) = tmp_path.glob("runs/capitals/*/evaluations/test-*/base.parquet")
    assert record.is_file()
